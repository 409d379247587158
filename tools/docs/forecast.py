"""The page on the forecast: what it knows and how far off it is, from committed results of benchmarks."""

from collections.abc import Sequence

from benchmarks.forecast.figures import UNSEEN
from benchmarks.forecast.folds import MACRO
from pertoken.forecast.calibration import MAX_SHIFT, MAX_SURPRISE
from pertoken.forecast.efficiency import intervals, table
from tools.docs.figures import RESULTS, Result, newest, read_result

POINTS = 10
"""Operating points of a host that stand for its minutes."""
PROBES = "site-2026-11-28-epyc-2core-loaded-seed-150061.json"
"""Result of the benchmark of probes after whose seed nothing of the probe was changed."""
CPUS = "site-2026-11-28-epyc-2core-loaded-seed-161803.json"
"""The one whose models are predicted from the rates of the CPUs alone, too."""
THUMB = "rule of thumb"
_PAGE = """\
# Forecast

{note}
The forecast answers what a change of a deployment does to its tokens/s, TPOT and TTFT before you make it. It knows
more of a deployment that it has seen; one command shows it a load that the deployment has not had yet:

```sh
pertoken probe URL
```

## What it knows

A step of decoding reads weights, experts and cache, computes products of decode and of the prefill beside it, launches
kernels, and moves bytes between ranks. Each of these times is what the listed rate of the hardware gives, times a
constant fitted from {rows:,} rows and {pairs:,} pairs of public measurements: {parameters} constants
([`efficiency.toml`](../pertoken/forecast/efficiency.toml)), 74 with everything else that tunes it.

What a host measured (tokens/s at its running requests, TPOT, TTFT, use of the cache, activity of memory and tensor
cores) moves these constants for that host, before and after a change alike. One operating point moves a ratio by at
most {shift:g} in its logarithm, n points by n times that. What the measurements leave open is the interval.

It abstains where nothing physical is known: a model whose shape is unknown, a device that the catalog does not list, a
knob that it does not know. A change from or to kernels that no public source ran is forecast, with a wide interval and
the reason.

## How far off it is, and what lifts it

Each forecast that is shown names its tier with this error, and the command that lifts it: lists, details, plans,
reports and `pertoken size`, their JSON (`forecast`) and the MCP server.

| tier | what it rests on | measured error, median / p90 | what lifts it |
|---|---|---|---|
| measured here | minutes of this deployment's own load | {measured} (changes of the load, {points} points) | |
| probed here | points of a probe at the load in question | {probed} (llama.cpp on CPUs, by CPU time) | |
| stated | model, device, engine and format covered by public sources | {stated} | `pertoken probe` at that load |
| probed CPUs | rates of the CPUs by a probe of another model | {cpus} (llama.cpp, 18 configurations) | a probe there |
| physics only | listed rates | {physics} | `pertoken probe` at that load |

Errors are |predicted/measured - 1| of output tokens/s, the mean over nine kinds of change. Those of *stated* and
*physics only* are of sources that chose nothing, each forecast by a table refitted without the source, its model and
its GPUs. Kernels that no other source ran, and rows that leave a configuration open, are *physics only*: the interval
is at least a factor of {unmeasured:.1f} either way, and money waits for a trial. So is a host at over {surprise:.1f}
times the expected speed, or under the inverse, whatever was measured: something unknown is at work there. The pairs of
*measured here*, calibrated on one point each: {one_point}.

{by_regime}

{by_kind}

The rule of thumb: FP8 and INT8 ×1.4, INT4 ×1.3, FP4 ×1.2, another GPU as its memory bandwidth, twice the ranks ×1.6,
another model as its parameters to the power of 0.7. Older work had seen errors of most of these sources, so a
laboratory of yours may see more. Earlier editions of this page stated smaller errors; they are withdrawn. How it was
fitted, what was tried and what would make it better:
[`benchmarks/forecast/NOTES.md`](../benchmarks/forecast/NOTES.md).

## What decisions by it cost

Each change of these pairs that the forecast claims to cut the bill by a tenth or more is made
(`python -m benchmarks.decisions`). Regret is what was paid over the cheaper of both configurations, in shares of the
bill before the change; prices are the lowest list prices of
[`device_prices.csv`](../benchmarks/data/device_prices.csv).

{decisions}

The rule of thumb makes every change that it claims to save. On FP4 it decides as well: those pairs are of one model on
one device, and four of five change the engine's version with the format.

## Under a load

Objectives for latency are judged by what was measured: the quantile over requests of the window, times the ratio of
the forecasts after and before a change, both at the p95 demand. The interval holds the sample of the measured quantile,
what the calibration leaves open of the ratio and what the queueing model misses of it. A figure that was not measured
has no verdict, and the advice names it. A change that improves an overloaded service is offered, with what is left
over; one that misses an objective clearly and is worse than now is refused, and so is a load above what a full batch
finishes. On four generated fleets {inside:.0f} % of later hours lie inside the 80 % interval, whose high is
{high_over_low:.2f} times its low (`python -m benchmarks.latency`). On a real llama.cpp on two
busy cores, with loads that differ 3.2 times, only {llama_inside:.0f} % of single blocks do
(`python -m benchmarks.latency_llama`): the latency is measured over the mix of all loads, and its forecast is at the
p95 of the demand. Forecast from hours (the forecast at the later load, times the median of what each earlier block
measured over its own forecast) {llama_by_hour:.0f} % do, its high {llama_width:.2f} times its low; neither
holds, in four blocks of 40 s on busy cores. The advisor does not use it: it compares one mix of hours before and after
a change, and a median of hours leaves out the stalls that its users had. So trust the latency of
`pertoken plan --traffic` less where the load varies much within a day.

Runs that others measured, each forecast as the finite run it was, from its configuration and rate (`benchmarks.load`).
Errors are medians over configurations: tokens/s where the server did not keep up, TTFT where it did.

{load}

vLLM on an H100 NVL and an A100 is one laboratory's work (pChitral/vllm-cost-meter, MIT); the time of a request outside
the engine and the widths of intervals were read from it. The other laboratory (AccelMark, CC-BY-4.0) chose nothing:
{accelerators} configurations, most under vLLM 0.7.3, with prompts of about 200 tokens (chat) or 28,700 (long prompts,
whose published length cannot have been computed: it takes more than the listed peak of the device). **Do not trust a
forecast of such a load before a probe**.

## How to check it

`python -m benchmarks.forecast --measurements M --pairs P` scores rows of your own, and with `--out FILE` only predicts;
`benchmarks.decisions` decides on them, `benchmarks.load --runs R --out FILE` takes runs under load, and
`benchmarks.fit_forecast FOLDER` fits the constants again. The rows whose licence allows copying are in
[`benchmarks/data/performance`](../benchmarks/data/performance).

Results: {results}.
"""


