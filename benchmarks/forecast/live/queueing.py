"""The queueing model beside a real engine: `python -m benchmarks.queueing`.

A real llama.cpp server (xllamacpp, 33 MB of random weights, 8 slots, one thread) is first asked in a closed loop:
prompts beside 7 streams show what a prefill adds to a step, 1 to 8 clients the step of each batch, prompts sent alone
the time of a request beside its steps (HTTP, reading the prompt). Then requests come at random (Poisson) at shares of
what the full server finishes, with lengths of the shape of a production trace; just before and after, a short closed
loop measures the speed of the server at that time. The model gets the steps and prefills at that pace, and predicts
the TTFT and time between tokens that clients should see. The same engine simulated step by step stands beside it: the
difference of the two is the model's error, the rest is the calibration's.

The clients' clock stands still while other programs have the server's core, so a shared machine can measure it; what
remains is reported: a calibration in each round, their spread, and how far measured quantiles vary over blocks.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.forecast.live.llama_clients import Clients, Prompt, Response, poisson_gaps, request, requests
from benchmarks.report import Row, Target, report
from pertoken.arrivals import Array, Arrivals, Lengths, typical
from pertoken.forecast.queueing import ServiceTimes, under_load
from tests.forecast.engine_simulation import Request, simulate
from tests.llama import LlamaServer, Shape, write_model

SHAPE = Shape(width=320, heads=5, layers=6, hidden=1024)
SLOTS = 8
PROMPT, GENERATED = 100.0, 64.0
"""Mean tokens of a request."""
LONGEST = 500
LOADS = (0.3, 0.5, 0.7, 0.85)
SHARES = (0.5, 0.95)
PROMPTS = (4, 50, 100, 200, 400)
"""Tokens of the prompts whose prefill is measured; in between it is taken to be straight."""
CLOSED = 48
"""Requests of a closed loop whose step is measured: a multiple of the lengths, so that each comes equally often."""
PACED = 64
"""Requests of a look at how fast the full server is."""
STREAMED = 144
"""Tokens of a stream beside which prompts are computed."""
SETTLE = 0.1
"""Share of a run's requests that are left out at its start, when nobody is there yet."""
BLOCK = 15
"""Requests that are resampled together: they shared a queue."""
PLAYED = 10_000
"""Requests of the engine that is played."""
LIMITS = {
    "ttft.p50": 0.5,
    "ttft.p95": 0.6,
    "tpot.p50": 0.3,
    "tpot.p95": 0.4,
    "engine.ttft.p50": 0.25,
    "engine.ttft.p95": 0.3,
    "engine.tpot.p50": 0.3,
    "engine.tpot.p95": 0.3,
    "formula.ttft.p50": 0.25,
    "formula.ttft.p95": 0.3,
    "formula.tpot.p50": 0.15,
    "formula.tpot.p95": 0.25,
}
"""Largest error of each quantile that is allowed at any of the loads: of the model beside what was measured; of the
engine that is played under the same requests beside it (how well it is understood); and of the model beside that engine
at length (what its formulas cost)."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Measured step and prefill times of the server, in seconds."""

    step_s: Array
    """Shape (SLOTS,): a decode step of 1 to `SLOTS` sequences."""
    prefill_s: Array
    """Shape (len(PROMPTS),): what a prompt adds to a step of the others."""
    request_s: float
    """What a client waits beside all steps."""

    def service(self, prompt: Lengths) -> ServiceTimes:
        """Return the server as the model sees it."""
        prefill = np.maximum(np.interp(prompt.tokens, PROMPTS, self.prefill_s), 1e-6)
        running = np.arange(1.0, SLOTS + 1)
        return ServiceTimes(
            running[None], self.step_s[None], prefill[None], np.ones((1, len(prefill))), np.array([float(SLOTS)])
        )

    def capacity(self, asked: tuple[Lengths, Lengths]) -> float:
        """Requests/s of a full batch."""
        return float(under_load(self.service(asked[0]), np.array([1e-6]), asked[1]).capacity_per_s[0])

    def slower(self, times: float) -> "Calibrated":
        """Return the same server with all times multiplied by a factor."""
        return Calibrated(self.step_s * times, self.prefill_s * times, self.request_s * times)


