"""Accuracy of the forecast by what is known of a host, from committed results of three benchmarks."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.forecast.calibrate_with import NEAR_POINTS
from benchmarks.forecast.figures import NESTED
from pertoken.forecast.host import LOAD_KINDS

RESULTS = Path(__file__).parents[2] / "benchmarks/results"
LONG = "site-long"
"""A run of 54 minutes of the benchmark of probes."""
VLLM = "site_vllm"
PROBES = {"site": "probe", LONG: "probe, long rounds", VLLM: "probe, vLLM"}
"""Results of the benchmark of probes, with the tiers that they stand for."""
POINTS = 10
"""Operating points of a host that stand for its minutes."""
CHANGED_AFTER = ("20266", "31117", "40961", "52817", "71993", "83417", "90527")
"""Seeds of runs of `benchmarks.site` after which the forecast of CPUs, the probe or the benchmark was changed."""
Rows = Mapping[tuple[str, str], Any]
_INTRODUCTION = """
## By what is known of a host

*No host data* is the mean over kinds in the nested folds. *Passive* is a change of the load on a deployment of which
{points} further operating points were measured, in triple folds (`--calibrate-with {points} --folds`), beside the
*same pairs* calibrated on the row before the change alone; in the median `raise_batch` is 2 times the batch and
`raise_batch_far` 32 times. *By terms alone*, points only move the constants of a host. Near its points, a forecast is
also corrected by what it misses there (a Gaussian process over the logarithms of batch, context and length).
{near}
*Runs under load* are those of `benchmarks.load`, all figures together.

*Probe* is `benchmarks.site`: one probe on a real llama.cpp on CPUs, in parts some minutes apart, then other slots,
contexts and loads, or other formats. Its clients' rounds are played step by step, with the lengths that are served. The
*probed configuration itself* is served in each round, too: its error is what the machine drifted and what the probe
missed. The forecast of CPUs (their rates of attention, of rows and tiles of a step and of experts, the least width of
an interval), the order of the probe's steps or the start of the clients was changed after each of the runs with the
seeds {seeds}, so these judge them no more. {site}{noise}{long}{vllm}
"""
_VLLM = """

*Probe, vLLM* is the same with a vLLM for CPUs (`--engine vllm`): two dense models, four configurations with another
load, other threads or weights (16 bits, and 8 as W8A8), and rounds of some seconds. Its forecasts of other formats
before these were probed rest on rates of the CPUs that were measured wrongly: while the worker of another server still
polled for work, two threads came out slower than one. The benchmark waits for that worker now. No whole run has shown
the effect yet."""
_HEAD = (
    "| tier | median / p90 | 80 % interval holds | half width (high over likely) | abstained |\n|---|---|---|---|---|"
)
_NOT_RUN = "not committed yet"


def lines(rows: Rows) -> list[str]:
    """Return the lines of the section; `rows` are those of the forecast's own result."""
    mean = {figure: rows[NESTED, f"macro.{figure}"]["value"] for figure in _FIGURES}
    text = [
        _INTRODUCTION.format(
            points=POINTS,
            near=_near(),
            seeds=", ".join(CHANGED_AFTER),
            site=_judged(),
            noise=_noise(_newest("site")),
            long=_long(_newest(LONG)),
            vllm="" if _newest(VLLM) is None else _VLLM,
        ),
        _HEAD,
        _row("no host data", mean),
    ]
    passive = _newest("calibrate_with")
    if passive is not None:
        known = {(row["subject"], row["what"]): row["value"] for row in passive["rows"]}
        both = {kind: f"`{kind}`" for kind in sorted(LOAD_KINDS)} | {"load": "the mean of both"}
        for kind, of in both.items():
            for name, subject in (
                ("no host data, same pairs", f"0 of {POINTS}"),
                ("passive, by terms alone", f"{POINTS} points, terms alone"),
                ("passive", f"{POINTS} points"),
            ):
                figures = {figure: known[subject, f"{kind}.{figure}"] for figure in _FIGURES}
                text.append(_row(f"{name}: {of}", figures))
    load = _newest("load")
    if load is not None:
        targets = {target["id"]: target["value"] for target in load["targets"]}
        for name, prefix in (("runs under load, no host data", "load"), ("passive, one run", "load.calibrated")):
            medians = ", ".join(f"{100 * targets[f'{prefix}.{column}']:.1f}" for column in _LOAD)
            held, width = targets[f"{prefix}.coverage"], targets[f"{prefix}.half_width"]
            text.append(
                f"| {name} | medians {medians} % ({', '.join(_LOAD.values())}) | {100 * held:.0f} % | {width:.2f} | |"
            )
    for benchmark, tier in PROBES.items():
        site = _newest(benchmark)
        if site is not None:
            text += _probed(site, tier)
        elif tier == "probe":
            text.append(f"| {tier} | {_NOT_RUN} | | | |")
    return text


