"""The page on the forecast's accuracy, from the committed result of its benchmark."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.forecast.figures import NESTED
from benchmarks.forecast.fit import alternatives, design
from benchmarks.forecast.folds import MACRO, MIN_SOURCES
from benchmarks.forecast.nested import GROUPS
from pertoken.forecast.efficiency import MAX_HIGH_OVER_LOW, intervals, table
from pertoken.forecast.terms import TERMS
from tools.docs import missing, tiers

RESULT = Path(__file__).parents[2] / "benchmarks/results/forecast-2026-11-27.json"
DATA = Path(__file__).parents[2] / "benchmarks/data/performance"
FILES = ("measurements.csv", "pairs.csv")
FOLDS = (NESTED, "without its gpu", "without its model", "without its source")
BASELINES = ("no change", "naive", "additive")
_INTRODUCTION = """\
The forecast sums what a step of decoding spends: reading weights, experts and cache, products of decode and of the
prefill that shares the device, launches per step, layer and sequence, work per request, and talk between ranks. Each
term is what the listed rate of the hardware gives, times a constant fitted from public measurements and adjusted by
number format, architecture, engine and mixture. What a host measured (tokens/s at its running requests, TPOT, TTFT,
use of the cache, activity of memory and tensor cores) moves those constants for that host, before and after alike,
and what it leaves open is the interval.

It abstains where it has no basis: a model whose shape is unknown, a dtype, architecture or engine that no
measurement covers, a knob it does not know.
"""
_REPRODUCED = """\
Of these, the {rows:,} rows and {pairs:,} pairs whose licence allows copying are in the repository
([`benchmarks/data/performance`](../benchmarks/data/performance)). What can be reproduced from it alone is how the
shipped table forecasts those rows, and a fit to them (`python -m benchmarks.forecast` and `python -m
benchmarks.fit_forecast` with the two files of that folder). The figures below, the folds and the constants as shipped
rest on all {of_rows:,} rows and {of_pairs:,} pairs, so they come out otherwise from the rows in the repository. The
tables under *Under a load* need none of these rows.
"""
_METHOD = """\
For each pair of public measurements the forecast sees the whole row before the change, and of the row after it only the
configuration. Errors are |predicted/measured - 1| of output tokens/s, median / p90. Each (source, model, GPU) weighs
the same; pairs marked as little trustworthy are left out. A host of yours is a device, a model and a source the table
has not seen. So the figures that count come from *nested folds*: the table that judges a pair is refitted from the
priors without every row that shares its source, its model or one of its GPUs. Tables refitted without the GPU, the
model or the source alone stand beside it.

What was chosen on what:

- The constants: each fold refits all of them, from the priors to convergence.
- `[interval]`: for each of {groups} groups of sources on pairs of the other groups, predicted by tables that saw no row
  of the group, and none of the pair's source, model and GPUs. Kinds with fewer than {few} sources share one width.
- `points`, the factor on what calibration changed where a change of the load rests on several operating points: for
  each group of sources on pairs of the others, the least of 0, 0.25, 0.5, 0.75 and 1 under which the intervals hold
  {held:.0f} % of each kind.
- Where errors of pairs begin to count less ({scales}) and how far architectures may differ (standard
  deviations of {spreads}): on nothing. The table, in each fold and as shipped, is the mean of the fits with each of
  these values. Before, each group of sources was judged by the one that did best on pairs of the other groups; on the
  present rows that gave 10.2 / 35.1 %, while each one alone gave 9.5 to 10.0 / 34.7 to 35.1 % in triple folds: the
  choice was noise.
- The weight of a large source in the fit ({weight:g}, beyond it a square root): on these triple folds themselves. One
  value was tried; it lowered their median error by a point, so the figures are optimistic by less than that.