def calibrate(clients: Clients, random: np.random.Generator, asked: tuple[Lengths, Lengths]) -> Calibrated:
    """One closed loop after another."""
    context = Arrivals(1.0, *asked).context
    prefill = np.array([_prefill_s(clients, random, context, tokens) for tokens in PROMPTS])
    steps = np.array([_step_s(clients, random, asked, streams, prefill) for streams in range(1, SLOTS + 1)])
    alone = [clients.ask(request(random, tokens, 2)).ttft_s for tokens in PROMPTS for _ in range(3)]
    beside = float(np.median(alone - np.repeat(prefill, 3))) - float(steps[0])
    return Calibrated(steps, prefill, max(0.0, beside))


def _step_s(
    clients: Clients, random: np.random.Generator, asked: tuple[Lengths, Lengths], streams: int, prefill: Array
) -> float:
    """Return the seconds of a decode step at this batch: the time without prefills over the tokens of one stream."""
    todo = requests(random, *asked, CLOSED)
    answers = clients.closed_loop(todo, streams)
    sent = sorted(answer.sent_s for answer in answers)
    start, end = sent[streams - 1], sent[-1]
    tokens = sum(start < at <= end for answer in answers for at in answer.token_s[1:])
    began = [
        len(prompt.prompt) for prompt, answer in zip(todo, answers, strict=True) if start < answer.token_s[0] <= end
    ]
    return float((end - start - np.interp(began, PROMPTS, prefill).sum()) * streams / tokens)


def _prefill_s(clients: Clients, random: np.random.Generator, context: float, tokens: int) -> float:
    """Return the seconds that a prefill adds to a step of `SLOTS` - 1 decoding streams: the median of several."""
    with ThreadPoolExecutor(SLOTS - 1) as pool:
        asked = [request(random, context - STREAMED / 2, STREAMED) for _ in range(SLOTS - 1)]
        streams = [pool.submit(clients.ask, prompt) for prompt in asked]
        prompts = [clients.ask(request(random, tokens, 2)) for _ in range(6)]
        answers = [np.array(stream.result().token_s) for stream in streams]
    step_s = float(np.median(np.concatenate([np.diff(times) for times in answers])))
    stalls = []
    for prompt in prompts:
        for token_s in answers:
            at = int(np.searchsorted(token_s, prompt.token_s[0] - step_s / 2))
            if 0 < at < len(token_s):
                stalls.append(token_s[at] - token_s[at - 1] - step_s)
    return float(statistics.median(stalls))


def pace(clients: Clients, random: np.random.Generator, asked: tuple[Lengths, Lengths], its: Calibrated) -> float:
    """Return the present pace of the full server: its time over that of the calibration."""
    todo = requests(random, *asked, PACED)
    answers = clients.closed_loop(todo, SLOTS)
    # From when all slots are taken to when the first one stays empty.
    start, end = (
        sorted(answer.token_s[0] for answer in answers)[SLOTS - 1],
        sorted(answer.token_s[-1] for answer in answers)[-SLOTS],
    )
    began = [
        len(prompt.prompt) for prompt, answer in zip(todo, answers, strict=True) if start < answer.token_s[0] <= end
    ]
    tokens = sum(start < at <= end for answer in answers for at in answer.token_s[1:])
    work_s = float(np.interp(began, PROMPTS, its.prefill_s).sum() + tokens * its.step_s[-1] / SLOTS)
    return (end - start) / work_s


