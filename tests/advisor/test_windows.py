"""Windows of rules: each rule sees its own one, of which the series are read that its rules declare."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pertoken.advisor.run import Advice, advise
from pertoken.advisor.worker.child import Loaded, PluginSource
from pertoken.catalog.market import load_market
from pertoken.config import Settings
from pertoken.metrics import SERIES
from pertoken.proof.recommendation import Recommendation, State
from pertoken.rule import Deployment, Evidence, FleetEvidence, Rule, Skip, skip
from pertoken.store.connect.open import Store, open_store
from pertoken.store.schema.rows import DeploymentSample, DeviceSample, EngineCounterSample, EpochRow
from pertoken.store.write.writer import Writer
from tests.advisor.gathered import own, rule_source
from tests.values import new_store, tick
from tests.window.test_evidence import DEPLOYMENT, ENGINE, GPU

NOW = 1_790_000_400 // 3600 * 3600
DAY = 86_400
TOKENS = {20 * DAY: 6_000, 3 * DAY: 1_200, 600: 60}
"""Seconds before now -> tokens of the minute that ended then."""


def _file(store: Path, *, stopped_s: int = 0, counted: Mapping[str, int] | None = None) -> Store:
    """Return a database of one engine, observed for a minute at each of these times, with increments of counters."""
    where = new_store(store)
    epoch = EpochRow(9, 8, NOW - 30 * DAY, None, "1", "{}", (5,))
    known = {"engines": (ENGINE,), "deployments": (DEPLOYMENT,), "epochs": (epoch,), "devices": (GPU,)}
    with Writer(where) as writer:
        for ago_s, tokens in TOKENS.items():
            if ago_s >= stopped_s:
                ts = NOW - ago_s
                served = DeploymentSample(9, ts, 60_000, 60_000, True, 30_000, 0, generated_tokens=tokens)
                counts = (EngineCounterSample(9, name, ts, delta) for name, delta in (counted or {}).items())
                writer.commit(tick(ts, served, DeviceSample(5, ts, 60_000, 60_000, util_1e4=5_000), *counts, **known))
        writer.roll_up()
    return open_store(where)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return _file(tmp_path_factory.mktemp("windows"))


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A database with counters of a prefix cache."""
    return _file(tmp_path_factory.mktemp("counting"), counted={"prefix_hits": 30, "prefix_queries": 40})


def _looks(rule_id: str, window: str | None = None) -> Rule:
    def looks(seen: Evidence, now: Deployment) -> Iterator[Skip]:
        hours = sum(rate is not None for rate in seen.hours.generated_tok_s)
        yield skip("seen", f"{seen.generated_tok_s.max:g} tokens/s, {seen.generated_tok_s.n} minutes, {hours} hours")

    return own(looks, rule_id, window)


def _run(store: Store, *rules: Rule, window_s: int = 7 * DAY) -> tuple[Advice, list[str]]:
    """Advice of these rules, and the phases it reported."""
    phases: dict[str, None] = {}

    def progress(phase: str, share: float) -> None:
        phases.setdefault(phase)

    sources = [replace(rule_source(rule), group="here") for rule in rules]
    return advise(store, sources, load_market(), Settings(), window_s, NOW, progress), list(phases)


def _row(advice: Advice, rule_id: str) -> Recommendation:
    (row,) = (recommendation for recommendation in advice.recommendations if recommendation.rule_id == rule_id)
    return row


def test_a_rule_sees_its_own_window_and_its_row_names_it(stored: Store) -> None:
    rules = _looks("of-the-run"), _looks("of-a-month", "28d"), _looks("of-an-hour", "1h"), _looks("same", "7d")
    advice, _ = _run(stored, *rules)
    windows = {
        recommendation.rule_id: (recommendation.window_s, recommendation.reason)
        for recommendation in advice.recommendations
    }
    assert windows == {
        "of-the-run": (7 * DAY, "20 tokens/s, 2 minutes, 2 hours"),
        "of-a-month": (28 * DAY, "100 tokens/s, 3 minutes, 3 hours"),
        "of-an-hour": (3600, "1 tokens/s, 1 minutes, 1 hours"),
        "same": (7 * DAY, "20 tokens/s, 2 minutes, 2 hours"),
    }
    assert {
        recommendation.evidence[0].n for recommendation in advice.recommendations if recommendation.window_s == 28 * DAY
    } == {3}
    assert [rule.name for rule in advice.run.rules] == ["of-the-run", "of-a-month", "of-an-hour", "same"]


def test_everything_is_read_in_one_transaction_and_another_window_only_where_a_rule_has_it(stored: Store) -> None:
    _, phases = _run(stored, _looks("of-the-run"), _looks("same", "7d"))
    assert not [phase for phase in phases if "the last" in phase]
    reads: list[tuple[Any, ...]] = []

    class Counted(Store):
        def read(self, *arguments: Any) -> Any:
            reads.append(arguments or ("telemetry",))
            return super().read(*arguments)

    counted = Counted(**{name: getattr(stored, name) for name in stored.__dataclass_fields__})
    _, phases = _run(counted, _looks("a", "28d"), _looks("b", "28d"), _looks("c"), _looks("d", "1h"))
    assert reads.count(("telemetry",)) == 1
    windows = {phase.partition(":")[0] for phase in phases if "the last" in phase}
    assert windows == {"reading the last 28d", "reading the last 1h"}


