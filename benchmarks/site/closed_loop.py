"""A configuration in a closed loop: what its clients should see by the forecast, and what they do see."""

import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace

import numpy as np

from benchmarks.site.configurations import Configuration
from benchmarks.site.plan import ROUNDS
from benchmarks.site.play import START_S, Lengths, Steps, play
from pertoken.agent.load_probe import Client, Completion
from pertoken.catalog.market import Market
from pertoken.forecast.host import Calibration
from pertoken.forecast.serving import Point, Range, forecast

FIGURES = ("tok_s", "tpot_ms", "ttft_ms")
SPREAD = 0.3
"""Prompts and outputs differ by up to this share, so that clients do not run in step."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Latency and rate that clients should see: (low, likely, high) of an 80 % interval."""

    tok_s: Range
    tpot_ms: Range
    ttft_ms: Range

    def plain(self) -> dict[str, list[float]]:
        """Return it with the digits that count."""
        return {name: [float(f"{value:.5g}") for value in values] for name, values in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast of a configuration by the product, at the load of its clients."""

    steps: Steps
    whole: Point
    """Steady state with all clients."""

    def cycle_s(self, of: Configuration) -> float:
        """Return the seconds from a request of a client to its next, in the steady state."""
        return of.clients * of.generated / self.whole.tok_s[1]

    def predict(self, of: Configuration, requests: int) -> Prediction:
        """Return what clients should see in rounds of `requests` requests of each client.

        The rounds are played with the steps that are forecast. The interval is that of the forecast at their load.
        """
        played = [figures(play(self.steps, lengths(of, number, requests))) for number in range(ROUNDS)]
        tok_s, tpot_ms, ttft_ms = (statistics.median(getattr(one, name) for one in played) for name in FIGURES)
        whole = self.whole
        return Prediction(_around(tok_s, whole.tok_s), _around(tpot_ms, whole.tpot_ms), _around(ttft_ms, whole.ttft_ms))


def forecast_of(of: Configuration, market: Market, calibration: Calibration) -> Forecast:
    """Return the product's own forecast of a configuration. Raises Abstained."""
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
    return Forecast(steps, point(of.clients, of.prompt, 0.0))


def lengths(of: Configuration, number: int, requests: int) -> list[list[Lengths]]:
    """Return the lengths of the requests of each client in a round, by its number."""
    means, random = np.array([of.prompt, of.generated]), np.random.default_rng(number)
    drawn = np.rint(means * random.uniform(1 - SPREAD, 1 + SPREAD, (of.clients, requests, 2))).astype(int)
    return [[(max(1, int(prompt)), max(2, int(generated))) for prompt, generated in client] for client in drawn]


def _around(likely: float, of: Range) -> Range:
    return likely * of[0] / of[1], likely, likely * of[2] / of[1]


@dataclass(frozen=True, slots=True)
class Measured:
    """Latency and rate that clients measured."""

    tok_s: float
    tpot_ms: float
    ttft_ms: float


def measure(client: Client, asked: Sequence[Sequence[Lengths]]) -> Measured:
    """Serve a round: one thread for each client, which asks for its outputs one after another; they begin `START_S`
    apart.
    """

    def one(number: int, lengths: Sequence[Lengths]) -> list[Completion]:
        time.sleep(number * START_S)
        return [client.complete(client.prompt(prompt), generated) for prompt, generated in lengths]

    with ThreadPoolExecutor(len(asked)) as pool:
        return figures(list(pool.map(one, range(len(asked)), asked)))


def figures(done: Sequence[Sequence[Completion]]) -> Measured:
    """Return the figures of a round from the completions of each client.

    A client's rate is that of its whole requests: a window of the clock would hold parts of some, and a round lasts a
    few requests only.
    """
    requests = [request for of_client in done for request in of_client]
    rates = [
        sum(request.generated_tokens for request in of_client) / (of_client[-1].part_s[-1] - of_client[0].sent_s)
        for of_client in done
    ]
    tpot_s = [
        (request.part_s[-1] - request.part_s[0]) / (request.generated_tokens - 1)
        for request in requests
        if request.generated_tokens > 1
    ]
    return Measured(
        sum(rates), 1000 * statistics.fmean(tpot_s), 1000 * statistics.fmean(request.ttft_s for request in requests)
    )