def varies(random: np.random.Generator, values: Array, share: float) -> tuple[float, float]:
    """80 % of the quantile over resampled blocks of neighbouring requests."""
    blocks = np.array_split(values, max(2, len(values) // BLOCK))
    drawn = [
        np.quantile(np.concatenate([blocks[place] for place in random.integers(0, len(blocks), len(blocks))]), share)
        for _ in range(400)
    ]
    low, high = np.quantile(drawn, (0.1, 0.9))
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class Run:
    """Requests of one open loop, and what their clients saw, in the order in which they were sent."""

    its: Calibrated
    """The server in this run."""
    rate: float
    """Requests/s that were sent."""
    asked: list[Prompt]
    answers: list[Response]

    @property
    def settled(self) -> list[Response]:
        """Without those at its start."""
        return self.answers[round(SETTLE * len(self.answers)) :]


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything one run of the benchmark saw."""

    known: list[Calibrated]
    paces: list[float]
    """Of the full server, before and after each run."""
    runs: dict[float, list[Run]]
    """By share of what the full server finishes."""


def mean(known: Sequence[Calibrated]) -> Calibrated:
    """Return the server on average."""
    return Calibrated(
        np.mean([calibrated.step_s for calibrated in known], axis=0),
        np.mean([calibrated.prefill_s for calibrated in known], axis=0),
        statistics.mean(calibrated.request_s for calibrated in known),
    )


def measure(asked: tuple[Lengths, Lengths], seconds: float, rounds: int, random: np.random.Generator) -> Measured:
    """So many rounds: a calibration, then each load for so long, between two looks at how fast the server is then.

    What others do to caches and memory slows it from one minute to the next, and near saturation 7 % of that are half
    of a wait.
    """
    measured = Measured([], [], {load: [] for load in LOADS})
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder) / "model.gguf", shape=SHAPE)
        with LlamaServer(model, slots=SLOTS) as server:
            clients = Clients(server)
            for n in range(rounds):
                its = calibrate(clients, random, asked)
                measured.known.append(its)
                before = pace(clients, random, asked, its)
                for load in LOADS:
                    rate = load * its.capacity(asked) / before
                    todo = requests(random, *asked, round(rate * seconds))
                    answers = clients.open_loop(todo, poisson_gaps(random, rate, len(todo)))
                    after = pace(clients, random, asked, its)
                    measured.runs[load].append(Run(its.slower((before + after) / 2), rate, todo, answers))
                    measured.paces.extend((before, after))
                    say(f"round {n + 1} of {rounds}, {load:.0%}: {len(todo)} requests, pace {before:.3f}, {after:.3f}")
                    before = after
    return measured


def lengths() -> tuple[Lengths, Lengths]:
    """Of prompts and answers: the shape of a production trace around small means."""
    prompt, generated = (
        Lengths(np.minimum(shape.scaled_to(mean).tokens, LONGEST))
        for shape, mean in zip(typical("conversation"), (PROMPT, GENERATED), strict=True)
    )
    return prompt, generated


def played(its: Calibrated, arrived_s: Array, prompt: Array, generated: Array) -> dict[str, Array]:
    """Return the latencies clients see when an engine with these step and prefill times is simulated step by step."""
    todo = [
        Request(float(at), round(p), max(2, round(g))) for at, p, g in zip(arrived_s, prompt, generated, strict=True)
    ]
    seen = simulate(
        todo,
        SLOTS,
        lambda running: float(its.step_s[min(running, SLOTS) - 1]),
        lambda tokens: float(np.interp(tokens, PROMPTS, its.prefill_s)),
        settle=0,
    )
    settled = slice(round(SETTLE * len(todo)), None)
    return {"ttft": seen.ttft_s[settled] + its.request_s, "tpot": seen.tpot_s[settled]}


def played_again(runs: Sequence[Run]) -> dict[str, Array]:
    """Return the engine under the very requests that the server got."""
    replayed = [
        played(
            run.its,
            np.array([answer.sent_s for answer in run.answers]),
            np.array([len(asked.prompt) for asked in run.asked]),
            np.array([asked.generated for asked in run.asked]),
        )
        for run in runs
    ]
    return {name: np.concatenate([seen[name] for seen in replayed]) for name in ("ttft", "tpot")}


def compared(results: Measured, asked: tuple[Lengths, Lengths], random: np.random.Generator) -> str:
    """Return the result, as JSON text."""
    capacity, slower = mean(results.known).capacity(asked), statistics.mean(results.paces)
    of = f"{len(results.known)} rounds"
    low, high = capacity / max(results.paces), capacity / min(results.paces)
    spread = f"{SLOTS} clients; {len(results.paces)} looks, {low:.3g} to {high:.3g}"
    rows = [
        Row("llama.cpp", "saturation", round(capacity / slower, 3), "requests/s", spread),
        Row("queueing model", "saturation", round(capacity, 3), "requests/s", f"of steps and prefills; {of}"),
    ]
    off: dict[str, list[float]] = {name: [] for name in LIMITS}
    for load, runs in results.runs.items():
        its, rate = mean([run.its for run in runs]), statistics.mean(run.rate for run in runs)
        forecast = under_load(its.service(asked[0]), np.array([rate]), asked[1], SHARES)
        answers = [answer for run in runs for answer in run.settled]
        arrived_s = np.cumsum(random.exponential(1 / rate, PLAYED))
        again = played_again(runs)
        long = played(its, arrived_s, *(random.choice(lengths.tokens, PLAYED) for lengths in asked))
        for name, values, model_s in (
            ("ttft", np.array([answer.ttft_s for answer in answers]), forecast.ttft_s[0] + its.request_s),
            ("tpot", np.array([answer.tpot_s for answer in answers]), forecast.tpot_s[0]),
        ):
            for share, ours in zip(SHARES, map(float, model_s), strict=True):
                measured, same, stationary = (
                    float(np.quantile(array, share)) for array in (values, again[name], long[name])
                )
                low, high = varies(random, values, share)
                figure = f"{name}.p{100 * share:.0f}"
                what = f"{figure} at {load:.0%} of saturation"
                seen = f"{len(values)} requests, {of}; blocks {1000 * low:.1f} to {1000 * high:.1f}"
                rows += [
                    Row("llama.cpp", what, round(1000 * measured, 2), "ms", seen),
                    Row("queueing model", what, round(1000 * ours, 2), "ms", "calibrated"),
                    Row("played step by step", what, round(1000 * stationary, 2), "ms", f"{PLAYED} requests"),
                    Row("played step by step", f"{what}, same requests", round(1000 * same, 2), "ms", "calibrated"),
                ]
                off[figure].append(abs(ours / measured - 1))
                off[f"engine.{figure}"].append(abs(same / measured - 1))
                off[f"formula.{figure}"].append(abs(ours / stationary - 1))
    targets = [Target("queueing.saturation", abs(slower - 1), 0.10, "<=")]
    for name, limit in LIMITS.items():
        targets.append(Target(f"queueing.{name}", max(off[name]), limit, "<="))
    return report("queueing", rows + calibration_rows(results.known), targets)


def calibration_rows(known: Sequence[Calibrated]) -> list[Row]:
    """Return the measured step and prefill times of the server, with their spread."""
    rows = []
    for what, seconds in (
        ("step of one sequence", [calibrated.step_s[0] for calibrated in known]),
        (f"step of {SLOTS} sequences", [calibrated.step_s[-1] for calibrated in known]),
        (f"prefill of {PROMPTS[2]} tokens", [calibrated.prefill_s[2] for calibrated in known]),
        ("request beside its steps", [calibrated.request_s for calibrated in known]),
    ):
        spread = f"{len(seconds)} calibrations, {1000 * min(seconds):.1f} to {1000 * max(seconds):.1f}"
        rows.append(Row("llama.cpp", what, round(1000 * float(np.mean(seconds)), 2), "ms", spread))
    return rows


def say(what: str) -> None:
    """Progress, beside the result."""
    print(what, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, predict, and print one JSON object."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.queueing", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60, help="at each load in each round (default 60)")
    parser.add_argument("--rounds", type=int, default=4, help="rounds through all loads (default 4)")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    chosen = parser.parse_args(arguments)
    if chosen.seconds < 20 or chosen.rounds < 1:
        parser.error("quantiles need at least 20 s of requests, and a round")
    random = np.random.default_rng(0)
    asked = lengths()
    text = compared(measure(asked, chosen.seconds, chosen.rounds, random), asked, random)
    print(text)
    if chosen.json:
        chosen.json.write_text(f"{text}\n", encoding="utf-8")
