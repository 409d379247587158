"""`python -m benchmarks.tenant_shares [--mixes 40] [--seed 1]`: how far shares of tenants are from Shapley shares.

Tenants with different requests share a simulated engine with continuous batching, chunked prefill and a prefix cache.
The device time of each set of tenants is simulated alone; a tenant's Shapley share is the mean of what it adds to all
sets of the others. Weighted shares are computed as `pertoken costs --by tenant` does, from the counters of the engine
that serves all of them; shares by tokens are computed from the same counts. The distance of two lists of shares is half
of their summed differences: 0 is equal, 1 disjoint.

The engine is a roofline of an 8B model in 16 bits on an H100: weights 16 GB and 131 kB of KV cache a token at 3.35
TB/s, 16 GFLOP a token and 0.52 MFLOP for each pair of a token and one before it at half of 990 TFLOP/s.
"""

import argparse
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from benchmarks.report import Row, Target, report
from pertoken.costs.hours import ModelHour, ModelHours
from pertoken.costs.ledger import NO_TIMES, TokenWeights, split, token_weights
from pertoken.costs.spend import attribute
from pertoken.units import NANO_USD
from pertoken.window.tenants import Tenant, TenantTokens

WEIGHTS_S, CONTEXT_S = 16e9 / 3.35e12, 131e3 / 3.35e12
TOKEN_S, PAIR_S = 16e9 / 495e12, 0.52e6 / 495e12
CHUNK = 2048
"""Tokens computed in one step at most."""
WINDOW_S = 60.0
MAX_DISTANCE = 0.12
"""Limit of the median distance of weighted shares."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Tokens of each request of a tenant."""

    prompt: int
    cached: int
    generated: int


KINDS: Mapping[str, Kind] = {
    "agent": Kind(12_000, 11_400, 150),
    "chat": Kind(800, 0, 400),
    "retrieval": Kind(6_000, 1_500, 200),
    "writing": Kind(200, 0, 1_500),
    "classification": Kind(3_000, 500, 2),
}


@dataclass(slots=True)
class Request:
    """A request under way."""

    kind: Kind
    computed: int = 0
    generated: int = 0

    @property
    def left(self) -> int:
        """Prompt tokens to compute."""
        return self.kind.prompt - self.kind.cached - self.computed


@dataclass(slots=True)
class Counters:
    """Counters of the engine, as vLLM has them: seconds of requests in prefill and decode, steps, tokens."""

    busy_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    steps: int = 0
    generated: int = 0
    tokens: dict[str, list[int]] = field(default_factory=dict)
    """Prompt, generated and cached tokens of each tenant."""


def serve(arrivals: Sequence[tuple[float, str]]) -> Counters:
    """Serve requests in the order of their arrival, and return the counters once all have ended."""
    waiting, running, counters, now_s = list(reversed(arrivals)), list[tuple[str, Request]](), Counters(), 0.0
    while waiting or running:
        if not running:
            now_s = max(now_s, waiting[-1][0])
        while waiting and waiting[-1][0] <= now_s:
            name = waiting.pop()[1]
            running.append((name, Request(KINDS[name])))
        step_s, budget = WEIGHTS_S, CHUNK
        prefills, decodes = [], []
        for _, request in running:
            context = request.kind.cached + request.computed + request.generated
            if request.left > 0:
                chunk = min(budget, request.left)
                if not chunk:
                    continue  # it waits, and is not counted
                budget -= chunk
                step_s += chunk * TOKEN_S + chunk * (context + chunk / 2) * PAIR_S
                prefills.append((request, chunk))
            else:
                step_s += TOKEN_S + context * CONTEXT_S
                decodes.append(request)
        now_s += step_s
        counters.busy_s, counters.steps = counters.busy_s + step_s, counters.steps + 1
        counters.prefill_s += step_s * len(prefills)
        counters.decode_s += step_s * len(decodes)
        for request, chunk in prefills:
            request.computed += chunk
            request.generated += request.left == 0
        for request in decodes:
            request.generated += 1
        counters.generated += len(decodes) + sum(request.left == 0 for request, _ in prefills)
        for name, request in running:
            if request.generated >= request.kind.generated:
                own = counters.tokens.setdefault(name, [0, 0, 0])
                for n, count in enumerate((request.kind.prompt, request.kind.generated, request.kind.cached)):
                    own[n] += count
        running = [(name, request) for name, request in running if request.generated < request.kind.generated]
    return counters


