"""`python -m benchmarks.latency_llama --seed N`: the latency of a real llama.cpp at later loads, from earlier ones.

A server on one thread gets requests that come independently, with another rate in each block of time. The earlier half
of the blocks is measured, a short probe its calibration. Each later block is then forecast from them in the two ways
of `benchmarks.latency`, and its p95 is compared with the 80 % interval of either. llama.cpp exports no histogram of
latency, so its clients measure it.
"""

import argparse
import json
import math
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.latency import BY_HOUR, Both, Judged, alike, by_hour, of_mix, rows_of, targets_of
from benchmarks.report import Row, report
from benchmarks.site.__main__ import calibrated
from benchmarks.site.configurations import Configuration
from benchmarks.site.engines.engine import DENSE_RATES
from benchmarks.site.engines.llama_cpp import LLAMA_CPP
from benchmarks.site.engines.server import ALIAS, Server, ServerSettings
from benchmarks.site.hardware import accelerator, rates_by_dtype
from benchmarks.site.machine import note
from benchmarks.site.models import SMALL
from pertoken.access import Access
from pertoken.agent.load_probe import Client, run, script
from pertoken.arrivals import Arrivals, from_sample
from pertoken.catalog.market import MeasuredRates, load_market
from pertoken.evidence import OperatingPoint
from pertoken.forecast.latency import Latency, LatencyQuery, latencies
from pertoken.forecast.served import Abstained, Load
from pertoken.forecast.serving import Z_80, Range
from pertoken.savings.slo import PresentLatency, presents

SHAPE = SMALL[0]
"""So small that one thread finishes hundreds of requests in a block: a p95 needs them."""
SERVED = Configuration(SHAPE, "int8", "fp16", 8, 1, SHAPE.context, 8, 96, 32)
SPREAD = 0.6
"""Log standard deviation of the lengths of prompts and outputs."""
PROBE_S, CAPACITY_S = 30.0, 30.0
LOADS = (0.2, 0.75)
"""Least and most requests/s of a block, as a share of what a closed loop of all slots finishes."""
MINUTE = 60.0
MAX_OPEN = 256
SHARES = {"ttft_p50_ms": 0.5, "ttft_p95_ms": 0.95, "tpot_p50_ms": 0.5, "tpot_p95_ms": 0.95}
"""Quantile of each figure. The targets are those of p95."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as its client saw it; `sent_s` is from the beginning of its block."""

    sent_s: float
    ttft_ms: float
    tpot_ms: float
    prompt: int
    generated: int


Block = list[Request]