def page(note: str) -> str:
    """Return the page."""
    names = ("forecast", "decisions", "calibrate_with", "load", "load_accelmark", "latency", "latency_llama")
    files, (rows, decisions, passive, load, other, latency, llama) = zip(*map(newest, names), strict=True)
    site, cpus = read_result(RESULTS / PROBES), read_result(RESULTS / CPUS)
    fit = table()["fit"]
    return _PAGE.format(
        note=note,
        parameters=fit["parameters"],
        rows=fit["rows"],
        pairs=fit["pairs"],
        shift=MAX_SHIFT,
        unmeasured=2.718281828 ** intervals().unmeasured,
        by_regime=_by_regime(rows),
        by_kind=_by_kind(rows),
        decisions=_decisions(decisions),
        points=POINTS,
        measured=_error(passive, f"{POINTS} points", "load"),
        one_point=_error(passive, f"0 of {POINTS}", "load"),
        probed=_percent(site["target", "site.load_median"], site["target", "site.load_p90"]),
        cpus=_percent(cpus["pertoken", "rates median"], cpus["pertoken", "rates p90"]),
        stated=_error(rows, f"{UNSEEN}, stated", "macro"),
        physics=_error(rows, f"{UNSEEN}, physics only", "macro"),
        surprise=2.718281828**MAX_SURPRISE,
        inside=100 * latency["target", "latency.inside"],
        llama_inside=100 * llama["target", "latency.inside"],
        llama_by_hour=100 * llama["target", "latency.by_hour.inside"],
        llama_width=llama["target", "latency.by_hour.high_over_low"],
        high_over_low=latency["target", "latency.high_over_low"],
        load=_load(load, other),
        accelerators=len(_configurations(other, "")),
        results=",\n".join(f"[{file}](../benchmarks/results/{file})" for file in (*files, PROBES, CPUS)),
    )


