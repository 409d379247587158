"""This machine: models on a real engine, probed, and measured in interleaved rounds of closed loops."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from itertools import count
from pathlib import Path

from benchmarks.site.closed_loop import Measured, lengths, measure
from benchmarks.site.configurations import Configuration
from benchmarks.site.engines.engine import SETTLE_S
from benchmarks.site.engines.server import ALIAS, Server, ServerSettings
from benchmarks.site.hardware import rates_by_dtype
from benchmarks.site.models import Shape
from benchmarks.site.noise import MAX_STOLEN, Stolen, cpu_clock
from benchmarks.site.plan import ROUNDS, SPARE, Plan
from benchmarks.site.play import Lengths
from benchmarks.site.speed import Speed, speed
from pertoken.access import Access
from pertoken.agent.load_probe import Client, ProbeError, run, script
from pertoken.catalog.market import MeasuredRates
from pertoken.evidence import OperatingPoint

MAX_REPEATS = 2
"""Times a configuration is served again in a round in which others used the processor."""


class Machine:
    """Measurements of this machine, made as they are asked for."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan, self._folder = plan, folder
        self._started_s = time.monotonic()
        self._words_per_token: dict[Shape, float] = {}
        self._clients = count()
        self._staying: dict[Configuration, Server] = {}
        """Servers that stay up between rounds."""
        self.speeds: dict[str, list[Speed]] = {}
        self.repeats = dict.fromkeys(
            ("rounds repeated", "rounds kept though others ran", "rounds left out as the time was over"), 0
        )

    def _note_speed(self, phase: str) -> None:
        self.speeds.setdefault(phase, []).append(speed())

    def prepare(self, configurations: Sequence[Configuration]) -> None:
        """Write the models of configurations."""
        for of in configurations:
            self._file(of)

    def rates(self, threads: int) -> dict[str, MeasuredRates]:
        """Return rates of the CPUs by weight dtype. Raises ValueError where they cannot be measured."""
        self._note_speed("rates")
        shapes = self._plan.rates_shapes
        return rates_by_dtype(self._folder, self._plan.engine, threads, shapes, self._client, self._say)

    def probe(self, of: Configuration, seconds: float) -> tuple[OperatingPoint, ...]:
        """Return the points of a probe of one configuration; none where it failed."""
        self._note_speed("probes")
        self._say(f"probing {of.label}")
        try:
            with self._server(of) as server:
                clock = self._clock(server)
                measured = run(self._client(server), None, script(of.slots, of.context), seconds, clock=clock)
        except ProbeError as error:
            note(f"not probed: {error}")
            return ()
        for text in measured.notes:
            note(text)
        return tuple(measured.points)

    def left_s(self, probes_s: float) -> float:
        """Return the time left for rounds, if probes take so long before the first."""
        return self._plan.budget_s - self._elapsed_s() - probes_s

    def serve(self, requests: Mapping[Configuration, int]) -> dict[Configuration, list[Measured]]:
        """Serve configurations in interleaved rounds; `requests` is the number of each client.

        The last rounds are left out where the time is over.
        """
        rounds: dict[Configuration, list[Measured]] = {configuration: [] for configuration in requests}
        with ExitStack() as stack:
            for number in range(ROUNDS):
                for configuration, n in requests.items():
                    if number and self._elapsed_s() > self._plan.budget_s:
                        self.repeats["rounds left out as the time was over"] += 1
                        continue
                    if self._staying:
                        time.sleep(SETTLE_S)
                    self._note_speed(f"round {number + 1}")
                    self._say(f"round {number + 1}: {configuration.label}")
                    if configuration.engine.stays and not number:
                        self._staying[configuration] = stack.enter_context(self._server(configuration))
                    rounds[configuration].append(self._measured(configuration, lengths(configuration, number, n)))
        self._staying.clear()
        return rounds

    def _file(self, of: Configuration) -> Path:
        return of.engine.write(self._folder, of.shape, of.weight_dtype)

    def _clock(self, server: Server) -> Callable[[], float]:
        return cpu_clock(server.pid) if self._plan.cpu_time else time.perf_counter

    def _client(self, server: Server) -> Client:
        # Each client has prompts of its own: a server that stays up would know those of an earlier round.
        seed = (self._plan.seed << 20) + next(self._clients)
        return Client(server.url, ALIAS, Access(server.url), seed, clock=self._clock(server))

    def _server(self, of: Configuration) -> Server:
        file = str(self._file(of))
        return Server(of.engine.command(ServerSettings(file, of.slots, of.context, of.threads, of.kv_dtype)))

    def _running(self, of: Configuration) -> AbstractContextManager[Server]:
        """Return the server of a configuration, which is up while it is entered."""
        server = self._staying.get(of)
        return self._server(of) if server is None else nullcontext(server)

    def _measured(self, of: Configuration, asked: Sequence[Sequence[Lengths]]) -> Measured:
        for repeat in count():
            with self._running(of) as server:
                client = self._client(server)
                self._warm_up(client, of)
                with Stolen((*server.pids, os.getpid())) as stolen:
                    measured = measure(client, asked)
            if stolen.share <= MAX_STOLEN or self._plan.cpu_time:
                break
            if repeat == MAX_REPEATS or self._elapsed_s() > (1 - SPARE) * self._plan.budget_s:
                self.repeats["rounds kept though others ran"] += 1
                break
            self.repeats["rounds repeated"] += 1
        return measured

    def _warm_up(self, client: Client, of: Configuration) -> None:
        """Read all weights once; a model's words per token are learned at its first server, which takes longer."""
        known = self._words_per_token.get(of.shape)
        if known is None:
            client.calibrate()
            self._words_per_token[of.shape] = client.words_per_token
        else:
            client.words_per_token = known
            client.complete(client.prompt(1), 2)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def _say(self, text: str) -> None:
        note(f"{self._elapsed_s():5.0f} s: {text}")


def note(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)
