"""A demo after its making: ticks written while the screens are open, and accepted advice on followed problems."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from pertoken.advisor.rules.discovery import find_rules, source_of
from pertoken.advisor.run import advise
from pertoken.config import Settings
from pertoken.costs.prices.stored import market_of
from pertoken.demo.fleet import SceneProblem
from pertoken.demo.making import HOUR_S, SET_BY, Demo, minutes_of
from pertoken.demo.rows import INTERVAL_S, BucketSteps, EngineRows, HostRows
from pertoken.errors import StoreError
from pertoken.migrations import upgrade
from pertoken.proof import recommendation
from pertoken.proof.detection import detect
from pertoken.proof.judging.judge import read_history
from pertoken.proof.recommendation import State, Variant
from pertoken.proof.stored import keep, store_acts
from pertoken.state.deployment import Deployment
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema.rows import Tick
from pertoken.store.write.writer import Writer

MINUTE = 60


class Live:
    """Thread that writes ticks of a demo from its end on."""

    def __init__(self, location: StoreLocation, demo: Demo, clock: Callable[[], float] = time.time) -> None:
        self._location, self._demo, self._now = location, demo, clock
        self._until = demo.interval.end_ts
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo", daemon=True)
        self._failed: str | None = None

    def start(self) -> None:
        """Write the ticks since the end of the demo, and start the thread that continues them: no host looks stale."""
        self._written(self.step)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after the tick that is being written."""
        self._stop.set()
        self._thread.join()

    def notice(self) -> str | None:
        """Return why the thread stopped writing; None while it writes."""
        return self._failed

    def _run(self) -> None:
        self._written(self._go_on)

    def _written(self, write: Callable[[Writer], None]) -> None:
        try:
            with Writer(self._location) as writer:
                write(writer)
        except StoreError as error:
            self._failed = f"The demo is no longer continued: {error}"

    def _go_on(self, writer: Writer) -> None:
        while not self._stop.is_set():
            self.step(writer)
            self._stop.wait(INTERVAL_S - self._now() % INTERVAL_S)

    def step(self, writer: Writer) -> None:
        """Write all ticks that are due."""
        until = int(self._now()) // INTERVAL_S * INTERVAL_S
        if until <= self._until:
            return
        for host in self._demo.hosts.values():
            writer.commit_all(list(self._due(host, until)))
        self._until = until
        writer.roll_up(hours=until % MINUTE == 0)

    def _due(self, host: HostRows, until: int) -> Iterator[Tick]:
        engines: list[EngineRows] = [engine for engine in self._demo.engines if engine.host is host]
        first = self._until // MINUTE * MINUTE
        steps = BucketSteps(np.arange(first, until, MINUTE), MINUTE)
        for tick in minutes_of(host, engines, self._demo, steps).ticks(engines):
            if self._until < tick.ts <= until:
                yield tick


ADVISOR = "advisor run of the demo"
ACCEPTED_S = HOUR_S // 2
"""Time from the proposal to its acceptance; the change follows as long after that."""


def follow(location: StoreLocation, demo: Demo, settings: Settings) -> int:
    """Store the advice on every followed problem as of an hour earlier than its change, accept it, and detect changes.

    Return the number of accepted recommendations: none for a problem that no rule solves. Raises StoreError.
    """
    changed = [(problem, _changed_ts(demo, problem)) for problem in demo.fleet.followed]
    if not changed:
        return 0
    upgrade(location, "advice")
    accepted = sum(_accept(location, settings, demo, problem, ts) for problem, ts in changed)
    # Telemetry of a demo ends later than the changes: changes of all its engines are detected at once.
    last_ts = max(engine.changed_ts for engine in demo.engines if engine.changed_ts is not None)
    market = market_of(open_store(location), settings.market_provider, settings.market_region)
    store = open_store(location)
    with store.read("advice") as connection:
        history = read_history(connection)
    detect(store, history, AdviceRepository(location), market, settings, last_ts + HOUR_S)
    return accepted


def _changed_ts(demo: Demo, problem: SceneProblem) -> int:
    """Return when the engines of a problem changed, epoch seconds."""
    rows = (row for row in demo.engines if row.drawn.runs.served_model == problem.service)
    return next(row.changed_ts for row in rows if row.changed_ts is not None)


def _accept(location: StoreLocation, settings: Settings, demo: Demo, problem: SceneProblem, changed_ts: int) -> bool:
    """Run the rules of a problem as of an hour before its change, and accept the variant that was made.

    Return whether there was one.
    """
    store, target = open_store(location), AdviceRepository(location)
    now_ts = changed_ts - 2 * ACCEPTED_S
    sources = [source_of(rule, settings) for rule in find_rules(settings) if rule.name in problem.scene.rules]
    market = market_of(store, settings.market_provider, settings.market_region)
    run = advise(store, sources, market, settings, int(settings.advisor_since), now_ts, dated=True)
    open_rows = [row for row in run.recommendations if row.state is State.OPEN and row.target == problem.target]
    runs = demo.fleet.of_service(problem.service)[0].runs
    made = next(((row, variant.key) for row in open_rows for variant in row.variants if _is_made(variant, runs)), None)
    if made is None:
        return False
    (row,) = keep(target, made[:1], problem.scene.rules, now_ts, ADVISOR)
    accepted = recommendation.accept(row, now_ts + ACCEPTED_S, "the demo follows this advice", made[1])
    store_acts(target, row, accepted, SET_BY)
    return True


def _is_made(variant: Variant, runs: Deployment) -> bool:
    edits = [edit for edit in variant.edits if edit.kind == "deployment"]
    return bool(edits) and all(getattr(runs, edit.field, None) == edit.after for edit in edits)
