"""The queueing model beside a real engine: `python -m benchmarks.queueing`.

A real llama.cpp server (xllamacpp, a tiny model of random weights, 4 slots, one thread) is first asked in a closed
loop: 1 to 4 streams give its step, lone prompts its prefill. Then requests come at random (Poisson) with lengths of
the shape of a production trace, and clients measure TTFT and the time between tokens. The model gets the step, the
prefill, the slots and the load, and says what the clients should have seen.
"""

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import numpy as np

from benchmarks.report import Row, Target, report
from pertoken.forecast.load import Array, Lengths, typical
from pertoken.forecast.queueing import Service, under_load
from tests.llama import CONTEXT, N_TOKENS, SLOTS, LlamaServer, write_model

PROMPT, GENERATED = 400.0, 120.0
"""Mean tokens of a request."""
LONGEST = CONTEXT // 2
LOADS = (0.4, 0.7)
SHARES = (0.5, 0.95)


@dataclass(frozen=True, slots=True)
class Seen:
    """What one client saw."""

    ttft_s: float
    tpot_s: float


def ask(url: str, prompt: list[int], generated: int) -> Seen:
    """One streamed request that generates exactly so many tokens."""
    body = {"prompt": prompt, "n_predict": generated, "ignore_eos": True, "stream": True, "cache_prompt": False}
    start = time.perf_counter()
    first = last = 0.0
    sent = HttpRequest(f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(sent, timeout=120) as reply:
        for line in reply:
            if line.startswith(b"data:") and b'"stop":true' not in line.replace(b" ", b""):
                last = time.perf_counter()
                first = first or last
    return Seen(first - start, (last - first) / max(generated - 1, 1))


def prompt_of(random: np.random.Generator, tokens: float) -> list[int]:
    return [int(token) for token in random.integers(3, N_TOKENS, max(1, round(tokens)))]


def closed_loop(url: str, random: np.random.Generator, streams: int, requests: int) -> list[Seen]:
    """So many clients that each ask again as soon as they are answered; prompts of few tokens."""
    found: list[Seen] = []
    work = [[prompt_of(random, 8) for _ in range(requests)] for _ in range(streams)]

    def client(prompts: list[list[int]]) -> None:
        found.extend(ask(url, prompt, 200) for prompt in prompts)

    threads = [threading.Thread(target=client, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def calibrate(url: str, random: np.random.Generator, prompt: Lengths) -> Service:
    """The server's step at 1 to 4 streams, and its prefill of each length."""
    steps = [statistics.median(each.tpot_s for each in closed_loop(url, random, n, 3)) for n in range(1, SLOTS + 1)]
    tokens = np.repeat([64, 256, 512, 1000], 3)
    firsts = np.array([ask(url, prompt_of(random, each), 2).ttft_s for each in tokens])
    slope, fixed = np.polyfit(tokens, firsts, 1)
    prefill = np.maximum(fixed - steps[0] + slope * prompt.tokens, 1e-5)
    running = np.arange(1.0, SLOTS + 1)
    return Service(
        running[None], np.array([steps]), prefill[None], np.ones((1, len(prefill))), np.array([float(SLOTS)])
    )


def loaded(url: str, random: np.random.Generator, rate: float, lengths: tuple[Lengths, Lengths], n: int) -> list[Seen]:
    """Requests at random times, each with a client of its own."""
    prompt, generated = lengths
    found: list[Seen] = []
    work = [
        (prompt_of(random, p), max(2, round(g)))
        for p, g in zip(random.choice(prompt.tokens, n), random.choice(generated.tokens, n), strict=True)
    ]
    threads = [threading.Thread(target=lambda each=each: found.append(ask(url, *each))) for each in work]
    due = time.perf_counter()
    for thread, gap in zip(threads, random.exponential(1 / rate, n), strict=True):
        due += gap
        time.sleep(max(0.0, due - time.perf_counter()))
        thread.start()
    for thread in threads:
        thread.join()
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, predict, and print one JSON object."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.queueing", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=400, help="at each load (default 400)")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    chosen = parser.parse_args(arguments)
    if chosen.requests < 10:
        parser.error("quantiles need at least 10 requests")
    random = np.random.default_rng(0)
    shapes = zip(typical("conversation"), (PROMPT, GENERATED), strict=True)
    prompt, generated = (Lengths(np.minimum(shape.scaled_to(mean).tokens, LONGEST)) for shape, mean in shapes)
    rows, off = [], []
    with tempfile.TemporaryDirectory() as folder, LlamaServer(write_model(Path(folder) / "tiny.gguf")) as server:
        for load in LOADS:
            before = calibrate(server.url, random, prompt)
            rate = load * float(under_load(before, np.array([1e-6]), generated).capacity_per_s[0])
            seen = loaded(server.url, random, rate, (prompt, generated), chosen.requests)
            after = calibrate(server.url, random, prompt)
            said = under_load(mean_of(before, after), np.array([rate]), generated, SHARES)
            for name, values, quantiles in (
                ("TTFT", [each.ttft_s for each in seen], said.ttft_s[0]),
                ("TPOT", [each.tpot_s for each in seen], said.tpot_s[0]),
            ):
                for share, ours in zip(SHARES, quantiles, strict=True):
                    measured = float(np.quantile(values, share))
                    what = f"{name} p{100 * share:.0f} at {load:.0%} of {rate / load:.2f} requests/s"
                    rows.append(Row("llama.cpp", what, round(1000 * measured, 3), "ms", f"{len(seen)} requests"))
                    rows.append(Row("queueing model", what, round(1000 * float(ours), 3), "ms", "calibrated"))
                    off.append(abs(float(ours) / measured - 1))
            drift = float(np.median(after.decode_s / before.decode_s))
            rows.append(Row("llama.cpp", f"step after over before, at {load:.0%}", round(drift, 3), "ratio", "drift"))
    text = report("queueing", rows, [Target("queueing.median_error", statistics.median(off), 0.30, "<=")])
    print(text)
    if chosen.json:
        chosen.json.write_text(f"{text}\n", encoding="utf-8")


def mean_of(before: Service, after: Service) -> Service:
    """The server between two calibrations."""

    def middle(first: Array, second: Array) -> Array:
        return (first + second) / 2

    return Service(
        before.running,
        middle(before.decode_s, after.decode_s),
        middle(before.prefill_s, after.prefill_s),
        before.prefill_steps,
        before.limit,
    )


if __name__ == "__main__":
    main()
