"""Counters of the size and shape of the code, over code of their own."""

import ast
from typing import NamedTuple

from pertoken.costs.ledger import ServedCost
from tools import house, token_forms


def test_bindings_are_assigned_names_and_arguments() -> None:
    tree = ast.parse("def f(known, of=1):\n    row = known\n    for at in row: row.left = at")
    assert sorted(house.bindings(tree)) == ["at", "known", "of", "row"]
    assert {"known", "of", "at"} <= house.PRONOUNS


def test_importers_are_modules_that_name_a_module_or_something_of_it() -> None:
    code = {"p.a": "", "p.b": "from p import a", "p.c": "from p.a import x\nimport p.b", "p": "import json"}
    importers_of = house.importers({name: ast.parse(text) for name, text in code.items()})
    assert importers_of == {"p.a": {"p.b", "p.c"}, "p.b": {"p.c"}, "p.c": set(), "p": set()}


def test_private_names_are_uses_and_definitions_with_one_underscore() -> None:
    tree = ast.parse("class A:\n    def _draw(self): self._size = super()._layout(self.__x, self.__init__)")
    assert sorted(house.private_names(tree)) == ["_draw", "_layout", "_size"]
    assert {"_draw", "_size"} <= set(house.defined_names(tree))


def test_no_private_name_of_textual_is_used() -> None:
    assert house.textual_private_names() == 0


def test_each_counter_states_in_one_sentence_what_it_counts() -> None:
    for counter in house.COUNTERS:
        assert (counter.__doc__ or "").count(". ") == 0 and (counter.__doc__ or "").rstrip().endswith(".")


def test_an_advice_run_is_traced_in_its_process_and_on_its_stacks() -> None:
    assert 15 <= house.files_on_stacks() <= house.files_in_parent()


class Foreign(NamedTuple):
    tokens: int


def seen(*values: object) -> token_forms.Values:
    watch = token_forms.Watch()
    for value in values:
        watch.note(value)
    return watch.seen


def test_a_form_is_a_type_with_a_value_that_no_equal_run_had() -> None:
    first, second = ServedCost(1, 2, 3), ServedCost(1, 2, 4)
    assert token_forms.changed(seen([first, {"more": second}]), seen(first)) == []
    assert token_forms.changed(seen(first), seen({"row": (second,)})) == ["costs.ledger.ServedCost"]
    assert token_forms.changed(seen(Foreign(3)), seen(Foreign(4))) == []


def test_the_value_of_a_field_is_not_what_another_instance_holds() -> None:
    assert token_forms.own_values([1, {"a": "b"}, ServedCost(1, 2, 3)]) == "(1, ('a', 'b'))"


def test_tokens_take_the_same_forms_to_the_store_on_both_ways() -> None:
    by_advice, by_bill = frozenset(token_forms.forms("advice")), frozenset(token_forms.forms("bill"))
    assert {"agent.scrape.Reply", "store.schema.rows.DeploymentSample", "table deployment_1h"} <= by_advice & by_bill
    assert {"evidence.Series", "proof.recommendation.Variant", "table recommendation"} <= by_advice - by_bill
    assert {"costs.report.lines.DeploymentLine"} <= by_bill - by_advice
    assert house.token_forms_by_bill() <= 17
    assert house.token_forms_by_advice() <= 38
