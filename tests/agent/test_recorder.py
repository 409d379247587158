"""Ticks one after the other into a real folder, with devices and a clock by script."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from sqlalchemy import ColumnElement, func, select

from pertoken.agent import recorder
from pertoken.agent.clocks import Clocks
from pertoken.agent.recorder import Recorder
from pertoken.config import load
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.telemetry import MINUTE
from tests.agent.servers import answering, pages
from tests.agent.values import probe
from tests.agent.world import World
from tests.recorded import until
from tests.schedule import schedules
from tests.values import new_store

BOOTED_S = 100_000
"""Time since boot at which these histories begin."""


class Drivers:
    """Devices that always answer the same."""

    probes: tuple[str, ...] = ("nvidia", "amd", "gaudi")

    def start_read(self, processes: bool) -> None:
        pass

    def take(self, deadline_s: float) -> Any:
        return probe(), ()

    def resume(self) -> None:
        pass

    release = close = resume


class Clock:
    """Every clock of the recorder: time passes with `advance`, and `step_s` sets the wall clock alone."""

    def __init__(self, now_s: float) -> None:
        self.began_s = self.now_s = now_s
        self.step_s = 0.0
        self.cpu_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def process_time(self) -> float:
        return self.cpu_s

    def all(self) -> Clocks:
        return Clocks(
            wall_ms=lambda: round(1000 * (self.now_s + self.step_s)),
            since_boot_ms=lambda: round(1000 * (self.now_s - self.began_s + BOOTED_S)),
        )


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(1_800_000_000.0)
    monkeypatch.setattr(recorder, "time", clock)
    return clock


def started(folder: Path, clock: Clock, interval: str = "1s") -> Recorder:
    settings = load(None, {}, db=str(folder), agent_interval=interval, agent_discover=False, agent_cloud_metadata=False)
    agent = Recorder(locate(str(folder)), settings, Drivers(), clocks=clock.all())  # type: ignore[arg-type]
    agent.begin()
    return agent


@pytest.fixture
def agent(tmp_path: Path, clock: Clock) -> Iterator[Recorder]:
    new_store(tmp_path)
    agent = started(tmp_path, clock)
    yield agent
    agent.end(damaged=False)


def total(where: Path, column: ColumnElement[int]) -> int:
    with open_store(locate(str(where))).read() as connection:
        return connection.execute(select(func.sum(column))).scalar() or 0


def test_roll_ups_are_never_ten_seconds_behind_the_ticks(agent: Recorder, clock: Clock, tmp_path: Path) -> None:
    jobs = [job for job in agent.jobs(Event()) if job.name == "roll-ups"]
    job_clock = schedules.Clock()
    with schedules.scheduled(jobs, job_clock) as pending:
        for _ in range(65):
            clock.now_s += 1
            job_clock.now_s += 1
            agent.tick()
            pending.run()
            rolled_ms = total(tmp_path, t.host_rollup[MINUTE].c.observed_ms)
            assert total(tmp_path, t.host_sample.c.observed_ms) - rolled_ms < 10_000


@pytest.mark.parametrize("started_s", [0.0, 3.7, 8.5])
def test_roll_ups_follow_each_tick_whenever_the_agent_started(tmp_path: Path, clock: Clock, started_s: float) -> None:
    """Screens count what is in roll-ups against the newest tick: a tick that is not in them looks like a gap."""
    new_store(tmp_path)
    agent = started(tmp_path, clock, "10s")
    job_clock = schedules.Clock()
    job_clock.wall_ahead_s = clock.now_s - job_clock.now_s
    job_clock.now_s += started_s
    with schedules.scheduled([job for job in agent.jobs(Event()) if job.name == "roll-ups"], job_clock) as pending:
        for n in range(1, 15):
            clock.now_s = 1_800_000_000.0 + 10 * n
            agent.tick()
            job_clock.now_s = clock.now_s - job_clock.wall_ahead_s + recorder.AFTER_TICK_S
            pending.run()
            rolled_ms = total(tmp_path, t.host_rollup[MINUTE].c.observed_ms)
            assert total(tmp_path, t.host_sample.c.observed_ms) == rolled_ms
            job_clock.now_s += 9
            pending.run()
    agent.end(damaged=False)


def test_the_cost_of_the_start_is_no_cost_of_the_first_tick(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(self: Drivers, deadline_s: float) -> Any:
        clock.cpu_s += 0.5
        return probe(), ()

    monkeypatch.setattr(Drivers, "take", take)
    new_store(tmp_path)
    started(tmp_path, clock).end(damaged=False)
    with open_store(locate(str(tmp_path))).read() as connection:
        (first,) = connection.execute(select(t.agent_sample)).all()
    assert first.cpu_ms == 500 + probe().cpu_ms


def test_settings_that_are_reread_count_from_the_next_tick_on(agent: Recorder, clock: Clock, tmp_path: Path) -> None:
    clock.now_s += 1
    agent.tick()
    agent.apply(replace(agent.settings, agent_interval=5))
    clock.now_s += 5
    agent.tick()
    with open_store(locate(str(tmp_path))).read() as connection:
        assert connection.execute(select(t.host.c.interval_s)).scalar() == 5
        last = connection.execute(select(t.host_sample).order_by(t.host_sample.c.ts.desc())).first()
    assert last is not None
    assert last.duration_ms == 5000


def test_gateways_are_read_beside_the_ticks_and_what_they_count_is_rolled_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = [100]

    def answer(connection: Any, path: str) -> None:
        page = f'litellm_input_tokens_metric_total{{model="m",team="a"}} {prompt[0]}\n'.encode()
        pages({"/metrics/": page})(connection, path)

    world = World(tmp_path / "db", monkeypatch, interval_s=10)
    new_store(tmp_path / "db")
    with answering(answer) as url:
        world.begin(gateways=[{"url": url}])
        try:

            def stored(table: Any) -> list[Any]:
                world.run(60)
                return world.rows(table)

            until(lambda: any(row.series.startswith("tenant_") for row in stored(t.counter_state)), "the first page")
            prompt[0] = 142
            until(lambda: stored(t.engine_counter_rollup[60]), "what it grew by")
        finally:
            world.stop()
    (row,) = world.rows(t.engine_counter_rollup[3600])
    assert (row.metric, row.delta) == ('tenant_prompt_tokens{model="m",team="a"}', 42)
    assert [(row.kind, row.found_by) for row in world.ask(select(t.engine))] == [("litellm", "gateway")]


def test_energy_at_the_plug_is_its_power_over_the_time_that_was_watched(tmp_path: Path, clock: Clock) -> None:
    new_store(tmp_path)
    with answering(pages({"/outlet": b'{"PowerWatts": {"Reading": 900}}'})) as url:
        (tmp_path / "settings.toml").write_text(f'[agent]\nplug = ["redfish {url}/outlet"]\n')
        settings = load(
            tmp_path / "settings.toml", {}, db=str(tmp_path), agent_discover=False, agent_cloud_metadata=False
        )
        agent = Recorder(locate(str(tmp_path)), settings, Drivers(), clocks=clock.all())  # type: ignore[arg-type]
        agent.begin()
        (job,) = [job for job in agent.jobs(Event()) if job.name == "power at the plug"]
        job.work()
        until(lambda: agent._plug.newest is not None, "the outlet's power", 10)
        clock.now_s += 10
        agent.tick()
        agent.end(damaged=False)
    with open_store(locate(str(tmp_path))).read("telemetry") as connection:
        plug = t.host_sample.c.plug_mj, t.host_sample.c.plug_ms
        assert connection.execute(select(*plug).order_by(t.host_sample.c.ts)).all()[-1] == (9_000_000, 10_000)
        assert connection.scalar(select(t.host.c.plug_source)) == "redfish"
        assert connection.scalar(select(func.sum(t.host_rollup[MINUTE].c.plug_mj))) == 9_000_000