def serve(client: Client, requests_per_s: float, seconds: float, random: np.random.Generator) -> Block:
    """Send requests that come independently of each other, and wait for the last of them."""
    gaps_s = random.exponential(1 / requests_per_s, int(2 * requests_per_s * seconds) + 50).cumsum()
    sent_s = [float(sent) for sent in gaps_s if sent < seconds]
    factors = np.exp(SPREAD * random.standard_normal((len(sent_s), 2)) - SPREAD**2 / 2)
    lengths = np.clip(np.rint(factors * (SERVED.prompt, SERVED.generated)), 8, SERVED.context // 2 - 16).astype(int)
    began_s = time.perf_counter()

    def send(at_s: float, prompt: int, generated: int) -> Request:
        done = client.complete(client.prompt(prompt), generated)
        tpot_s = (done.part_s[-1] - done.part_s[0]) / max(1, done.generated_tokens - 1)
        # From the moment at which it was to come: a client that is late itself shortens no wait.
        ttft_s = done.part_s[0] - began_s - at_s
        return Request(at_s, 1000 * ttft_s, 1000 * tpot_s, done.prompt_tokens, done.generated_tokens)

    with ThreadPoolExecutor(MAX_OPEN) as pool:
        pending = []
        for at_s, (prompt, generated) in zip(sent_s, lengths.tolist(), strict=True):
            time.sleep(max(0.0, began_s + at_s - time.perf_counter()))
            pending.append(pool.submit(send, at_s, prompt, generated))
        return [request.result() for request in pending]


def capacity_per_s(client: Client, seconds: float) -> float:
    """Return the requests/s of a closed loop with all slots full."""
    ends_s = time.perf_counter() + seconds

    def loop(_: int) -> int:
        finished = 0
        while time.perf_counter() < ends_s:
            client.complete(client.prompt(SERVED.prompt), SERVED.generated)
            finished += 1
        return finished

    with ThreadPoolExecutor(SERVED.slots) as pool:
        return sum(pool.map(loop, range(SERVED.slots))) / seconds


def measure(seed: int, blocks: int, block_s: float, folder: Path, record: Path) -> dict[str, Any]:
    """Measure the machine, probe the server, and serve all blocks; write all of it to a file as it comes."""
    engine = replace(LLAMA_CPP, weight_dtypes=(SERVED.weight_dtype,))
    random = np.random.default_rng(seed)
    rates = rates_by_dtype(
        folder, engine, 1, (DENSE_RATES,), lambda server: Client(server.url, ALIAS, Access(server.url), seed), note
    )
    file = engine.write(folder, SHAPE, SERVED.weight_dtype)
    settings = ServerSettings(str(file), SERVED.slots, SERVED.context, SERVED.threads, SERVED.kv_dtype)
    with Server(engine.command(settings)) as server:
        client = Client(server.url, ALIAS, Access(server.url), seed + 1)
        client.calibrate()
        points = run(client, None, script(SERVED.slots, SERVED.context), PROBE_S).points
        capacity = capacity_per_s(client, CAPACITY_S)
        known: dict[str, Any] = {
            "rates": {dtype: asdict(rate) for dtype, rate in rates.items()},
            "points": [asdict(point) for point in points],
            "block_s": block_s,
            "blocks": [],
        }
        for number, share in enumerate(random.uniform(*LOADS, blocks)):
            block = serve(client, capacity * float(share), block_s, random)
            note(f"block {number + 1} of {blocks}: {len(block)} requests at {share:.2f} of {capacity:.2f} requests/s")
            known["blocks"].append([[round(value, 3) for value in asdict(request).values()] for request in block])
            record.write_text(json.dumps(known) + "\n")
    return known


def judged(known: dict[str, Any]) -> Both:
    """Return each figure of the later blocks at another load beside its forecasts."""
    rates = {dtype: MeasuredRates(**rate) for dtype, rate in known["rates"].items()}
    market = load_market().with_measured([accelerator(LLAMA_CPP, rates, SERVED.threads)])
    calibration = calibrated(SERVED, market, [OperatingPoint(**point) for point in known["points"]])
    blocks = [[Request(*request) for request in block] for block in known["blocks"]]
    half, block_s = len(blocks) // 2, known["block_s"]
    earlier = arrivals(blocks[:half], block_s)
    sent = [request for block in blocks[:half] for request in block]
    running_s = sum(request.tpot_ms * request.generated for request in sent) / 1000
    load = Load(
        float(earlier.requests_per_s) * earlier.generated.mean,
        earlier.prompt.mean,
        earlier.generated.mean,
        max(1.0, running_s / (half * block_s)),
    )
    mix = LatencyQuery(SERVED.deployment(), load, earlier, calibration)
    asked = [(replace(mix, arrivals=arrivals([block], block_s)), measured_ms(block)) for block in blocks[:half]]
    before, *hours = presents([(mix, measured_ms(sent)), *asked], market)
    assert isinstance(before, PresentLatency), before
    measured_hours = [hour for hour in hours if isinstance(hour, PresentLatency)]

    def forecast(query: LatencyQuery) -> Latency:
        (result,) = latencies([query], market)
        if isinstance(result, Abstained):
            raise result
        return result

    results: Both = [], []
    for block in blocks[half:]:
        query = replace(mix, arrivals=arrivals([block], block_s))
        if alike(query.arrivals, earlier):
            continue
        measured = measured_ms(block)
        ways = by_hour(measured_hours, query, forecast), of_mix(before, query, forecast)
        for judged_so, ranges in zip(results, ways, strict=True):
            judged_so += [Judged(name, *ranges[name], measured[name][1]) for name in ranges]
    return results


def arrivals(blocks: Sequence[Block], block_s: float) -> Arrivals:
    """Return the load of blocks: the rate at the p95 of the generated tokens/s by minute, as the advisor takes it."""
    prompt = from_sample([request.prompt for block in blocks for request in block])
    generated = from_sample([request.generated for block in blocks for request in block])
    minutes = math.ceil(block_s / MINUTE)
    per_s = [
        sum(request.generated for request in block if minute <= request.sent_s / block_s * minutes < minute + 1)
        / (block_s / minutes)
        for block in blocks
        for minute in range(minutes)
    ]
    tok_s = max(float(np.quantile(per_s, 0.95)), float(np.mean(per_s)))
    return Arrivals(tok_s / generated.mean, prompt, generated)


def measured_ms(requests: Sequence[Request]) -> dict[str, Range]:
    """Return each quantile with the 80 % interval of its sample."""
    known = {}
    for figure, share in SHARES.items():
        half = Z_80 * math.sqrt(share * (1 - share) / len(requests))
        values = [getattr(request, f"{figure[:4]}_ms") for request in requests]
        low, likely, high = (float(np.quantile(values, q)) for q in (share - half, share, min(1.0, share + half)))
        known[figure] = low, likely, high
    return known


def main() -> None:
    """Print the result as JSON; progress goes to standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.latency_llama", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--blocks", type=int, default=16)
    parser.add_argument("--block-s", type=float, default=160.0)
    parser.add_argument("--record", type=Path, metavar="FILE", help="write there what is measured")
    parser.add_argument("--recorded", type=Path, metavar="FILE", help="measure nothing: forecast a run on file again")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.recorded:
        known = json.loads(asked.recorded.read_text())
    else:
        with tempfile.TemporaryDirectory() as folder:
            record = asked.record or Path(folder) / "record.json"
            known = measure(asked.seed, asked.blocks, asked.block_s, Path(folder), record)
    results, mixed = judged(known)
    blocks = f"{known['block_s']:.0f} s"
    rows = [*rows_of(mixed, blocks), *rows_of(results, blocks, BY_HOUR)]
    for one in results:
        forecast = f"{one.low_ms:.4g} to {one.high_ms:.4g} forecast{BY_HOUR}"
        rows.append(Row("llama.cpp", f"{one.figure} measured", one.measured_ms, "ms", forecast))
    text = report("latency_llama", rows, targets_of(results, mixed))
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