def shares(counters: Counters, *, weighted: bool) -> dict[str, float]:
    """Return the share of each tenant by the counters of the engine."""
    overlap = max(1.0, counters.generated / counters.steps)
    prefill_ms, decode_ms = round(1000 * counters.prefill_s), round(1000 * counters.decode_s / overlap)
    busy_ms = min(round(1000 * counters.busy_s), prefill_ms + decode_ms)
    work = {"busy_ms": busy_ms, "split_ms": busy_ms, "prefill_ms": prefill_ms, "decode_ms": decode_ms}
    prompt, generated, cached = (sum(own[n] for own in counters.tokens.values()) for n in range(3))
    counts = {"prompt_tokens": prompt, "cached_tokens": cached, "generated_tokens": generated}
    weights: TokenWeights | str = token_weights(split(NANO_USD, 0, work), counts) if weighted else NO_TIMES
    hour = ModelHour(NANO_USD, prompt + generated, cached_tokens=cached, generated_tokens=generated)
    rows = [TenantTokens(0, "m", Tenant(name), *own) for name, own in counters.tokens.items()]
    attribution = attribute(ModelHours("m", 0, (hour,)), rows, NANO_USD, weights)
    return {
        share.tenant.team: share.nano_usd / NANO_USD
        for share in attribution.shares
        if share.tenant is not None and share.tenant.team is not None
    }


def shapley(arrivals: Sequence[tuple[float, str]]) -> dict[str, float]:
    """Return the Shapley share of each tenant of the device time of all."""
    names = sorted({name for _, name in arrivals})
    cost = {
        chosen: serve([arrival for arrival in arrivals if arrival[1] in chosen]).busy_s
        for n in range(len(names) + 1)
        for chosen in map(frozenset, combinations(names, n))
    }
    added = {}
    for name in names:
        sets = [chosen for chosen in cost if name not in chosen]
        ways = [math.factorial(len(chosen)) * math.factorial(len(names) - len(chosen) - 1) for chosen in sets]
        gains = [cost[chosen | {name}] - cost[chosen] for chosen in sets]
        added[name] = sum(way * gain for way, gain in zip(ways, gains, strict=True)) / math.factorial(len(names))
    return {name: seconds / sum(added.values()) for name, seconds in added.items()}


def mixed(chance: random.Random) -> list[tuple[float, str]]:
    """Return the arrivals of two to four tenants, which together keep the engine mostly busy."""
    names = chance.sample(sorted(KINDS), chance.randint(2, 4))
    arrivals = []
    for name in names:
        kind, now_s = KINDS[name], 0.0
        alone_s = (kind.prompt - kind.cached) * TOKEN_S + kind.generated * WEIGHTS_S / 8
        rate = chance.uniform(0.3, 1.5) / len(names) / alone_s
        while (now_s := now_s + chance.expovariate(rate)) < WINDOW_S:
            arrivals.append((now_s, name))
    return sorted(arrivals)


def distance(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Return half of the summed differences of two lists of shares."""
    return sum(abs(first.get(name, 0.0) - second.get(name, 0.0)) for name in first.keys() | second.keys()) / 2


def measure(mixes: int, seed: int) -> str:
    """Return the result as JSON."""
    chance, distances = random.Random(seed), {"weighted": list[float](), "by tokens": list[float]()}
    while len(distances["weighted"]) < mixes:
        arrivals = mixed(chance)
        if len({name for _, name in arrivals}) < 2:
            continue
        counters, fair = serve(arrivals), shapley(arrivals)
        for what, weighted in (("weighted", True), ("by tokens", False)):
            distances[what].append(distance(shares(counters, weighted=weighted), fair))
    method = f"half of the summed differences to Shapley shares, {mixes} mixes of two to four tenants, seed {seed}"
    rows = [
        row
        for what, of_mixes in distances.items()
        for row in (
            Row(what, "median", statistics.median(of_mixes), "share", method),
            Row(what, "p90", sorted(of_mixes)[int(0.9 * len(of_mixes))], "share", method),
        )
    ]
    return report(
        "tenant_shares",
        rows,
        [Target("tenant_shares.median", rows[0].value, MAX_DISTANCE, "<=")],  # type: ignore[arg-type]
    )


def main() -> None:
    """Print the result, or write it to a file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tenant_shares", description=__doc__)
    parser.add_argument("--mixes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    text = measure(given.mixes, given.seed)
    if given.out is None:
        print(text)
    else:
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
