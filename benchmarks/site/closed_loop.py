"""A configuration in a closed loop: what its clients should see by the forecast, and what they do see."""

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace

import numpy as np

from benchmarks.site.configurations import Configuration
from pertoken.agent.load_probe.client import Client, Completion
from pertoken.catalog.market import Market
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


def predict(of: Configuration, market: Market, calibration: Calibration) -> Prediction:
    """Return what clients of a configuration should see, from the product's own forecast. Raises Abstained.

    The forecast gives the steady state, whose time per token holds everybody's prefill. A client sees its own prefill
    as TTFT, with the rest of whatever step is under way when it comes.
    """
    deployment, load = of.deployment(), of.load()

    def point(cached_share: float) -> Point:
        predicted = forecast(deployment, replace(load, cached_share=cached_share), market, calibration)
        assert predicted.running is not None, predicted.refusal
        return predicted.running

    whole, decode_ms = point(0.0), point(1.0).tpot_ms[1]
    cycle_ms = of.generated * whole.tpot_ms[1]
    prefill_ms = max(0.0, whole.tpot_ms[1] - decode_ms) * of.generated / of.clients
    ttft_ms = min(_ttft_ms(of.clients, prefill_ms, decode_ms, cycle_ms), 0.9 * cycle_ms)
    tpot_ms = (cycle_ms - ttft_ms) / (of.generated - 1)
    return Prediction(whole.tok_s, _around(tpot_ms, whole.tpot_ms), _around(ttft_ms, whole.ttft_ms))


def _ttft_ms(clients: int, prefill_ms: float, decode_ms: float, cycle_ms: float) -> float:
    """Return the mean time to first token of clients that send their next request as soon as one ends.

    A request waits for the end of the step under way, and is prefilled together with those that came during that step.
    """
    others_per_ms = (clients - 1) / cycle_ms
    if not others_per_ms:
        return prefill_ms + decode_ms
    in_prefill = min(1.0, others_per_ms * prefill_ms)
    # A step that prefills one prompt, and those that came during a step as long.
    long_ms = prefill_ms + decode_ms
    long_ms += others_per_ms * long_ms * prefill_ms
    found_ms = decode_ms
    for share, step_ms in ((in_prefill, long_ms), (1 - in_prefill, decode_ms)):
        found_ms += share * (step_ms / 2 + prefill_ms * (1 + others_per_ms * step_ms))
    return found_ms


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
    """Serve a configuration for `seconds`; None where too few requests ended.

    `clock` is that of the client: what it measures, while `seconds` are of the wall.
    """
    end = time.monotonic() + seconds
    started_s = clock()
    lock, random = threading.Lock(), np.random.default_rng(seed)

    def one() -> list[Completion]:
        done: list[Completion] = []
        while time.monotonic() < end or not done:
            with lock:
                factors = random.uniform(1 - SPREAD, 1 + SPREAD, 2)
            prompt = client.prompt(max(1, round(of.prompt * factors[0])))
            done.append(client.complete(prompt, max(2, round(of.generated * factors[1]))))
        return done

    with ThreadPoolExecutor(of.clients) as pool:
        futures = [pool.submit(one) for _ in range(of.clients)]
        return figures([completion for future in futures for completion in future.result()], started_s, of.clients)


def figures(done: Sequence[Completion], started_s: float, clients: int) -> Measured | None:
    """Return the figures of completions after a warm-up, while all clients still sent."""
    last_s = sorted((completion.part_s[-1] for completion in done), reverse=True)[clients - 1]
    begin_s = started_s + WARM_UP * (last_s - started_s)
    tokens = sum(completion.tokens_between(begin_s, last_s) for completion in done)
    settled = [completion for completion in done if completion.sent_s >= begin_s] or list(done)
    several = [completion for completion in settled if len(completion.part_s) > 1 and completion.generated_tokens > 1]
    if not several or last_s <= begin_s:
        return None
    tpot_s = [
        (completion.part_s[-1] - completion.part_s[0]) / (completion.generated_tokens - 1) for completion in several
    ]
    return Measured(
        tokens / (last_s - begin_s),
        1000 * statistics.fmean(tpot_s),
        1000 * statistics.fmean(completion.ttft_s for completion in settled),
    )
