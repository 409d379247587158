"""The part of the forecast's page on finite runs under load, from the committed result of its benchmark."""

import json
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parents[2] / "benchmarks/results/load-2026-11-27.json"
_INTRODUCTION = """\
## Runs under load that others measured

`python -m benchmarks.load --runs benchmarks/data/load/runs.csv --out FILE --calibrate-on 10` predicts 42 public runs
of vLLM and SGLang (Llama 3.1 8B on one H100 or A100, Poisson arrivals of 1 to 200 requests/s;
pChitral/vllm-cost-meter, MIT) from their configuration and rate, each as the finite run it was: some hundred requests
that ramp up and drain. An engine is played step by step (`benchmarks/load/play.py`): whole prompts beside decode or in
steps of their own, the batch limit, a cache that overflows and computes preempted tokens again. *Calibrated* means on
the run of the same configuration at 10 requests/s, which is then left out. Errors are medians over configurations of
medians over rates: tokens/s where the server did not keep up with the arrivals, TTFT where it did, watts of one
device while it works.

"""
_CHOSEN = """
Data behind each choice. Prompt times: times to first token of 21 other public rows; the launch overhead of prompt
steps is their remainder beyond the time of a request. Batch limit of SGLang, idle watts, and time of a request outside
the engine: these runs ({left_out} TTFT error if each configuration gets the time fitted on the others). Curve of watts:
other public rows and these, with equal weight for each source and device, and for the H100 the median of its sources
({watts[0]} error with a configuration left out, {watts[1]} with all runs on that H100 left out). The initial spread of
the calibration and the widths of the intervals are judgements made after seeing these runs. That FlashAttention 2 reads
the cache once for each query head beside a prompt was found because of the A100 runs; its size follows from the
model's heads.

The interpolation sees the measured runs at the next rates. The runs of SGLang (S1) stop at 3,080 tokens/s at every
rate from 25 requests/s on, half of what the model expects; no field of the file explains it.
"""
_WATTS_LEFT_OUT = "10.2 %", "40.5 %"
"""Median over configurations left out, and the H100 left out: printed by `python -m benchmarks.load.watts`."""
_COLUMNS = {"tok_s": "tokens/s", "tpot": "TPOT", "ttft": "TTFT", "power": "watts"}
_SUBJECTS = {
    "forecast": "no host data",
    "forecast, calibrated": "calibrated",
    "interpolate the neighbours": "interpolate the neighbours",
    "roofline": "roofline",
}


def section() -> str:
    """Return the section, with its heading."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    rows = {(row["subject"], row["what"]): row["value"] for row in result["rows"]}
    lines = [f"| | {' | '.join(_COLUMNS.values())} |", f"|---{'|---' * len(_COLUMNS)}|"]
    for subject, name in _SUBJECTS.items():
        lines.append(f"| {name} | {' | '.join(_percent(rows.get((subject, column))) for column in _COLUMNS)} |")
    names = {what.removeprefix("tpot.") for subject, what in rows if subject == "forecast" and what.startswith("tpot.")}
    lines += ["", "| no host data; calibrated | tokens/s | TPOT | TTFT | watts |", "|---|---|---|---|---|"]
    for name in sorted(names):
        cells = (
            "; ".join(_percent(rows.get((subject, f"{column}.{name}"))) for subject in list(_SUBJECTS)[:2])
            for column in _COLUMNS
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    targets = {target["id"]: target["value"] for target in result["targets"]}
    lines += [
        "",
        f"The 80 % intervals hold {_percent(targets['load.coverage'])} of the measured figures without host data and "
        f"{_percent(targets['load.calibrated.coverage'])} calibrated, with median\nhalf widths (high over likely) of "
        f"{targets['load.half_width']:.2f} and {targets['load.calibrated.half_width']:.2f}. Of TTFT alone they hold "
        f"{_percent(rows['forecast', 'coverage.ttft'])} and {_percent(rows['forecast, calibrated', 'coverage.ttft'])}, "
        f"with\nhalf widths of {rows['forecast', 'half_width.ttft']:.2f} and "
        f"{rows['forecast, calibrated', 'half_width.ttft']:.2f}: those outside are waits of overloaded servers.",
    ]
    chosen = _CHOSEN.format(left_out=_percent(rows["forecast", "ttft.left_out"]), watts=_WATTS_LEFT_OUT)
    return _INTRODUCTION + "\n".join(lines) + "\n" + chosen


def _percent(value: Any) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
