"""The page on the forecast's accuracy, from the committed result of its benchmark."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pertoken.forecast.efficiency import table
from pertoken.forecast.terms import TERMS

RESULT = Path(__file__).parents[2] / "benchmarks/results/forecast-2026-11-21.json"
DATA = Path(__file__).parents[2] / "benchmarks/data/performance"
FILES = ("measurements.csv", "pairs.csv")
FOLDS = ("without its gpu", "without its model", "without its source")
BASELINES = ("no change", "naive", "additive")
_INTRODUCTION = """\
The forecast sums what a step of decoding spends: reading weights, experts and cache, products of decode and of the
prefill that shares the device, launches per step, layer and sequence, work per request, and talk between ranks. Each
term is what the listed rate of the hardware gives, times a constant fitted from public measurements and adjusted by
number format, architecture, engine and mixture. What a host measured (tokens/s at its running requests, TPOT, TTFT,
use of the cache, activity of memory and tensor cores) moves those constants for that host, before and after alike,
and what it leaves open is the interval.

It says nothing where it has nothing to go on: a model whose shape is unknown, a dtype, architecture or engine that no
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
has not seen, so the figures that count leave each GPU, model and source out in turn and refit the constants. The shares
under `[transfer]` and `[attenuation]`, the widths under `[error]` and how little far-off rows count in the fit were
chosen on those same left-out pairs, not in folds of their own, and so were the constants of power caps, which no fold
refits; the priors of an 8-bit cache and of bitsandbytes' kernels were set after their errors there were seen. That
makes the figures a little optimistic. Which of a deployment's deviations a change can set anew at all is fixed by what
it touches (an 8-bit cache its reading, a batch nothing), since pairs of a few deployments would ask for anything.

Public rows leave much out. What is filled in: the cache dtype that the launch scripts of a source set, which of its
runs draft tokens by its change log (it measured DeepSeek-R1 with and without, and its rows do not say which), layouts
(a server splits its model over all its devices, unless it is an audited submission or says that it runs replicas), and
how long before the newest a dated row was measured, since the same configuration was measured to get faster with its
engine.

A pair that is not predicted counts as no change and so ties with it: speculation in a batch where nobody tells how much
is drafted, and the prefix cache of a server that only decodes, since the forecast does not know what receiving the
cache of a prompt costs.
"""
_OTHER_KINDS = """\
Of the kinds that the mean leaves out, some rest on very little. `kv_fp8`: on hardware that does not convert FP8, two
kernels ran at 0.1 to 0.8 times, and E5M2 (a value in FP16 cut in half, which any hardware unpacks by a shift) at 1.5;
the ninth decile is one kernel on RTX 2080 Ti, far slower than forecast; its interval is a factor of {unpacked:.1f}.
`prefix_cache`: two pairs, one of which is abstained, so that the median ties with *no change*, while *additive* is
nearer on the other. `chunked_prefill`: one pair of an unknown model on an unknown Apple device. A kind with fewer than
three clusters is shrunk as others were on average, and its interval is at least a factor of {others:.1f}.

