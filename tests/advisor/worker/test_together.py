"""Rules of this program share a process; one that ends it is a row of its own all the same."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from pertoken.advisor.rules.discovery import GROUP, installed, source_of
from pertoken.advisor.run import advice_of
from pertoken.advisor.worker.child import PluginSource, RuleLimits
from pertoken.config import Settings
from pertoken.proof.recommendation import Recommendation, State
from pertoken.rule import Rule, skip
from tests.advisor.gathered import own, rule_source
from tests.advisor.hostile import GATHERED

LIMITS = RuleLimits(call_s=1.0, rule_s=2.0, plugin_s=20.0)


def names_its_process(seen: Any, now: Any) -> Iterator[Any]:
    yield skip("process", str(os.getpid()))


def processes(n: int) -> list[Rule]:
    return [own(names_its_process, f"rule-{number}") for number in range(n)]


def run(rules: Sequence[Rule], *, ours: bool = True, limits: RuleLimits = LIMITS) -> dict[str, list[Recommendation]]:
    sources: list[PluginSource] = [replace(rule_source(rule), is_built_in=ours) for rule in rules]
    rows, record = advice_of(sources, GATHERED, limits)
    assert [rule.name for rule in record.rules] == [rule.rule_id for rule in rules]
    assert len({rule.confinement for rule in record.rules}) == 1
    return {rule.rule_id: [row for row in rows if row.rule_id == rule.rule_id] for rule in rules}


def pids(rows: dict[str, list[Recommendation]]) -> set[str]:
    return {str(row.reason) for rows_of_rule in rows.values() for row in rows_of_rule if row.state is State.REFUSED}


def test_only_rules_of_this_program_share_a_process() -> None:
    rules = processes(3)
    assert len(pids(run(rules))) == 1
    assert len(pids(run(rules, ours=False))) == 3
    by_own = {place.name: source_of(place, Settings()).is_built_in for place in installed()}
    assert by_own.pop("batch-limit") and all(by_own.values())


def test_a_distribution_with_the_name_of_this_program_is_not_of_this_program() -> None:
    place = next(place for place in installed() if place.name == "batch-limit")
    assert source_of(place, Settings()).is_built_in
    for module in ("pertoken_plugins.batch_limit", "theirs"):
        entry_point = EntryPoint(place.name, module, GROUP)
        assert not source_of(replace(place, entry_point=entry_point), Settings()).is_built_in


def test_an_error_of_one_rule_is_its_own_row_and_the_others_go_on() -> None:
    def fails(seen: Any, now: Any) -> Iterator[Any]:
        raise ValueError("no such knob")
        yield

    rows = run([*processes(2), own(fails, "fails")])
    assert {row.state for row in rows["fails"]} == {State.FAILED} and len(rows["fails"]) == 3
    assert all("ValueError: no such knob" in str(row.reason) for row in rows["fails"])
    assert len(pids(rows)) == 1


@pytest.mark.parametrize("ends", ["exits", "takes-long"])
def test_where_a_rule_ends_the_process_each_rule_has_its_own(ends: str) -> None:
    def exits(seen: Any, now: Any) -> Iterator[Any]:
        os._exit(7)
        yield

    def takes_long(seen: Any, now: Any) -> Iterator[Any]:
        time.sleep(0.9)
        yield skip("no", "never")

    rules = {"exits": own(exits, "exits"), "takes-long": own(takes_long, "takes-long")}
    first, last = processes(2)
    rows = run([first, rules[ends], last])
    reasons = [str(row.reason) for row in rows[ends] if row.state is State.FAILED]
    expected = {"exits": "the rule ended its process with status 7", "takes-long": "the rule took longer than 2 s"}
    assert len(reasons) == 1 and reasons[0].startswith(expected[ends])
    assert len(pids({name: rows[name] for name in ("rule-0", "rule-1")})) == 2


def test_a_rule_sees_nothing_that_another_one_read() -> None:
    def reads(seen: Any, now: Any) -> Iterator[Any]:
        yield skip("mean", str(seen.running.mean))

    def reads_nothing(seen: Any, now: Any) -> Iterator[Any]:
        yield skip("read", str(seen.read))

    rows = run([own(reads, "reads"), own(reads_nothing, "reads-nothing")])
    assert {row.reason for row in rows["reads-nothing"]} == {"()"}
    assert all(row.evidence for row in rows["reads"]) and not any(row.evidence for row in rows["reads-nothing"])
