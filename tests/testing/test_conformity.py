import random
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from pertoken.advisor.rules.discovery import installed, load
from pertoken.config import Settings
from pertoken.rule import SECTIONS, Deployment, Evidence, Rule, Service, skip
from pertoken.testing import assert_conforms, faults
from tests.advisor.gathered import own

BUILT_IN = [
    rule
    for plugin in installed()
    if plugin.distribution == "pertoken"
    for loaded in load(plugin, Settings())
    for rule in (*loaded.rules, *loaded.disabled)
]


@pytest.mark.parametrize("rule", BUILT_IN, ids=[built_in.rule_id for built_in in BUILT_IN])
def test_the_built_in_rules_conform(rule: Rule) -> None:
    assert_conforms(rule)


def raises(seen: Evidence, now: Deployment) -> Any:
    yield now.but(tp={"H100 SXM5": 2}[str(now.accelerator)])


def leaves(seen: Evidence, now: Deployment) -> Any:
    raise SystemExit(3)


def unknown_knob(seen: Evidence, now: Deployment) -> Any:
    yield now.but(max_num_seqs=now.max_num_seqs * 2)  # type: ignore[operator]


def missing_series(seen: Evidence, now: Deployment) -> Any:
    busy = seen.busy.mean if seen.has("busy") else None
    yield skip("busy", f"it is busy {busy:.0%} of the time")


def silent(seen: Evidence, now: Deployment) -> Any:
    return []


def present(seen: Evidence, service: Service) -> Any:
    yield service.but()


def mutates(seen: Evidence, now: Deployment) -> Any:
    object.__setattr__(now, "tp", 8)
    yield skip("nothing", "nothing to propose")


_CALLS = count(100)


def remembers(seen: Evidence, now: Deployment) -> Any:
    yield now.but(max_num_seqs=next(_CALLS))


def random_one(seen: Evidence, now: Deployment) -> Any:
    yield skip("random", f"{random.random()}")


def wrong_kind(seen: Evidence, now: Deployment) -> Any:
    yield "fewer ranks"


def impossible(seen: Evidence, now: Deployment) -> Any:
    yield now.but(tp=0)


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (raises, "it raises KeyError: 'A100 80GB SXM4' (test_conformity.py:"),
        (leaves, "it raises SystemExit: 3"),
        (unknown_knob, "where the knob max_num_seqs is unknown (None) it raises TypeError: unsupported operand"),
        (missing_series, "without the series busy it raises TypeError: unsupported format string"),
        (silent, "it yields nothing: refuse with skip(code, reason)"),
        (present, "it proposes the present state: refuse instead"),
        (mutates, "it changes its inputs: use the edits"),
        (remembers, "it yields something else when it is run again"),
        (random_one, "it yields something else when it is run again"),
        (wrong_kind, "it raises TypeError: it yielded a str"),
        (impossible, "it raises InvalidEdit: tp=0 is not possible"),
    ],
)
def test_an_error_of_an_advice_run_is_a_fault(function: Callable[..., Any], fault: str) -> None:
    found_faults = faults(own(function))
    assert any(line.startswith(fault) for line in found_faults), found_faults


def test_a_rule_that_reads_a_series_that_it_does_not_declare_has_a_fault() -> None:
    def reads(seen: Evidence, now: Deployment) -> Any:
        yield skip("busy", f"it is busy {seen.busy.mean:.0%} of the time")

    declared = replace(own(reads, window="28d"), series=("busy",))
    assert not [fault for fault in faults(declared) if "declare" in fault]
    (fault, *_) = faults(replace(declared, series=("held",)))
    assert fault.startswith("it reads the series busy and does not declare it: add it to `series` of its decorator")


def test_a_fault_names_the_regimes_that_show_it_and_all_faults_are_in_the_error() -> None:
    (fault,) = [fault for fault in faults(own(raises)) if "A100" in fault]
    assert fault.endswith("(regimes: committed, owned)")
    with pytest.raises(AssertionError, match=r"rule own-rule does not conform:\n(.*\n)*- it raises KeyError"):
        assert_conforms(own(raises))


def test_a_rule_made_without_its_decorator_has_to_be_documented() -> None:
    def undocumented(now: Deployment) -> Any: ...

    made = Rule("own-rule", undocumented, ("now",), "A title.", dict.fromkeys(SECTIONS, "Because."))
    (fault,) = faults(made)
    assert "its docstring needs" in fault
