"""Metric families as text of the Prometheus exposition format 0.0.4."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its samples."""

    name: str
    kind: str
    """`counter` or `gauge`."""
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]
    """(labels, value)."""


def text_of(families: Iterable[Family]) -> str:
    """Return the page. A family without samples is left out."""
    lines = []
    for family in families:
        if family.samples:
            lines += [f"# HELP {family.name} {_help(family.help)}", f"# TYPE {family.name} {family.kind}"]
            lines += [f"{family.name}{_labels(labels)} {_number(value)}" for labels, value in family.samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_label(value)}"' for name, value in labels.items())
    return f"{{{','.join(pairs)}}}"


def _label(value: str) -> str:
    clean = value.encode("utf-8", "replace").decode()
    return clean.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))