def _declares(rule_id: str, *series: str) -> Rule:
    """Return a rule over a month that reads a series, and declares some."""

    def reads_tokens(seen: Evidence, now: Deployment) -> Iterator[Skip]:
        yield skip("seen", f"{seen.generated_tok_s.n} minutes, {seen.has('device_util')}")

    return replace(own(reads_tokens, rule_id, "28d"), series=series)


def test_of_a_window_only_what_its_rules_declare_is_read(stored: Store) -> None:
    advice, phases = _run(stored, _declares("declares", "generated_tok_s"), _looks("of-the-run"))
    assert _row(advice, "declares").reason == "3 minutes, False"
    month = {phase for phase in phases if "the last 28d" in phase}
    assert month == {
        "reading the last 28d: the buckets of each device",
        "reading the last 28d: the buckets of each deployment",
        "reading the last 28d: the buckets of each share",
    }
    advice, phases = _run(stored, _declares("declares", "generated_tok_s"), _declares("more", "device_util"))
    assert _row(advice, "declares").reason == "3 minutes, True", "what another rule of the window declares was read"
    advice, phases = _run(stored, _declares("declares", "generated_tok_s"), _looks("reads-any", "28d"))
    assert "reading the last 28d: histograms" in phases
    assert _row(advice, "reads-any").reason == "100 tokens/s, 3 minutes, 3 hours"


def test_a_series_that_a_rule_does_not_declare_blocks_it_with_what_to_do(stored: Store) -> None:
    advice, _ = _run(stored, _declares("forgets", "device_util"))
    row = _row(advice, "forgets")
    assert (row.state, row.reason) == (State.BLOCKED, "output tokens/s was not measured")
    assert row.remedy == (
        'the rule reads it and does not declare it: add "generated_tok_s" to `series` of its decorator'
    )


@pytest.mark.parametrize("name", SERIES)
def test_a_declared_series_is_what_it_is_where_all_are_read(counting: Store, name: str) -> None:
    def looks(seen: Evidence, now: Deployment) -> Iterator[Skip]:
        series = getattr(seen, name)
        yield skip("seen", f"{series.mean} {series.p95} {series.n} {series.origin}")

    def row(declared: tuple[str, ...] | None) -> tuple[State, str | None]:
        advice, _ = _run(counting, replace(own(looks, "looks", "28d"), series=declared))
        return _row(advice, "looks").state, _row(advice, "looks").reason

    assert row((name,)) == row(None)


def test_counters_of_a_window_are_read_only_where_one_that_a_rule_declares_was_counted(counting: Store) -> None:
    def looks_at(name: str) -> Rule:
        def looks(seen: Evidence, now: Deployment) -> Iterator[Skip]:
            yield skip("seen", f"{getattr(seen, name).mean:g}")

        return replace(own(looks, name.replace("_", "-"), "28d"), series=(name,))

    advice, phases = _run(counting, looks_at("load_s"))
    assert "reading the last 28d: counters" not in phases
    assert _row(advice, "load-s").state is State.BLOCKED
    advice, phases = _run(counting, looks_at("prefix_hit_rate"))
    assert "reading the last 28d: counters" in phases
    assert _row(advice, "prefix-hit-rate").reason == "0.75"


def test_a_rule_over_the_fleet_sees_every_part_in_its_window(stored: Store) -> None:
    def fleet_wide(seen: FleetEvidence, fleet: Any) -> Iterator[Skip]:
        (service,), (device,), (host,) = fleet.services, fleet.devices, fleet.hosts
        counts = [seen.of(subject).device_util.n for subject in (service, device, host)]
        yield skip("seen", f"{counts}")

    advice, _ = _run(stored, own(fleet_wide, "wide", "28d"))
    assert _row(advice, "wide").reason == "[3, 3, 3]"


def test_a_series_without_rows_in_a_short_window_is_not_measured(tmp_path: Path) -> None:
    advice, _ = _run(_file(tmp_path, stopped_s=DAY), _looks("of-the-run"), _looks("of-an-hour", "1h"))
    assert _row(advice, "of-the-run").state is State.REFUSED
    blocked = _row(advice, "of-an-hour")
    assert (blocked.state, blocked.window_s) == (State.BLOCKED, 3600)
    assert "nothing of it was recorded in this window" in str(blocked.remedy)


def test_a_rule_that_is_another_one_when_its_file_is_loaded_again_fails_alone(stored: Store, tmp_path: Path) -> None:
    def changing() -> tuple[Loaded, ...]:
        # A worker's changes end with it: a file is what two of them share.
        seen = tmp_path / "seen"
        return (Loaded("changes", (_looks("changes", "28d"),) if not seen.exists() else ()),)

    def noted(phase: str, share: float) -> None:
        if phase.startswith("reading the last 28d"):
            (tmp_path / "seen").touch()

    sources = [PluginSource("changes", "here", "theirs", changing), rule_source(_looks("of-a-month", "28d"))]
    advice = advise(stored, sources, load_market(), Settings(), 7 * DAY, NOW, noted)
    assert _row(advice, "changes").state is State.FAILED
    assert "the rule differs when its file is loaded again" in str(_row(advice, "changes").reason)
    assert _row(advice, "of-a-month").state is State.REFUSED
