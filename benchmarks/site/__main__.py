"""`python -m benchmarks.site --seed N`: one probe of one configuration, and predictions of others on this machine.

Real llama.cpp (xllamacpp) serves random weights of realistic shape. Bandwidth and rate of matrix products of this
machine's CPUs are measured by weight format with a small model that no configuration serves. One configuration of each
of two models is probed as `pertoken probe` does; then all others are predicted through `calibrate` and `forecast`, and
the predictions are printed with their hash before any of them is served. Configurations run in interleaved rounds of
closed loops; rounds in which others used over 5 % of the processor are repeated, as far as time allows.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.report import Row, report
from benchmarks.site.closed_loop import Measured, Prediction, measure, predict
from benchmarks.site.configurations import Configuration, draw
from benchmarks.site.hardware import RATES, accelerator, rates_by_dtype
from benchmarks.site.models import FORMATS, SHAPES, SMALL, Shape, write
from benchmarks.site.noise import MAX_STOLEN, Stolen, cpu_clock
from benchmarks.site.scoring import Outcome, score
from benchmarks.site.server import Server, ServerSettings
from pertoken.access import Access
from pertoken.agent.load_probe.client import Client, ProbeError
from pertoken.agent.load_probe.run import run
from pertoken.agent.load_probe.script import script
from pertoken.catalog.market import Market, load_market
from pertoken.evidence import OperatingPoint
from pertoken.forecast.host import calibrate
from pertoken.forecast.served import Abstained
from pertoken.forecast.serving import Calibration

ROUNDS = 3
MAX_REPEATS = 2
"""Times a configuration is served again in a round in which others used the processor."""
START_S = 3.0
"""Time that starting a server takes beside what it is measured for: an estimate, to share the budget out."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Configurations, durations and repeats of a run."""

    seed: int
    budget_s: float
    probe_s: float
    shapes: tuple[Shape, ...]
    rates_shape: Shape
    n: int
    threads: int
    cpu_time: bool
    """Whether times are of the server's CPU time, for a machine that others use."""


