"""Parts of windows that forks read: the same advice, and never beside a connection of this process."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from pertoken.advisor import ahead
from pertoken.advisor.advise import Advice, advise
from pertoken.advisor.ahead import RULE_WINDOWS_S, reading_ahead, windows_of
from pertoken.advisor.forked import Forked
from pertoken.advisor.rules.discovery import find_rules, installed
from pertoken.advisor.rules.load import rules_of, source_of
from pertoken.catalog.market import load_market
from pertoken.config import Settings
from pertoken.rule import Deployment, Evidence, Skip, skip
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import Store, open_store
from tests.advisor.builders import NOW
from tests.advisor.gathered import own
from tests.advisor.gathered import source_of as source_of_rule

DAY = 86_400


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let forks pay for any database; return one item for each."""
    made: list[int] = []

    def counted(work: Any) -> Forked[Any]:
        made.append(os.getpid())
        return Forked(work)

    monkeypatch.setattr(ahead, "MIN_EPOCHS", 0)
    monkeypatch.setattr(ahead, "can_fork", lambda: True)
    monkeypatch.setattr(ahead, "Forked", counted)
    return made


def advised(folder: Path) -> Advice:
    sources = [source_of(place, Settings()) for place in find_rules(Settings())]
    return advise(open_store(locate(str(folder))), sources, load_market(), Settings(), 7 * DAY, NOW, dated=True)


def test_the_windows_of_the_built_in_rules_are_known_before_they_are_loaded() -> None:
    declared = {
        place.name: rule.window_s
        for place in installed()
        if place.entry_point is not None and place.distribution == "pertoken"
        for rule in rules_of(place.entry_point.load())
        if rule.window_s is not None
    }
    assert declared == RULE_WINDOWS_S
    assert windows_of(source_of(place, Settings()) for place in installed()) == set(declared.values())


def test_a_rule_of_another_distribution_has_no_window_that_is_read_ahead() -> None:
    def looks(seen: Evidence, now: Deployment) -> Iterator[Skip]:
        yield skip("no", "never")

    assert not windows_of([source_of_rule(own(looks, "scale-to-zero", "28d"))])


def test_advice_is_the_same_where_forks_read(
    low_batch: Path, forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    divided = advised(low_batch)
    assert len(forks) == 2
    monkeypatch.setattr(ahead, "can_fork", lambda: False)
    alone = advised(low_batch)
    assert len(forks) == 2 and alone.recommendations
    assert divided.recommendations == alone.recommendations


def test_where_a_fork_ends_without_a_result_its_part_is_read_here(
    low_batch: Path, forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    this_pid, read = os.getpid(), ahead._Fork._read

    def ends(self: Any, report: Any) -> Any:
        if os.getpid() != this_pid:
            os._exit(3)
        return read(self, report)

    monkeypatch.setattr(ahead._Fork, "_read", ends)
    divided = advised(low_batch)
    monkeypatch.setattr(ahead, "can_fork", lambda: False)
    assert len(forks) == 2 and divided.recommendations == advised(low_batch).recommendations


def test_no_fork_opens_a_database_that_this_process_may_have_open(low_batch: Path, forks: list[int]) -> None:
    kept = open_store(locate(str(low_batch)), keep=True)
    server = replace(kept, location=replace(kept.location, url=make_url("postgresql://db/fleet")))
    for store in (kept, server):
        with reading_ahead(store, 7 * DAY, {3600}, NOW, dated=True) as parts:
            assert not parts and not forks


def test_forks_end_with_the_run(low_batch: Path, forks: list[int]) -> None:
    store: Store = open_store(locate(str(low_batch)))
    with reading_ahead(store, 7 * DAY, {3600}, NOW, dated=True) as parts:
        assert set(parts) == {7 * DAY, 3600}
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