A change of the engine (`switch_engine`) is no knob, so no advice rests on it: what engines reach of their hardware was
fitted on other changes, its predictions are shrunk as left-out pairs ask (`[attenuation]`), and the direction is told
right in {directions} of left-out pairs. What tells most is whether one side drafts tokens. In `parallelism_same_n`
(experts spread otherwise over the same devices) too: what had looked like a gain of spreading experts was drafts.
"""
_MISSING = """\
Where two rows differ, what sets them apart is the evidence that is missing: engine versions, mixtures, batches that
nobody wrote down, and devices on which one source alone measured a kind of change.
"""

_LEARNED = """\
More statistics on the same columns would not: where a kernel regression foretells each left-out pair's error from those
of all others of its kind, the mean over folds and kinds is {learned}.
"""


def page(note: str) -> str:
    """The page; `note` says that it is generated."""
    found = json.loads(RESULT.read_text(encoding="utf-8"))
    rows = {(row["subject"], row["what"]): row for row in found["rows"]}
    fit = table()["fit"]
    lines = [
        f"# Forecast\n\n{note}",
        _INTRODUCTION,
        f"Constants: [`efficiency.toml`](../pertoken/forecast/efficiency.toml), {fit['parameters']} of them for "
        f"{len(TERMS)} terms, fitted by `python -m benchmarks.fit_forecast` to {fit['rows']:,} rows and "
        f"{fit['pairs']:,} pairs as of {fit['as_of']}.\n",
        _reproduced(fit),
        "## How far it is off\n",
        _METHOD,
        "| kind of change | pairs | as shipped | " + " | ".join((*FOLDS, *BASELINES)) + " |",
        "|---|---|---|" + "---|" * len((*FOLDS, *BASELINES)),
    ]
    kinds = dict.fromkeys(what.rpartition(".")[0] for subject, what in rows if subject == "shipped table")
    for kind in sorted(kinds, key=lambda each: each == "macro"):
        n = rows["shipped table", f"{kind}.median"]["method"].rpartition("n=")[2]
        cells = [_errors(rows, subject, kind) for subject in ("shipped table", *FOLDS, *BASELINES)]
        name = "**mean of the nine kinds above `chunked_prefill`**" if kind == "macro" else f"`{kind}`"
        lines.append(f"| {name} | {n} | {' | '.join(cells)} |")
    lines += [
        "\nOf the mean over kinds:\n",
        "| | 80 % interval holds | right direction | abstained |",
        "|---|---|---|---|",
    ]
    for subject in ("shipped table", *FOLDS):
        shares = [_share(rows, subject, figure) for figure in ("coverage", "sign", "abstained")]
        lines.append(f"| {subject} | {' | '.join(shares)} |")
    lines += [
        "",
        "The direction counts where the measured change exceeds 10 %. Folds in which no pair of a kind is left to fit"
        " on are left out of that kind: "
        + ", ".join(str(row["value"]) for row in found["rows"] if row["subject"] == "folds")
        + ".",
        "",
        "The same configuration, as far as it is written down, measured twice (highest over lowest, median / p90): "
        + "; ".join(
            f"{rows['noise floor', f'{name}.median']['value']:.2f} / {rows['noise floor', f'{name}.p90']['value']:.2f} "
            f"{name}"
            for name in ("same engine version", "across engine versions")
        )
        + ".",
    ]
    factor = {kind: math.exp(table()["error"][kind]["floor"]) for kind in ("kv_fp8_unpacked", "other")}
    directions = [100 * rows[fold, "switch_engine.sign"]["value"] for fold in FOLDS]
    told = _OTHER_KINDS.format(
        unpacked=factor["kv_fp8_unpacked"],
        others=factor["other"],
        directions=f"{min(directions):.0f} to {max(directions):.0f} %",
    )
    lines += ["", told.rstrip()]
    lines += _energy(rows)
    lines += ["\n## What would make it better\n", _MISSING, "| pairs | mean over folds and kinds |", "|---|---|"]
    for what in dict.fromkeys(what.rpartition(".")[0] for subject, what in rows if subject == "what is missing"):
        lines.append(f"| {what} | {_errors(rows, 'what is missing', what)} |")
    learned = _errors(rows, "corrected by learned errors", "macro")
    lines += ["", _LEARNED.format(learned=learned).rstrip()]
    return "\n".join(lines) + "\n"


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
            for kind in sorted(kinds, key=lambda each: each == "mean of kinds")
        ),
    ]


def _errors(rows: dict[tuple[str, str], Any], subject: str, kind: str) -> str:
    found = [rows.get((subject, f"{kind}.{figure}")) for figure in ("median", "p90")]
    values = [100 * row["value"] for row in found if row is not None and row["value"] is not None]
    return " / ".join(f"{value:.1f}" for value in values) + " %" if len(values) == 2 else "none left"


def _share(rows: dict[tuple[str, str], Any], subject: str, figure: str) -> str:
    value = rows[subject, f"macro.{figure}"]["value"]
    return "unknown" if value is None else f"{100 * value:.0f} %"
