"""`python -m benchmarks.site --seed N`: one probe of one configuration, and predictions of others on this machine.

Real llama.cpp (xllamacpp), or with `--engine vllm` a vLLM built for CPUs that `python -m tests.vllm` installed, serves
random weights of realistic shape. Bandwidth and rates of matrix products of this machine's CPUs are measured by weight
format with small models that no configuration serves, in turns. One configuration of each of two models is probed as
`pertoken probe` does, in parts some minutes apart; then all others are predicted through `calibrate` and `forecast`,
and the predictions are printed with their hash before any of them is served. Configurations run in interleaved rounds
of closed loops; rounds in which others used over 5 % of the processor are repeated, as far as time allows.

The probed configurations are predicted and served beside the others as controls, and fixed loops are timed before each
probe and configuration: they distinguish a machine that became slower or faster from a fault of the forecast. They
correct no prediction.

All are predicted from the rates of the CPUs alone too, as a model is that does not run on them yet.
"""

import argparse
import hashlib
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.calibrate import calibrate
from benchmarks.report import Row, report
from benchmarks.site.closed_loop import Forecast, Prediction, forecast_of
from benchmarks.site.configurations import Configuration, control, draw
from benchmarks.site.engines.llama_cpp import LLAMA_CPP
from benchmarks.site.engines.vllm import VLLM
from benchmarks.site.hardware import accelerator
from benchmarks.site.machine import Machine, note
from benchmarks.site.models import SMALL, Shape
from benchmarks.site.plan import ROUNDS, Plan, requests_each
from benchmarks.site.record import Measurements, OnFile, Recording
from benchmarks.site.scoring import CONTROL, RATES_ALONE, Outcome, score
from benchmarks.site.speed import speed_rows
from pertoken.catalog.market import Market, load_market
from pertoken.evidence import OperatingPoint
from pertoken.forecast.host import Calibration
from pertoken.forecast.served import Abstained

ENGINES = {engine.name: engine for engine in (LLAMA_CPP, VLLM)}


class Site:
    """One run."""

    def __init__(self, plan: Plan, machine: Measurements) -> None:
        self._plan, self._machine = plan, machine
        self._bases, drawn = draw(plan.shapes, plan.seed, plan.n, plan.threads, plan.engine)
        self._controls = [control(base) for base in self._bases]
        self._others = [*self._controls, *drawn]

    def run(self) -> tuple[list[Outcome], dict[str, str]]:
        """Probe, predict, serve; return the outcomes and the hashes of the predictions."""
        self._machine.prepare([*self._bases, *self._others])
        market, own = self._measured()
        formats = dict.fromkeys(
            self._format(of) for of in self._others if not any(of.same_format(base) for base in self._bases)
        )
        forecasts = self._forecasts(market, lambda of: self._base(of), own)
        requests = self._requests(forecasts, len(formats) * (self._plan.format_probe_s + self._plan.engine.start_s))
        first = {of: forecast.predict(of, requests[of]) for of, forecast in forecasts.items()}
        hashes = {"from one probe of each model": announce(first)}
        unprobed = {of: forecast_of(of, market, Calibration()).predict(of, requests[of]) for of in first}
        hashes["from the rates of the CPUs alone"] = announce(unprobed)
        by_format = {key: self._machine.probe(key, self._plan.format_probe_s) for key in formats}
        second = {}
        for configuration in self._others:
            if (points := by_format.get(self._format(configuration))) is not None:
                forecast = self._one(market, configuration, self._format(configuration), points)
                if forecast is not None:
                    second[configuration] = forecast.predict(configuration, requests[configuration])
        hashes["after a probe of each format"] = announce(second)
        outcomes = []
        for of, measured in self._machine.serve(requests).items():
            if measured and of in first:
                outcomes.append(Outcome(of.label, self._kind(of), first[of], tuple(measured)))
                outcomes.append(Outcome(of.label, RATES_ALONE, unprobed[of], tuple(measured)))
            if measured and of in second:
                outcomes.append(Outcome(of.label, "format_probed", second[of], tuple(measured)))
        return outcomes, hashes

    def _base(self, of: Configuration) -> Configuration:
        return next(base for base in self._bases if base.shape == of.shape)

    def _format(self, of: Configuration) -> Configuration:
        """Return the configuration that is probed for the format of another."""
        return replace(self._base(of), weight_dtype=of.weight_dtype, kv_dtype=of.kv_dtype, threads=of.threads)

    def _kind(self, of: Configuration) -> str:
        if of in self._controls:
            return CONTROL
        return "load" if any(of.same_format(base) for base in self._bases) else "format"

    def _measured(self) -> tuple[Market, dict[Shape, tuple[OperatingPoint, ...]]]:
        """Return the CPUs with their rates, and the points of the probes.

        Models are probed before and after the rates of each number of threads, some minutes apart.
        """
        devices = []
        points = {base.shape: self._machine.probe(base, self._plan.probe_s) for base in self._bases}
        for threads in sorted({of.threads for of in (*self._bases, *self._others)}):
            devices.append(accelerator(self._plan.engine, self._machine.rates(threads), threads))
            for base in self._bases:
                points[base.shape] += self._machine.probe(base, self._plan.probe_s)
        return load_market().with_measured(devices), points

    def _requests(self, forecasts: Mapping[Configuration, Forecast], probes_s: float) -> dict[Configuration, int]:
        """Return the requests of each client in a round. Those without a forecast have one."""
        if isinstance(self._machine, OnFile):
            return {of: self._machine.requests(of) for of in self._others}
        cycles_s = [forecasts[of].cycle_s(of) if of in forecasts else 0.0 for of in self._others]
        usual_s = max(cycles_s)
        engine = self._plan.engine
        starts_s = engine.start_s * len(cycles_s) * (1 if engine.stays else ROUNDS)
        counts = requests_each([cycle_s or usual_s for cycle_s in cycles_s], self._machine.left_s(probes_s) - starts_s)
        return dict(zip(self._others, counts, strict=True))

    def _forecasts(
        self,
        market: Market,
        origin: Callable[[Configuration], Configuration],
        points: Mapping[Shape, tuple[OperatingPoint, ...]],
    ) -> dict[Configuration, Forecast]:
        forecasts = {of: self._one(market, of, origin(of), points[of.shape]) for of in self._others}
        return {of: forecast for of, forecast in forecasts.items() if forecast is not None}

    def _one(
        self, market: Market, of: Configuration, probed: Configuration, points: Sequence[OperatingPoint]
    ) -> Forecast | None:
        try:
            return forecast_of(of, market, calibrated(probed, market, points))
        except (Abstained, ValueError) as reason:
            note(f"not predicted: {of.label}: {reason}")
            return None


