"""A host without hardware: clocks that can be set, an engine, and agents that record both into a real folder."""

import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from pertoken.agent import recorder
from pertoken.agent.clocks import Clocks
from pertoken.agent.readings import DeviceReading, Endpoint, EngineReading, ProbeReading
from pertoken.agent.recorder import Recorder
from pertoken.config import load
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.store.schema import telemetry as t
from tests.agent.values import HOST, gpu

BEGIN_S = 1_790_000_000
"""Unix time at which a world begins, a multiple of 10 s: 20 s into a minute."""
WORDS = ("prompt_tokens", "cached_tokens", "generated_tokens")


@dataclass
class Engine:
    """One process of an inference server; it has all its counters from its start."""

    start_ms: int
    counts: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(WORDS, 0)))


class World:
    """Time passes with `run`; `step_s` sets the wall clock alone."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, interval_s: int = 1, begin_s: float = BEGIN_S) -> None:
        self.folder, self.interval_s = folder, interval_s
        self.true_ms, self.booted_ms = round(1000 * begin_s), round(1000 * begin_s) - 10**8
        self.step_s, self.boot = 0.0, 1
        self.engine: Engine | None = None
        self.devices: tuple[DeviceReading, ...] = (gpu(0, 100),)
        self.agent: Recorder | None = None
        self._periods: dict[str, int] = {}
        """By job, the last of its periods in which it ran."""
        self.patched(patch)

    def patched(self, patch: pytest.MonkeyPatch) -> None:
        """Have agents of this process read this world's engine."""
        patch.setattr(recorder, "_watch", lambda settings, known=(): Watched(self))

    # -- clocks

    @property
    def since_boot_ms(self) -> int:
        return self.true_ms - self.booted_ms

    @property
    def wall_ms(self) -> int:
        return self.true_ms + round(1000 * self.step_s)

    def reboot(self) -> None:
        """Boot the host again; nothing lives on."""
        self.abandon()
        self.engine = None
        self.boot += 1
        self.booted_ms = self.true_ms

    # -- the agent

    def start(self, **settings: Any) -> Recorder:
        options = {"agent_discover": False, "agent_cloud_metadata": False, **settings}
        loaded = load(None, {}, db=str(self.folder), agent_interval=f"{self.interval_s}s", **options)
        clocks = Clocks(lambda: self.wall_ms, lambda: self.since_boot_ms)
        self.agent = Recorder(locate(str(self.folder)), loaded, _Drivers(self), clocks=clocks)  # type: ignore[arg-type]
        return self.agent

    def begin(self, **settings: Any) -> None:
        self.start(**settings).begin()

    def stop(self) -> None:
        if self.agent is not None:
            self.agent.end(damaged=False)
            self.agent = None

    def abandon(self) -> None:
        """End the agent as SIGKILL does: nothing more is stored."""
        if self.agent is not None:
            self.agent._writer.abandon()
            self.agent = None

    def run(self, seconds: float, work: int = 0) -> None:
        """Let time pass; a running agent ticks at the multiples of its interval, as the daemon has it."""
        until_ms = self.true_ms + round(1000 * seconds)
        while self.true_ms < until_ms:
            left_ms = until_ms - self.true_ms
            if self.agent is not None:
                now_ms = round(1000 * self.agent.now_s())
                left_ms = min(left_ms, 1000 * self.interval_s - now_ms % (1000 * self.interval_s))
            self.true_ms += left_ms
            if self.engine is not None:
                self.engine.counts.update(dict.fromkeys(WORDS, work))
            if self.agent is not None and round(1000 * self.agent.now_s()) % (1000 * self.interval_s) == 0:
                self.agent.tick()
                self._do_jobs(self.agent)

    def _do_jobs(self, agent: Recorder) -> None:
        """Do what the scheduler hands over between two ticks, after the first tick of each of its periods."""
        for job in agent.jobs(threading.Event()):
            period = self.true_ms // round(1000 * job.every_s)
            if not job.beside and self._periods.get(job.name) != period:
                self._periods[job.name] = period
                job.work()

    # -- the engine

    def serve(self) -> None:
        """Start a process of the engine, in place of the one before."""
        self.engine = Engine(self.since_boot_ms)

    def probe(self) -> ProbeReading:
        host = replace(HOST, boot_id=f"boot-{self.boot}")
        return ProbeReading(host, self.devices, driver_calls=9, cpu_ms=1, rss_bytes=1000)

    def endpoint(self) -> Endpoint:
        assert self.engine is not None
        return Endpoint("vllm", "http://127.0.0.1:8000", "process", 8000, 100, self.engine.start_ms, (100,))

    # -- what was stored

    def ask(self, query: Any) -> list[Any]:
        with open_store(locate(str(self.folder))).read() as connection:
            return list(connection.execute(query).all())

    def rows(self, table: Any) -> list[Any]:
        return self.ask(select(table).order_by(table.c.ts))

    def events(self, kind: str) -> list[str]:
        return [row.message for row in self.ask(select(t.event).where(t.event.c.kind == kind).order_by(t.event.c.ts))]


class Watched:
    """Stands in for the watch: the one engine of a world."""

    unavailable = ()

    def __init__(self, world: World) -> None:
        self._world = world

    def start_look(self) -> None:
        pass

    close = start_look

    def wait(self, seconds: float) -> None:
        pass

    wait_read = wait

    def start_read(self, *, latencies: bool = True, patience_s: float = 0.0) -> None:
        pass

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return () if self._world.engine is None else (self._world.endpoint(),)

    def take(self, *, wait_s: float = 0.0) -> tuple[EngineReading, ...]:
        engine = self._world.engine
        if engine is None:
            return ()
        reading = EngineReading(
            self._world.endpoint(),
            served_model="tiny",
            version="1",
            counters=dict(engine.counts),
            gauges={"running": 1.0, "waiting": 0.0},
        )
        return (reading,)


class _Drivers:
    probes: tuple[str, ...] = ("nvidia", "amd", "gaudi")

    def __init__(self, world: World) -> None:
        self._world = world

    def start_read(self, processes: bool) -> None:
        pass

    def take(self, deadline_s: float) -> Any:
        return self._world.probe(), ()

    def resume(self) -> None:
        pass

    release = close = resume
