"""Counters of the size and shape of the code, over code of their own."""

import ast

from tools import house


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