def _by_regime(rows: Result) -> str:
    subjects = ("", *(f", {name}" for name in _TIERS), *(f", {name}" for name in _REGIMES))
    lines = ["| pairs | median / p90 | 80 % interval holds | right direction | abstained |", "|---|---|---|---|---|"]
    for subject in subjects:
        held, sign, silent = (
            f"{100 * rows[f'{UNSEEN}{subject}', f'macro.{figure}']:.0f} %"
            for figure in ("coverage", "sign", "abstained")
        )
        error = _error(rows, f"{UNSEEN}{subject}", "macro")
        lines.append(f"| {subject.removeprefix(', ') or 'all'} | {error} | {held} | {sign} | {silent} |")
    for baseline in (THUMB, "additive", "naive", "no change"):
        lines.append(f"| {_BASELINES[baseline]} | {_error(rows, baseline, 'macro')} | | | |")
    return "\n".join(lines)


_TIERS = ("stated", "stated text", "stated text, one engine version", "physics only")
_REGIMES = ("up to 4 running", "5 to 32 running", "over 32 running")
_BASELINES = {
    THUMB: "all, by the rule of thumb",
    "additive": "all, by a roofline and the time that it missed before the change",
    "naive": "all, by a roofline",
    "no change": "all, as if nothing changed",
}


def _by_kind(rows: Result) -> str:
    lines = ["| kind of change | forecast | rule of thumb | no change |", "|---|---|---|---|"]
    for kind in MACRO:
        if (UNSEEN, f"{kind}.median") in rows:
            errors = " | ".join(_error(rows, subject, kind) for subject in (UNSEEN, THUMB, "no change"))
            lines.append(f"| `{kind}` | {errors} |")
    return "\n".join(lines)


def _decisions(rows: Result) -> str:
    figures = {"regret": "regret", "loss": "losing changes", "captured": "saving captured", "claim": "claim off by"}
    lines = [f"| | {' | '.join(figures.values())} |", f"|---|{'---|' * len(figures)}"]
    for adviser in ("forecast", THUMB, "mean of both", "never change"):
        values = [rows[adviser, f"all.{figure}"] for figure in figures]
        cells = ("–" if value is None else f"{100 * value:.1f} %" for value in values)
        lines.append(f"| {adviser} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _load(load: Result, other: Result) -> str:
    lines = ["| | tokens/s | TPOT | TTFT |", "|---|---|---|---|"]
    for label, rows, subject, prefix in (
        ("vLLM, no host data", load, "forecast", ""),
        ("vLLM, calibrated on one run", load, "forecast, calibrated", ""),
        ("vLLM, textbook roofline", load, "roofline", ""),
        ("SGLang without CUDA graphs, no host data", load, "forecast, without graphs", ""),
        ("other laboratory, chat", other, "forecast", "A-"),
        ("other laboratory, chat, textbook roofline", other, "roofline", "A-"),
        ("other laboratory, long prompts", other, "forecast", "D-"),
        ("other laboratory, long prompts, textbook roofline", other, "roofline", "D-"),
    ):
        cells = [_median(_of(rows, subject, f"{name}.{prefix}")) for name in ("tok_s", "tpot", "ttft")]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _of(rows: Result, subject: str, prefix: str) -> list[float]:
    return [
        value
        for (of, what), value in rows.items()
        if of == subject and what.startswith(prefix) and "left_out" not in what
    ]


def _configurations(rows: Result, prefix: str) -> list[float]:
    return _of(rows, "forecast", f"tpot.{prefix}")


def _median(values: Sequence[float]) -> str:
    ordered = sorted(values)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2 if ordered else None
    return "–" if middle is None else f"{100 * middle:.1f} %"


def _error(rows: Result, subject: str, kind: str) -> str:
    return _percent(rows[subject, f"{kind}.median"], rows[subject, f"{kind}.p90"])


def _percent(median: float, p90: float) -> str:
    return f"{100 * median:.1f} / {100 * p90:.1f} %"