class Site:
    """One run."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan, self._folder = plan, folder
        self._started_s = time.monotonic()
        self._bases, self._others = draw(plan.shapes, plan.seed, plan.n, plan.threads)
        self.repeats = dict.fromkeys(
            ("rounds repeated", "rounds kept though others ran", "rounds left out as the time was over"), 0
        )

    def run(self) -> tuple[list[Outcome], dict[str, str]]:
        """Probe, predict, serve; return the outcomes and the hashes of the predictions."""
        for configuration in (*self._bases, *self._others):
            self._file(configuration)
        market = self._market()
        own = {base.shape: self._probe(base) for base in self._bases}
        first = self._predict(market, lambda of: self._base(of), own)
        hashes = {"from one probe of each model": announce(first)}
        by_format = {}
        for configuration in self._others:
            key = self._format(configuration)
            if key not in by_format and not any(configuration.same_format(base) for base in self._bases):
                by_format[key] = (key, self._probe(key))
        second = {}
        for configuration in self._others:
            if (known := by_format.get(self._format(configuration))) is not None:
                prediction = self._one(market, configuration, known[0], known[1])
                if prediction is not None:
                    second[configuration] = prediction
        hashes["after a probe of each format"] = announce(second)
        rounds = self._serve()
        outcomes = []
        for of, measured in rounds.items():
            same = any(of.same_format(base) for base in self._bases)
            if measured and of in first:
                outcomes.append(Outcome(of.label, "load" if same else "format", first[of], tuple(measured)))
            if measured and of in second:
                outcomes.append(Outcome(of.label, "format_probed", second[of], tuple(measured)))
        return outcomes, hashes

    def _base(self, of: Configuration) -> Configuration:
        return next(base for base in self._bases if base.shape == of.shape)

    def _format(self, of: Configuration) -> Configuration:
        """Return the configuration that is probed for the format of another."""
        return replace(self._base(of), weight_dtype=of.weight_dtype, kv_dtype=of.kv_dtype, threads=of.threads)

    def _file(self, of: Configuration) -> Path:
        return write(self._folder / f"{of.shape.name}-{of.weight_dtype}.gguf", of.shape, of.weight_dtype)

    def _market(self) -> Market:
        threads = sorted({configuration.threads for configuration in (*self._bases, *self._others)})
        rates = partial(rates_by_dtype, self._folder, list(FORMATS))
        devices = [accelerator(rates(n, self._plan.rates_shape, self._client, self._say), n) for n in threads]
        return load_market().with_measured(devices)

    def _client(self, server: Server) -> Client:
        clock = cpu_clock(server.pid) if self._plan.cpu_time else time.perf_counter
        return Client(server.url, "site", Access(server.url), self._plan.seed, clock=clock)

    def _server(self, of: Configuration) -> Server:
        file = str(self._file(of))
        return Server(ServerSettings(file, of.shape.name, of.slots, of.context, of.threads, of.kv_dtype))

    def _probe(self, of: Configuration) -> tuple[OperatingPoint, ...]:
        self._say(f"probing {of.label}")
        try:
            with self._server(of) as server:
                measured = run(self._client(server), None, script(of.slots, of.context), self._plan.probe_s)
        except ProbeError as error:
            _note(f"not probed: {error}")
            return ()
        for note in measured.notes:
            _note(note)
        return tuple(measured.points)

    def _predict(
        self,
        market: Market,
        origin: Callable[[Configuration], Configuration],
        points: Mapping[Shape, tuple[OperatingPoint, ...]],
    ) -> dict[Configuration, Prediction]:
        predictions = {
            configuration: self._one(market, configuration, origin(configuration), points[configuration.shape])
            for configuration in self._others
        }
        return {
            configuration: prediction for configuration, prediction in predictions.items() if prediction is not None
        }

    def _one(
        self, market: Market, of: Configuration, probed: Configuration, points: Sequence[OperatingPoint]
    ) -> Prediction | None:
        try:
            return predict(of, market, calibrated(probed, market, points))
        except (Abstained, ValueError) as reason:
            _note(f"not predicted: {of.label}: {reason}")
            return None

    def _serve(self) -> dict[Configuration, list[Measured]]:
        """Serve all configurations in interleaved rounds; the last rounds end early where the time is over."""
        rounds: dict[Configuration, list[Measured]] = {configuration: [] for configuration in self._others}
        left, overhead_s = ROUNDS * len(self._others), START_S
        for number in range(ROUNDS):
            for configuration in self._others:
                # A tenth is kept for rounds that have to be repeated.
                left_s = 0.9 * (self._plan.budget_s - self._elapsed_s())
                if number and left_s <= 0:
                    self.repeats["rounds left out as the time was over"] += 1
                    continue
                seconds, begun_s = max(1.0, left_s / left - overhead_s), self._elapsed_s()
                self._say(f"round {number + 1}: {configuration.label}")
                measured = self._measured(configuration, seconds, number)
                # What it took beside its time: the start, and requests that were under way at its end.
                overhead_s += 0.3 * (self._elapsed_s() - begun_s - seconds - overhead_s)
                left -= 1
                if measured is not None:
                    rounds[configuration].append(measured)
        return rounds

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def _say(self, text: str) -> None:
        _note(f"{self._elapsed_s():5.0f} s: {text}")

    def _measured(self, of: Configuration, seconds: float, number: int) -> Measured | None:
        for repeat in range(MAX_REPEATS + 1):
            with self._server(of) as server:
                client = self._client(server)
                client.calibrate()
                clock = cpu_clock(server.pid) if self._plan.cpu_time else time.perf_counter
                with Stolen((server.pid, _own_pid())) as stolen:
                    measured = measure(client, of, seconds, 100 * number + repeat, clock)
            late = self._elapsed_s() + seconds > self._plan.budget_s
            if stolen.share <= MAX_STOLEN or self._plan.cpu_time:
                return measured
            if repeat == MAX_REPEATS or late:
                self.repeats["rounds kept though others ran"] += 1
                return measured
            self.repeats["rounds repeated"] += 1
        return None


def calibrated(of: Configuration, market: Market, points: Sequence[OperatingPoint]) -> Calibration:
    """Return the calibration of a probed configuration. Raises ValueError where its batch of one was not measured."""
    alone = [point.token_s for point in points if point.running == 1 and point.token_s is not None]
    if not alone:
        raise ValueError(f"the probe of {of.label} measured no batch of one")
    load = replace(of.load(), running=1.0)
    return calibrate(of.deployment(), load, market, busy_tok_s=1 / alone[0], points=points)


def announce(predictions: Mapping[Configuration, Prediction]) -> str:
    """Print predictions with their hash; return it."""
    lines = [json.dumps({"configuration": of.label, **prediction.plain()}) for of, prediction in predictions.items()]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    for line in (*lines, f"sha256 of the {len(lines)} lines above: {digest}"):
        _note(line)
    return digest


def _own_pid() -> int:
    import os

    return os.getpid()


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the result as JSON; predictions and progress go to standard error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.site", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--minutes", type=float, default=18.0, help="time for everything [18]")
    parser.add_argument("--short", action="store_true", help="small models, four configurations, two minutes")
    parser.add_argument(
        "--cpu-time", action="store_true", help="one thread, timed by its CPU time: for a shared machine"
    )
    parser.add_argument("--models", metavar="FOLDER", help="keep the models there [a temporary folder]")
    asked = parser.parse_args(arguments)
    plan = Plan(
        seed=asked.seed,
        budget_s=min(60 * asked.minutes, 120.0) if asked.short else 60 * asked.minutes,
        probe_s=6.0 if asked.short else 25.0,
        shapes=SMALL if asked.short else SHAPES,
        rates_shape=SMALL[0] if asked.short else RATES,
        n=4 if asked.short else 16,
        threads=1 if asked.cpu_time else 2,
        cpu_time=asked.cpu_time,
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(asked.models or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        site = Site(plan, folder)
        outcomes, hashes = site.run()
    rows, targets = score(outcomes, site.repeats)
    rows += [
        Row("pertoken", f"sha256 of predictions {name}", value, "hash", "printed before any was served")
        for name, value in hashes.items()
    ]
    print(report("site", rows, targets))


if __name__ == "__main__":
    main()