def calibrated(of: Configuration, market: Market, points: Sequence[OperatingPoint]) -> Calibration:
    """Return the calibration of a probed configuration. Raises ValueError where its batch of one was not measured."""
    alone = [point.token_s for point in points if point.running == 1 and point.token_s is not None]
    if not alone:
        raise ValueError(f"the probe of {of.label} measured no batch of one")
    # Only decode is timed in a batch of a probe, as if a cache had the prompts.
    load = replace(of.load(), running=1.0, cached_share=1.0)
    return calibrate(of.deployment(), load, market, busy_tok_s=1 / alone[0], points=points)


def announce(predictions: Mapping[Configuration, Prediction]) -> str:
    """Print predictions with their hash; return it."""
    lines = [json.dumps({"configuration": of.label, **prediction.plain()}) for of, prediction in predictions.items()]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    for line in (*lines, f"sha256 of the {len(lines)} lines above: {digest}"):
        note(line)
    return digest


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the result as JSON; predictions and progress go to standard error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.site", description=__doc__)
    minutes = ", ".join(f"{engine.minutes:g} with {name}" for name, engine in ENGINES.items())
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--engine", choices=ENGINES, default=LLAMA_CPP.name, help="what serves [%(default)s]")
    parser.add_argument("--minutes", type=float, help=f"time for everything [{minutes}]")
    parser.add_argument("--short", action="store_true", help="small models, four configurations, two minutes")
    parser.add_argument(
        "--cpu-time", action="store_true", help="one thread, timed by its CPU time: for a shared machine"
    )
    parser.add_argument("--models", metavar="FOLDER", help="keep the models there [a temporary folder]")
    parser.add_argument("--record", metavar="FILE", help="write there what is measured")
    parser.add_argument("--recorded", metavar="FILE", help="measure nothing: forecast a run on file again")
    asked = parser.parse_args(arguments)
    engine = ENGINES[asked.engine]
    if engine is not LLAMA_CPP and (asked.short or asked.cpu_time):
        parser.error("--short and --cpu-time are for llama.cpp: another engine starts slowly, with several processes")
    budget_s = 60 * (engine.minutes if asked.minutes is None else asked.minutes)
    plan = Plan(
        seed=asked.seed,
        budget_s=min(budget_s, 120.0) if asked.short else budget_s,
        probe_s=6.0 if asked.short else 30.0,
        format_probe_s=6.0 if asked.short else 25.0,
        engine=engine,
        shapes=SMALL if asked.short else engine.shapes,
        rates_shapes=SMALL if asked.short else engine.rates_shapes,
        n=4 if asked.short else engine.n,
        threads=1 if asked.cpu_time else 2,
        cpu_time=asked.cpu_time,
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(asked.models or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        machine: Measurements = OnFile(Path(asked.recorded)) if asked.recorded else Machine(plan, folder)
        site = Site(plan, Recording(machine, Path(asked.record)) if asked.record else machine)
        outcomes, hashes = site.run()
    rows, targets = score(outcomes, machine.repeats)
    rows += [
        Row("pertoken", f"sha256 of predictions {name}", value, "hash", "printed before any was served")
        for name, value in hashes.items()
    ]
    rows += speed_rows(machine.speeds)
    print(report("site" if engine is LLAMA_CPP else f"site_{engine.name}", rows, targets))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers end, too
    main()