- Which terms a tag may adjust, the bound of listed rates, the priors of an 8-bit cache, of the kernels of bitsandbytes
  and AutoGPTQ, of the launches of formats that quantize activations, of mixtures in FP8 with a scale per block under
  vLLM, of Machete, of images and of the time per sequence under vLLM, and the scale of errors of rows: for reasons of
  engineering, but after errors of these rows were seen.
- Which kernels count as one path (an engine class with a stored format, on the hardware of one maker; llama.cpp's block
  formats are one; weights in 16 bits are one on all hardware with a prior; 4-bit integers run by Machete under vLLM on
  Hopper): a judgement, set with the share of abstained pairs in sight. With 16 bits of each maker as a path of its own
  the 47 pairs of Neuron devices were abstained as well: 11.3 / 43.1 %, 6.6 % abstained.
- The constants of power caps: on all rows. No fold refits them.

An interval is a quantile times a scale: a floor, what the measured row leaves open, how far calibration moves the
ratio away from the table, and a change of the engine's version, in quadrature. Sources weigh the same, and the share is
raised for their number. The quantile of a kind is drawn towards that of all kinds, which counts as {few} sources:
before, one bad source widened moves to another GPU until some were abstained (p90 35.7 to 34.8 %, coverage 95 to 93 %).
How far the measured row is from the table, whether its batch was measured, and the size of the
change were tried as further parts: the search set each to 0 in at least four of five groups. What also did not help on
the triple folds and was dropped: carrying only a part of a large residual (median / p90 {carry}), and a share of each
deviation that outlives a change, `[transfer]` ({transfer}); without either it was {plain}. A path of their own for
mixtures in FP8 with a scale per block was kept (11.1 / 40.6 to 10.9 / 38.4 %; for dense models it did not help). Beside
it these were tried and dropped: watts per peak FLOP as a term of GEMMs (11.3 / 38.7 %), a tag for workstation parts
(10.9 / 38.5 %), and without it a cache in 16 bits for InferenceX on Blackwell (10.9 / 41.5 %) and fourteen other
spreads between deployments (11.0 to 11.4 / 39.9 to 41.2 %). With it, paths by maker and images encoded in 16 bits
(11.1 / 39.1 %), each spread halved or doubled and three spreads of work per request gave 11.1 to 11.9 / 38.8 to
39.3 %, their mean 11.1 / 39.0 %. An attenuation of each kind of change, chosen in nested folds, gave 11.1 / 39.3 %
beside 11.1 / 39.4 % without, and was removed. Constants of their own for Machete gave 11.0 / 39.2 % and were kept. To
that, a prior for the time that vLLM's Python processes spend on each sequence of a step gave 11.0 / 37.9 % and was kept
(a table without ML.ENERGY, which measured batches of up to 4,000, hardly sees that time; half as much again gave
11.2 / 37.8 %). One step for all devices that one process walks through, as llama.cpp and transformers do, instead of
one for each gave 11.4 / 40.0 % and was dropped.

The last changes, each on top of those before it, as errors in triple folds without the abstention of wide intervals
(most lowered one of the two figures; those that correct a mistake were kept either way): {last}

Tried beside these and dropped: prompts that ML.ENERGY repeats as hits of the prefix cache where it holds them
(9.8 / 35.4 %), the running requests of Little's law where a row's rate and TPOT show that a quarter of them waited
(9.6 / 35.0 %), vocabularies, with output heads in 16 bits (10.6 / 37.4 to 10.5 / 36.9 % without), the
mean of six fits to resampled sources (10.6 / 38.6 to 10.5 / 36.9 %), a tag for Blackwell parts that are no server parts
(no change), and other spreads between deployments (9.5 to 9.9 / 33.7 to 34.9 %).

