"""Speed of a plan search: `python -m benchmarks.forecast_speed`.

Forecasts output tokens/s, time per token and the sequences that fit for 10,000 candidates (models x devices x dtypes
x layouts x batches) at once, on one thread, beside a loop that asks about one candidate at a time. Resolving
deployments against the catalog is timed apart. Medians of interleaved rounds.
"""

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_threads] = "1"  # before numpy starts its own

import numpy as np  # noqa: E402

from benchmarks.report import Row, Target, report  # noqa: E402
from pertoken.arrivals import Arrivals, typical  # noqa: E402
from pertoken.catalog.market import Market, load_market  # noqa: E402
from pertoken.forecast.candidates import Array, Candidates  # noqa: E402
from pertoken.forecast.capacity import fitting_sequences  # noqa: E402
from pertoken.forecast.efficiency import (  # noqa: E402
    Efficiency,
    efficiency,
    steady,
)
from pertoken.forecast.latency import forecast_under  # noqa: E402
from pertoken.forecast.served import Abstained, Load, resolve  # noqa: E402
from pertoken.state.deployment import Deployment, Placement  # noqa: E402

CANDIDATES = 10_000
LOOPED = 200
"""Of them asked one by one, and under a load: the loop is slow, and its rate is what counts."""
MODELS = ("Llama-3.1-8B", "Llama-3.3-70B", "Qwen3-30B-A3B", "Qwen3-32B", "gpt-oss-120b")
DTYPES = ("bf16", "fp8", "int8", "int4")
LAYOUTS = ((1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (2, 2), (4, 2))


def candidates(market: Market, wanted: int) -> tuple[list[Deployment], list[Load]]:
    """Deployments that differ from each other, with a load for each."""
    models = [known_model for name in MODELS if (known_model := market.model(name)) is not None]
    names = [accelerator.name for accelerator in market.accelerators]
    choices = itertools.product((1, 8, 64, 256), LAYOUTS, DTYPES, names, models)
    deployments, loads = [], []
    for running, (tp, dp), dtype, accelerator, model in choices:
        deployment = Deployment(
            model, "vllm", placement=Placement(accelerator=accelerator), tp=tp, dp=dp, weight_dtype=dtype
        )
        load = Load(generated_tok_s=0, prompt_len=1000, generated_len=250, running=running)
        try:
            resolve([deployment], [load], market)
        except Abstained:
            continue
        deployments.append(deployment)
        loads.append(load)
        if len(deployments) == wanted:
            break
    return deployments, loads


def plan(c: Candidates, table: Efficiency) -> tuple[Array, Array, Array]:
    """Return the figures a plan search needs of each candidate: tokens/s, seconds per token, sequences that fit."""
    fits = fitting_sequences(c)
    running = np.maximum(np.minimum(c.concurrency, fits), 1.0)
    state = steady(c, table, running)
    return state.tok_s, state.token_s, fits


def seconds(ask: Callable[[], object]) -> float:
    start = time.perf_counter()
    ask()
    return time.perf_counter() - start


def main(arguments: Sequence[str] | None = None) -> None:
    """Time, and print one JSON object."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.forecast_speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=7, help="rounds the medians are taken over (default 7)")
    parser.add_argument("--candidates", type=int, default=CANDIDATES, help=f"how many (default {CANDIDATES})")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    chosen = parser.parse_args(arguments)
    if chosen.rounds < 1 or chosen.candidates < 1:
        parser.error("rounds and candidates are at least 1")
    market, table = load_market(), efficiency()
    deployments, loads = candidates(market, chosen.candidates)
    c = resolve(deployments, loads, market)
    few = [c.take(np.array([place])) for place in range(min(LOOPED, len(c)))]
    prompt, generated = typical("conversation")
    arrivals = Arrivals(1.0, prompt, generated)
    some = c.take(np.arange(min(LOOPED, len(c))))
    asks: dict[str, tuple[int, Callable[[], object]]] = {
        "all at once": (len(c), lambda: plan(c, table)),
        "one at a time": (len(few), lambda: [plan(candidates, table) for candidates in few]),
        "resolved from deployments": (len(c), lambda: resolve(deployments, loads, market)),
        "under a load, with quantiles": (
            len(some),
            lambda: forecast_under(some, table, arrivals, np.maximum(fitting_sequences(some), 1.0)),
        ),
    }
    taken: dict[str, list[float]] = {name: [] for name in asks}
    for _ in range(chosen.rounds):
        for name, (_, ask) in asks.items():
            taken[name].append(seconds(ask))
    rates = {name: asks[name][0] / statistics.median(times) for name, times in taken.items()}
    method = f"median of {chosen.rounds} interleaved rounds, one thread"
    rows = [
        Row("pertoken", f"candidates/s, {name}", round(rate), "1/s", f"{asks[name][0]} candidates; {method}")
        for name, rate in rates.items()
    ]
    speed_up = rates["all at once"] / rates["one at a time"]
    rows.append(Row("pertoken", "all at once over one at a time", round(speed_up, 1), "ratio", method))
    whole = 1 / (1 / rates["all at once"] + 1 / rates["resolved from deployments"])
    rows.append(Row("pertoken", "candidates/s, resolved and forecast", round(whole), "1/s", method))
    text = report(
        "forecast_speed",
        rows,
        [
            Target("forecast.candidates_per_s", rates["all at once"], 1_000_000, ">="),
            Target("forecast.search_candidates_per_s", whole, 10_000, ">="),
        ],
    )
    print(text)
    if chosen.json:
        chosen.json.write_text(f"{text}\n", encoding="utf-8")
