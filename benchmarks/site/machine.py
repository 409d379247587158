"""This machine: models on real llama.cpp, probed, and measured in interleaved rounds of closed loops."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.site.closed_loop import Measured, measure
from benchmarks.site.configurations import Configuration
from benchmarks.site.hardware import rates_by_dtype
from benchmarks.site.models import FORMATS, write
from benchmarks.site.noise import MAX_STOLEN, Stolen, cpu_clock
from benchmarks.site.plan import MIN_ROUND_S, ROUND_SEED, ROUNDS, START_S, Plan
from benchmarks.site.server import Server, ServerSettings
from pertoken.access import Access
from pertoken.agent.load_probe.client import Client, ProbeError
from pertoken.agent.load_probe.run import run
from pertoken.agent.load_probe.script import script
from pertoken.catalog.market import MeasuredRates
from pertoken.evidence import OperatingPoint

MAX_REPEATS = 2
"""Times a configuration is served again in a round in which others used the processor."""


class Machine:
    """Measurements of this machine, made as they are asked for."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan, self._folder = plan, folder
        self._started_s = time.monotonic()
        self.repeats = dict.fromkeys(
            ("rounds repeated", "rounds kept though others ran", "rounds left out as the time was over"), 0
        )

    def prepare(self, configurations: Sequence[Configuration]) -> None:
        """Write the models of configurations."""
        for of in configurations:
            self._file(of)

    def rates(self, threads: int) -> dict[str, MeasuredRates]:
        """Return rates of the CPUs by weight dtype. Raises ValueError where they cannot be measured."""
        return rates_by_dtype(self._folder, list(FORMATS), threads, self._plan.rates_shape, self._client, self._say)

    def probe(self, of: Configuration, seconds: float) -> tuple[OperatingPoint, ...]:
        """Return the points of a probe of one configuration; none where it failed."""
        self._say(f"probing {of.label}")
        try:
            with self._server(of) as server:
                measured = run(self._client(server), None, script(of.slots, of.context), seconds)
        except ProbeError as error:
            note(f"not probed: {error}")
            return ()
        for text in measured.notes:
            note(text)
        return tuple(measured.points)

    def round_s(self, configurations: int, probe_s: float) -> float:
        """Return the seconds of a round, if probes take `probe_s` before the first."""
        left_s = 0.9 * (self._plan.budget_s - self._elapsed_s() - probe_s)
        return max(MIN_ROUND_S, left_s / (ROUNDS * configurations) - START_S)

    def serve(self, configurations: Sequence[Configuration]) -> dict[Configuration, list[Measured]]:
        """Serve all configurations in interleaved rounds; the last rounds end early where the time is over."""
        rounds: dict[Configuration, list[Measured]] = {configuration: [] for configuration in configurations}
        left, overhead_s = ROUNDS * len(configurations), START_S
        for number in range(ROUNDS):
            for configuration in configurations:
                # A tenth is kept for rounds that have to be repeated.
                left_s = 0.9 * (self._plan.budget_s - self._elapsed_s())
                if number and left_s <= 0:
                    self.repeats["rounds left out as the time was over"] += 1
                    continue
                seconds, begun_s = max(MIN_ROUND_S, left_s / left - overhead_s), self._elapsed_s()
                self._say(f"round {number + 1}: {configuration.label}")
                measured = self._measured(configuration, seconds, number)
                # What it took beside its time: the start, and requests that were under way at its end.
                overhead_s += 0.3 * (self._elapsed_s() - begun_s - seconds - overhead_s)
                left -= 1
                if measured is not None:
                    rounds[configuration].append(measured)
        return rounds

    def _file(self, of: Configuration) -> Path:
        return write(self._folder / f"{of.shape.name}-{of.weight_dtype}.gguf", of.shape, of.weight_dtype)

    def _client(self, server: Server) -> Client:
        clock = cpu_clock(server.pid) if self._plan.cpu_time else time.perf_counter
        return Client(server.url, "site", Access(server.url), self._plan.seed, clock=clock)

    def _server(self, of: Configuration) -> Server:
        file = str(self._file(of))
        return Server(ServerSettings(file, of.shape.name, of.slots, of.context, of.threads, of.kv_dtype))

    def _measured(self, of: Configuration, seconds: float, number: int) -> Measured | None:
        for repeat in range(MAX_REPEATS + 1):
            with self._server(of) as server:
                client = self._client(server)
                client.calibrate()
                clock = cpu_clock(server.pid) if self._plan.cpu_time else time.perf_counter
                with Stolen((server.pid, os.getpid())) as stolen:
                    measured = measure(client, of, seconds, ROUND_SEED * number + repeat, clock)
            late = self._elapsed_s() + seconds > self._plan.budget_s
            if stolen.share <= MAX_STOLEN or self._plan.cpu_time:
                return measured
            if repeat == MAX_REPEATS or late:
                self.repeats["rounds kept though others ran"] += 1
                return measured
            self.repeats["rounds repeated"] += 1
        return None

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def _say(self, text: str) -> None:
        note(f"{self._elapsed_s():5.0f} s: {text}")


def note(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)