With five more designs to choose from in the nested folds (no bound of listed rates, no damping of large sources,
formats that adjust the time between steps, and before any measurement no launches of formats, or no time per sequence
of vLLM) two groups of sources chose to do without the bound and two the larger spread of architectures, and the nested
folds gave 10.5 / 36.2 %. On average over the groups the fit without the bound was as good as the one with it, and the
other four were worse. Pairs that are marked as little trustworthy chose nothing here: over the changes above up to the
caches that a row states, their mean absolute log error, at most 1 each, went from 0.264 to 0.263 (medians:
`raise_batch` 8.2 to 6.8 %, `tp_change` 6.7 to 8.7 %, `raise_batch_far` 11.6 to 16.4 %; now 6.6, 9.7 and 13.7 %). Five
other kinds of change with enough pairs went from 18.6 / 59.4 to 19.8 / 62.8 % in the mean. So a part of the gain holds
only for the rows that were looked at; what was wrong before, and is right now, are readings of rows.

Kernels that no other source ran are abstained and count as no change; predicted like the others they would give
9.5 / 32.5 %.

Public rows leave much out. What is filled in: the cache dtype that the launch scripts of a source set, which of its
runs draft tokens by its change log (it measured DeepSeek-R1 with and without, and its rows do not show which), layouts
(a server splits its model over all its devices, unless it is an audited submission or states that it runs replicas;
ML.ENERGY's launch code splits attention over all devices where it spreads experts over them),
and how long before the newest a dated row was measured, since the same configuration was measured to get faster with
its engine.

A pair that is not predicted counts as no change in errors and as abstained. Reasons: kernels (engine class and stored
format) that no other source ran; another layout of a server that splits prefill and decode; an 80 % interval whose
high is over {too_wide:g} times its low; speculation in a batch where nobody reports how much is drafted; the prefix
cache of a server that only decodes.
"""
_LAST = (
    ("before", "11.0 / 37.9"),
    ("TensorRT-Edge-LLM as an engine of its own: constants fitted to a Jetson had been applied to B200", "10.6 / 38.4"),
    ("more launches of LLM.int8() before bitsandbytes 0.45", "10.9 / 37.2"),
    ("launches of AutoGPTQ in 8 bits as a prior", "10.5 / 36.9"),
    ("a bound of listed rates", "10.9 / 37.0"),
    ("launches that quantize activations as a prior", "10.5 / 36.1"),
    ("errors of pairs that count less from 0.15 on, not from 0.1", "10.3 / 35.9"),
    ("weight formats that do not adjust the time between steps", "9.9 / 35.6"),
    ("architectures that differ less", "9.4 / 35.7"),
    ("ranks of ML.ENERGY's mixtures as its launch code sets them: attention is split, not copied", "9.7 / 34.1"),
    ("fewer of these priors, a tighter bound, requests that no architecture adjusts", "9.5 / 34.2"),
    ("TensorRT-Edge-LLM apart from engines without constants of their own, too", "9.7 / 34.8"),
    ("Neuron's compiled engines read a cache of fixed size, as its documentation states", "9.6 / 34.7"),
    ("caches of the size that a row states", "9.6 / 34.5"),
    (
        "servers of InferenceX on GB200 as several engines for prefill and decode, rows whose weights exceed their "
        "devices, neither of which is fitted any more, and Neuron's 8 bits as a format of stored weights",
        "9.6 / 34.7",
    ),
    ("the mean of the fits of four designs", "9.7 / 34.4"),
)
"""The last changes, with median and p90 on triple folds after each, in percent (2026-11-27)."""
_DROPPED = {"plain": "12.2 / 42.1 %", "carry": "12.0 to 14.1 / 42.0 to 51.6 %", "transfer": "12.3 / 42.7 %"}
"""Errors on the triple folds before the constants changed, by mechanisms that are no longer in the code."""
_OTHER_KINDS = """\
Of the kinds that the mean leaves out, some rest on very little. An 8-bit cache on hardware that does not convert FP8
ran at 0.1 to 0.8 times under two kernels, and at 1.5 in E5M2; its interval is too wide to be an estimate. A kind that
no pair was measured for has an interval of at least a factor of {others:.1f}. A change of the engine (`switch_engine`)
is no knob, so no advice rests on it.
"""
_MISSING = """\
Where two rows differ, what sets them apart is the evidence that is missing: engine versions, mixtures, batches that
nobody wrote down, and devices on which one source alone measured a kind of change.
"""

_LEARNED = """\
More statistics on the same columns would not: where a kernel regression foretells each left-out pair's error from those
of other sources, the mean over kinds is {learned}.
"""


def page(note: str) -> str:
    """Return the page; `note` marks it as generated."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    rows = {(row["subject"], row["what"]): row for row in result["rows"]}
    fit = table()["fit"]
    lines = [
        f"# Forecast\n\n{note}",
        _INTRODUCTION,
        f"Constants: [`efficiency.toml`](../pertoken/forecast/efficiency.toml), {fit['parameters']} of them for "
        f"{len(TERMS)} terms, fitted by `python -m benchmarks.fit_forecast` to {fit['rows']:,} rows and "
        f"{fit['pairs']:,} pairs as of {fit['as_of']}.\n",
        _reproduced(fit),
        "## How far it is off\n",
        _METHOD.format(
            groups=GROUPS,
            few=MIN_SOURCES,
            weight=design()["evidence"]["source_weight"],
            scales=_values("evidence", "pair_scale"),
            spreads=_values("spread", "ampere"),
            last="; ".join(f"{what} ({errors} %)" for what, errors in _LAST) + ".",
            too_wide=MAX_HIGH_OVER_LOW,
            held=100 * design()["interval"]["share_with_points"],
            **_DROPPED,
        ),
        "| kind of change | pairs | as shipped | " + " | ".join((*FOLDS, *BASELINES)) + " |",
        "|---|---|---|" + "---|" * len((*FOLDS, *BASELINES)),
    ]
    kinds = dict.fromkeys(what.rpartition(".")[0] for subject, what in rows if subject == "shipped table")
    for kind in sorted(kinds, key="macro".__eq__):
        n = rows["shipped table", f"{kind}.median"]["method"].rpartition("n=")[2]
        cells = [_errors(rows, subject, kind) for subject in ("shipped table", *FOLDS, *BASELINES)]
        name = "**mean of the nine kinds above `chunked_prefill`**" if kind == "macro" else f"`{kind}`"
        lines.append(f"| {name} | {n} | {' | '.join(cells)} |")
    lines += [
        "\nOf the mean over kinds:\n",
        "| | 80 % interval holds | half width (high over likely) | right direction | abstained |",
        "|---|---|---|---|---|",
    ]
    for subject in ("shipped table", *FOLDS):
        shares = [_share(rows, subject, figure) for figure in ("coverage", "sign", "abstained")]
        shares.insert(1, f"{rows[subject, 'macro.half_width']['value']:.2f}")
        lines.append(f"| {subject} | {' | '.join(shares)} |")
    lines += [
        "",
        "The direction counts where the measured change exceeds 10 %.",
        "",
        _by_source(rows),
        "",
        _tuned(rows),
        "",
        "The same configuration, as far as it is written down, measured twice (highest over lowest, median / p90): "
        + "; ".join(
            f"{rows['noise floor', f'{name}.median']['value']:.2f} / {rows['noise floor', f'{name}.p90']['value']:.2f} "
            f"{name}"
            for name in ("same engine version", "across engine versions")
        )
        + ".",
    ]
    lines += ["", _OTHER_KINDS.format(others=math.exp(intervals().unmeasured_floor)).rstrip()]
    lines += tiers.lines(rows)
    lines += _energy(rows)
    lines += ["\n## What would make it better\n", _MISSING, "| pairs | mean over kinds, nested folds |", "|---|---|"]
    for what in dict.fromkeys(what.rpartition(".")[0] for subject, what in rows if subject == "what is missing"):
        lines.append(f"| {what} | {_errors(rows, 'what is missing', what)} |")
    learned = _errors(rows, "corrected by learned errors", "macro")
    lines += ["", _LEARNED.format(learned=learned).rstrip(), *missing.lines(rows)]
    return "\n".join(lines) + "\n"


def _values(section: str, name: str) -> str:
    """Return the values that a number has in the designs of the fit."""
    *values, last = (f"{value:g}" for value in sorted({design(one)[section][name] for one in ("", *alternatives())}))
    return f"{', '.join(values)} or {last}"


def _tuned(rows: dict[tuple[str, str], Any]) -> str:
    """Return what the groups of sources chose, as ranges."""
    subject = "tuned in nested folds"
    names = dict.fromkeys(what.rpartition(".")[0] for row_subject, what in rows if row_subject == subject)
    ranges = []
    for name in names:
        title, _, kind = name.partition(" ")
        if title == "quantile" and kind not in MACRO:
            continue
        low, high = (rows[subject, f"{name}.{end}"]["value"] for end in ("min", "max"))
        ranges.append(f"{name} {low:g}" if low == high else f"{name} {low:g} to {high:g}")
    return f"Chosen in the nested folds, over the groups of sources: {'; '.join(ranges)}."


def _by_source(rows: dict[tuple[str, str], Any]) -> str:
    """Return how the share that the intervals hold differs between sources."""
    subject = "intervals by source"
    mean, sd, low, below = (100 * rows[subject, name]["value"] for name in ("mean", "sd", "lowest tenth", "below"))
    return (
        "The intervals are wider than an 80 % share of all pairs asks, since a host is one more source: of the pairs\n"
        f"of one source they hold {mean:.0f} % in the mean (standard deviation {sd:.0f} points), {low:.0f} % at the\n"
        f"lowest tenth of the sources, and less than 80 % at {below:.0f} % of the sources."
    )


def _reproduced(fit: Mapping[str, Any]) -> str:
    """Return which of the page's figures the rows in the repository give again."""
    rows, pairs = (len((DATA / name).read_text(encoding="utf-8").splitlines()) - 1 for name in FILES)
    return _REPRODUCED.format(rows=rows, pairs=pairs, of_rows=fit["rows"], of_pairs=fit["pairs"])


def _energy(rows: dict[tuple[str, str], Any]) -> list[str]:
    subjects = ("energy per token", "energy per token, constant power", "energy per token, no change")
    kinds = dict.fromkeys(what.rpartition(".")[0] for subject, what in rows if subject == subjects[0])
    return [
        "\n## Energy\n",
        "Ratios of joules per generated token, forecast from the shipped table's tokens/s and what the power model"
        " ([`power.toml`](../pertoken/forecast/power.toml)) makes of it, where they were measured; median / p90. Its"
        " constants were fitted on some of these rows; `python -m benchmarks.power` leaves each GPU out.\n",
        "| kind of change | pairs | forecast | constant power | no change |",
        "|---|---|---|---|---|",
        *(
            f"| {kind} | {rows[subjects[0], f'{kind}.median']['method'].rpartition('n=')[2]} | "
            + " | ".join(_errors(rows, subject, kind) for subject in subjects)
            + " |"
            for kind in sorted(kinds, key=lambda name: name == "mean of kinds")
        ),
    ]


def _errors(rows: dict[tuple[str, str], Any], subject: str, kind: str) -> str:
    pair = [rows.get((subject, f"{kind}.{figure}")) for figure in ("median", "p90")]
    values = [100 * row["value"] for row in pair if row is not None and row["value"] is not None]
    return " / ".join(f"{value:.1f}" for value in values) + " %" if len(values) == 2 else "none left"


def _share(rows: dict[tuple[str, str], Any], subject: str, figure: str) -> str:
    value = rows[subject, f"macro.{figure}"]["value"]
    return "unknown" if value is None else f"{100 * value:.0f} %"
