"""A configuration in a closed loop: what its clients should see by the forecast, and what they do see."""

import statistics
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace

import numpy as np

from benchmarks.site.configurations import Configuration
from benchmarks.site.play import Lengths, Steps, play
from pertoken.agent.load_probe.client import Client, Completion
from pertoken.catalog.market import Market
from pertoken.forecast.served import Abstained
from pertoken.forecast.serving import Calibration, Point, Range, forecast

FIGURES = ("tok_s", "tpot_ms", "ttft_ms")
SPREAD = 0.3
"""Prompts and outputs differ by up to this share, so that clients do not run in step."""
WARM_UP = 0.25
"""Share of the time that is left out at the start."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Latency and rate that clients should see: (low, likely, high) of an 80 % interval."""

    tok_s: Range
    tpot_ms: Range
    ttft_ms: Range

    def plain(self) -> dict[str, list[float]]:
        """Return it with the digits that count."""
        return {name: [float(f"{value:.5g}") for value in values] for name, values in asdict(self).items()}


def predict(
    of: Configuration, market: Market, calibration: Calibration, seconds: float, seeds: Sequence[int]
) -> Prediction:
    """Return what clients of a configuration should see, from the product's own forecast. Raises Abstained.

    The forecast gives the seconds of steps; rounds of `seconds` with the lengths of these seeds are played with them.
    The interval is that of the forecast at the clients' load.
    """
    deployment, load = of.deployment(), of.load()

    def point(running: float, prompt: float, cached_share: float) -> Point:
        asked = replace(load, running=running, prompt_len=prompt, cached_share=cached_share)
        predicted = forecast(deployment, asked, market, calibration)
        assert predicted.running is not None, predicted.refusal
        return predicted.running

    def alone(prompt: float) -> float:
        # The forecast adds the step that is under way when a request comes; alone there is none.
        known = point(1.0, prompt, 0.0)
        return (known.ttft_ms[1] - known.tpot_ms[1]) / 1000

    steps = Steps(
        [point(n, of.prompt, 1.0).tpot_ms[1] / 1000 for n in range(1, of.clients + 1)],
        [(of.prompt * factor, alone(of.prompt * factor)) for factor in (1 - SPREAD, 1.0, 1 + SPREAD)],
    )
    played = [figures(play(steps, of.clients, seconds, lengths(of, seed)), 0.0) for seed in seeds]
    known = [one for one in played if one is not None]
    if not known:
        raise Abstained("a round is too short for one request")
    tok_s, tpot_ms, ttft_ms = (statistics.median(getattr(one, name) for one in known) for name in FIGURES)
    whole = point(of.clients, of.prompt, 0.0)
    return Prediction(_around(tok_s, whole.tok_s), _around(tpot_ms, whole.tpot_ms), _around(ttft_ms, whole.ttft_ms))


def lengths(of: Configuration, seed: int) -> Callable[[], Lengths]:
    """Return the source of lengths of the requests of a round."""
    random = np.random.default_rng(seed)

    def one() -> Lengths:
        prompt, generated = random.uniform(1 - SPREAD, 1 + SPREAD, 2)
        return max(1, round(of.prompt * prompt)), max(2, round(of.generated * generated))

    return one


def _around(likely: float, of: Range) -> Range:
    return likely * of[0] / of[1], likely, likely * of[2] / of[1]


@dataclass(frozen=True, slots=True)
class Measured:
    """Latency and rate that clients measured."""

    tok_s: float
    tpot_ms: float
    ttft_ms: float


def measure(
    client: Client, of: Configuration, seconds: float, seed: int, clock: Callable[[], float]
) -> Measured | None:
    """Serve a configuration for `seconds` of `clock`; None where too few requests ended."""
    started_s = clock()
    lock, next_lengths = threading.Lock(), lengths(of, seed)

    def one() -> list[Completion]:
        done: list[Completion] = []
        while clock() < started_s + seconds or not done:
            with lock:
                prompt, generated = next_lengths()
            done.append(client.complete(client.prompt(prompt), generated))
        return done

    with ThreadPoolExecutor(of.clients) as pool:
        futures = [pool.submit(one) for _ in range(of.clients)]
        return figures([future.result() for future in futures], started_s)


def figures(done: Sequence[Sequence[Completion]], started_s: float) -> Measured | None:
    """Return the figures of the completions of each client, without those sent in the warm-up, if others were.

    A client's rate is that of whole requests, from the first one sent to the end of the last. A window of the clock
    would hold parts of some, and a run lasts a few requests only.
    """
    last_s = min(requests[-1].part_s[-1] for requests in done)
    begin_s = started_s + WARM_UP * (last_s - started_s)
    settled = [[request for request in requests if request.sent_s >= begin_s] for requests in done]
    settled = [requests for requests in settled if requests] or list(map(list, done))
    rates = [
        sum(request.generated_tokens for request in requests) / (requests[-1].part_s[-1] - requests[0].sent_s)
        for requests in settled
    ]
    several = [
        request
        for requests in settled
        for request in requests
        if len(request.part_s) > 1 and request.generated_tokens > 1
    ]
    if not several:
        return None
    tpot_s = [(request.part_s[-1] - request.part_s[0]) / (request.generated_tokens - 1) for request in several]
    return Measured(
        len(done) * statistics.fmean(rates),
        1000 * statistics.fmean(tpot_s),
        1000 * statistics.fmean(request.ttft_s for requests in settled for request in requests),
    )
