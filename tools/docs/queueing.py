"""The part of the forecast's page on what requests see under a load, from the committed result of its benchmark."""

import json
from pathlib import Path

RESULT = Path(__file__).parents[2] / "benchmarks/results/queueing-2026-11-21-epyc-2core-loaded.json"
_INTRODUCTION = """\
## Under a load

Objectives for latency are judged by what was measured: the quantile over requests of the window, times the ratio of
the forecasts after and before a change, both at the p95 demand. The statistic is the engine's own on both sides:
vLLM's TPOT is the time between two tokens, that of TGI and TensorRT-LLM a mean of each request. The interval holds
the sample of the measured quantile, what the calibration leaves open of the ratio and what the queueing model misses
of it; errors that both forecasts share cancel, and a change that leaves the latency as it is has exactly what was
measured. A figure that was not measured has no verdict, and the advice names it.

A change is compared with the present. Where a forecast has a deployment overloaded that did serve its demand, both
ends are compared at the share of the demand at which the forecast waits as long as was measured. A change that
improves an overloaded service is offered, with the latency and the overload that are left over. One that misses an
objective clearly and is worse than now is refused, and so is a load above what a full batch finishes.

`python -m benchmarks.latency` forecasts the p95 of later hours of generated fleets at other loads from the earlier
half of their hours. On four demos (476 figures) 84 % lie inside the 80 % interval, and the median of high over low is
1.65 ([latency-2026-11-28-epyc-2core.json](../benchmarks/results/latency-2026-11-28-epyc-2core.json)). The tails of a
demo are an assumption of its simulator.

For the forecast itself, arrivals and lengths come from what was measured; a deployment is a queue with a rate of
finished requests that depends on how many run, and a queue of prompts in front of it (`forecast/queue/`):

`python -m benchmarks.queueing` asks a real llama.cpp server in a closed loop for its steps and prefills
({saturation} of a full batch), and then at random times, {requests} at a load in {rounds}; just
before and after it looks at how fast the server is at that time, since 7 % of speed are half of a wait near saturation.
*Model* is the forecast from the former, *played* the same engine step by step without a formula: {played}
at length, and the very requests that the server got. Between the last two lies the luck of few arrivals, which a
95th percentile of TTFT shows most, and beside the server what its speed did within a run. Other programs shared the
machine; the clients' clock stood still while they had the server's core.
"""


def section() -> str:
    """Return the section, with its heading."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    rows = {(row["subject"], row["what"]): row for row in result["rows"]}
    measured = [row for row in result["rows"] if row["subject"] == "llama.cpp" and " of saturation" in row["what"]]
    first = measured[0]["what"]
    rate = rows["llama.cpp", "saturation"]
    asked = [int(row["method"].partition(" ")[0]) for row in measured]
    lines = [
        _INTRODUCTION.format(
            saturation=f"{rate['value']:.3g} requests/s",
            requests=f"{min(asked)} to {max(asked)} requests",
            rounds=measured[0]["method"].partition(", ")[2].partition(";")[0],
            played=rows["played step by step", first]["method"],
        ),
        "| quantile, load | measured, ms | 80 % of blocks resampled | model | played at length | same requests |",
        "|---|---|---|---|---|---|",
    ]
    for row in measured:
        ours, long, same = (
            rows[subject, f"{row['what']}{suffix}"]["value"]
            for subject, suffix in (
                ("queueing model", ""),
                ("played step by step", ""),
                ("played step by step", ", same requests"),
            )
        )
        blocks = row["method"].partition("blocks ")[2]
        lines.append(
            f"| {_name(row['what'])} | {_ms(row['value'])} | {blocks} | {_ms(ours)} | {_ms(long)} | {_ms(same)} |"
        )
    lines += ["", "| largest error at any load | TTFT p50 | TTFT p95 | TPOT p50 | TPOT p95 |", "|---|---|---|---|---|"]
    errors = {target["id"].removeprefix("queueing."): target for target in result["targets"]}
    for name, prefix in (
        ("model beside the server", ""),
        ("played beside the server, same requests", "engine."),
        ("model beside the played engine", "formula."),
    ):
        cells = (errors[f"{prefix}{figure}"] for figure in ("ttft.p50", "ttft.p95", "tpot.p50", "tpot.p95"))
        lines.append(
            f"| {name} | "
            + " | ".join(f"{100 * cell['value']:.0f} % (limit {100 * cell['limit']:.0f})" for cell in cells)
            + " |"
        )
    return "\n".join(lines) + "\n"


def _name(what: str) -> str:
    """`ttft.p50 at 30% of saturation` -> `TTFT p50, 30 %`."""
    figure, _, load = what.partition(" at ")
    return f"{figure.upper().replace('.P', ' p')}, {load.partition('%')[0]} %"


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