def _near() -> str:
    """Return which errors near points the groups of sources chose."""
    passive = _newest("calibrate_with") or {"rows": []}
    chosen = [
        (row["value"], row["what"].removeprefix(NEAR_POINTS))
        for row in passive["rows"]
        if row["subject"] == f"{POINTS} points" and row["what"].startswith(NEAR_POINTS)
    ]
    counts = " and ".join(f"{count:g} chose {what}" for count, what in sorted(chosen, reverse=True))
    return f"Of the groups of sources, each on pairs of the others, {counts}." if chosen else ""


def _judged() -> str:
    """Return which run the figures of the probe are of, and whether it judges the present forecast."""
    path = _path("site")
    seed = _seed(path) if path is not None else None
    if seed is None:
        return "No run is committed yet."
    if seed in CHANGED_AFTER:
        return (
            f"The figures\nare of the run with seed {seed}, by the code before that change; no run has judged the "
            "present one."
        )
    return f"The figures\nare of a later run with seed {seed}."


def _noise(site: Mapping[str, Any] | None) -> str:
    """Return how much the machine of the probe's tier changed between rounds, empty where that was not measured."""
    rows = {row["what"]: row["value"] for row in (site or {"rows": []})["rows"]}
    noise, control = rows.get("repeat noise"), rows.get("control median")
    if noise is None or control is None:
        return ""
    return (
        f" One round of a configuration differed from\nthe next by {100 * noise:.0f} % in the median there, and the "
        f"probed configurations from their own probe by {100 * control:.0f} %; 5 / 15 %\nwere aimed at with a probe."
    )


def _long(site: Mapping[str, Any] | None) -> str:
    """Return what longer rounds show, empty where no long run is committed."""
    if site is None:
        return ""
    rows = {row["what"]: row["value"] for row in site["rows"]}
    median, p90 = (100 * rows[f"load: a round beside the others, {name}"] for name in ("median", "p90"))
    return (
        " Rounds of a few\nseconds show the machine of that moment as much as the configuration. So the same benchmark "
        "ran for 54 minutes,\nwith rounds of about 40 seconds (*long rounds*), on a seed after which neither the "
        "forecast nor the probe was\nchanged. Even there a round was "
        f"off by {median:.0f} / {p90:.0f} % from the median of the other rounds of its\nconfiguration."
    )


def _probed(site: Mapping[str, Any], tier: str) -> list[str]:
    values = {target["id"].removeprefix("site."): target["value"] for target in site["targets"]}
    kinds = {"load": "changes of load", "format": "other formats", "format_probed": "other formats, probed"}
    text = []
    for kind, name in kinds.items():
        median, p90 = values.get(f"{kind}_median"), values.get(f"{kind}_p90")
        if median is not None and p90 is not None:
            text.append(f"| {tier}, {name} | {100 * median:.1f} / {100 * p90:.1f} % | | | |")
    rows = {row["what"]: row["value"] for row in site["rows"]}
    if (median := rows.get("control median")) is not None:
        errors = f"{100 * median:.1f} / {100 * rows['control p90']:.1f} %"
        text.append(f"| {tier}, the probed configuration itself | {errors} | | | |")
    held, width = values.get("coverage"), values.get("width")
    covered = "unknown" if held is None else f"{100 * held:.0f} %"
    return [*text, f"| {tier}, all | | {covered} | {'unknown' if width is None else f'{width:.2f}'} | |"]


_FIGURES = ("median", "p90", "coverage", "half_width", "abstained")
_LOAD = {"tok_s": "tokens/s", "tpot": "TPOT", "ttft": "TTFT", "power": "watts"}


def _row(name: str, mean: Mapping[str, float]) -> str:
    errors = f"{100 * mean['median']:.1f} / {100 * mean['p90']:.1f} %"
    held, silent = (f"{100 * mean[figure]:.0f} %" for figure in ("coverage", "abstained"))
    return f"| {name} | {errors} | {held} | {mean['half_width']:.2f} | {silent} |"


def _newest(benchmark: str) -> dict[str, Any] | None:
    """Return the committed result of a benchmark, or None."""
    path = _path(benchmark)
    return json.loads(path.read_text(encoding="utf-8")) if path is not None else None


def _path(benchmark: str) -> Path | None:
    """Return the result with the latest date in its name, of runs that judge the present forecast if there are any."""
    paths = RESULTS.glob(f"{benchmark}-20*.json")
    return max(paths, key=lambda path: (_seed(path) not in CHANGED_AFTER, path.name), default=None)


def _seed(path: Path) -> str:
    """Return the seed in the name of a result; empty without any."""
    return path.stem.rpartition("-seed-")[2]
