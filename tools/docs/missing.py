"""The part of the forecast's page on what its largest errors lack, from the committed result of its benchmark."""

from collections.abc import Mapping
from typing import Any

from benchmarks.forecast.missing.sources import LARGE

Rows = Mapping[tuple[str, str], Any]
_SOURCES = """
The p90 that is wanted is {large:.0f} %. Of the pairs, {all:.1f} % are off by more, as mean over the kinds, and few
sources own most of them; *without it* is the mean over the kinds if the pairs of a source are not judged (the tables
stay).
"""
_STATED = """
A configuration is *stated* where both rows give lengths, batch, weight dtype and engine version, and nothing had to be
guessed. The share is that of all pairs which are off by more than {large:.0f} %. ML.ENERGY (`ml-energy-v3`) publishes
no lengths of prompts, and its hosts' CPUs limit runs with images and videos: with one B200, Qwen3-VL-30B finished 0.84
requests/s with images at a batch of 8, and 0.41 at 16. No term of the model is about a host's CPUs.
"""
_CURVE = """
More sources help: the same triple folds with tables fitted on fewer sources, drawn once. 0 sources are the
priors alone. Kernels that no other source ran are predicted here, and abstained above, where an abstention counts as no
change: that alone raises the p90.
"""


def lines(rows: Rows) -> list[str]:
    """Return the lines of the section."""
    sources = [what.removesuffix(".share") for subject, what in rows if subject == "large errors" and "." in what]
    names = dict.fromkeys(name for name in sources if ("large errors", f"{name}.share") in rows)
    total = 100 * rows["large errors", "all"]["value"]
    text = [_SOURCES.format(large=100 * LARGE, all=total), "| source | off by more | without it |", "|---|---|---|"]
    text += [
        f"| {name} | {_share(rows, 'large errors', name)} | {_errors(rows, 'large errors', name)} |" for name in names
    ]
    text += [_STATED.format(large=100 * LARGE), "| configuration | off by more | mean over kinds |", "|---|---|---|"]
    for name in ("stated", "not stated"):
        text.append(f"| {name} | {_share(rows, 'configuration', name)} | {_errors(rows, 'configuration', name)} |")
    text += [_CURVE, "| sources in the fit | mean over kinds |", "|---|---|"]
    subject = "sources in the fit"
    counts = dict.fromkeys(what.rpartition(".")[0] for name, what in rows if name == subject)
    return text + [f"| {n} | {_errors(rows, subject, n)} |" for n in counts]


def _share(rows: Rows, subject: str, name: str) -> str:
    return f"{100 * rows[subject, f'{name}.share']['value']:.1f} %"


def _errors(rows: Rows, subject: str, name: str) -> str:
    values = [rows[subject, f"{name}.{figure}"]["value"] for figure in ("median", "p90")]
    return " / ".join(f"{100 * value:.1f}" for value in values) + " %"
