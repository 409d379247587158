"""Answers of a recommendation in the order in which people ask: why, how sure, slower, what breaks, who is affected."""

from collections.abc import Iterator

from pertoken.metrics import SERIES, label_of
from pertoken.proof.recommendation import EvidenceLine, LatencyLine, Recommendation, Variant
from pertoken.text.advice.columns import confidence
from pertoken.text.words import UNKNOWN, literal, quantity, ratio_range, unit_words

MAX_FIGURES = 3
"""Measured figures of the sentence with the reason."""
MIN_CHANGE = 0.05
"""Change of a latency that is stated, as a share."""
MAX_TIMES = 50
"""Change of a latency up to which it is stated as a factor: beyond, it only says that requests no longer wait."""
_HARMS = {
    "none": "nothing that is known",
    "latency": "requests may take longer",
    "availability": "the service may be down, or short of replicas, for a time",
    "quality": "outputs may differ: evaluate them on your own tasks first",
}
_WORK = {"low": "minutes of work", "medium": "hours of work", "high": "days of work"}
_INPUTS = {
    "counter": "a counter",
    "integral": "samples summed over time",
    "reported": "a value that the engine or driver reports",
    "forecast": "a forecast",
    "listed": "a catalog value, such as a list price",
    "bound": "an upper bound",
    "assumed": "an assumption",
}
"""Kinds of inputs in words, by provenance."""


def why(row: Recommendation) -> str | None:
    """Return the reason of advice in one sentence, with the figures that were measured; None without a reason."""
    if row.reason is None or row.best is None:
        return row.reason
    figures = [text for line in row.evidence if (text := _figure(line)) is not None]
    return row.reason.rstrip(".") + (f": {'; '.join(figures[:MAX_FIGURES])}" if figures else "") + "."


def _figure(line: EvidenceLine) -> str | None:
    """Return a measured series as text; None for one that was not measured, and for the observed time."""
    value = line.mean if line.mean is not None else line.p50
    if line.missing is not None or value is None or line.series.endswith("observed_h"):
        return None
    mean, label = quantity(value, line.unit), series_label(line.series)
    if line.p95 is None or line.p95 == value:
        return f"{label} {mean}"
    return f"{label} {mean.removesuffix(f' {unit_words(line.unit)}')}, p95 {quantity(line.p95, line.unit)}"


def series_label(series: str) -> str:
    """Return the label of a series, after the name of its device or deployment if it has one."""
    owner, colon, name = series.rpartition(": ")
    return f"{owner}{colon}{label_of(name) if name in SERIES else name}"


def how_sure(best: Variant) -> str:
    """Return the confidence in the figures, with their least certain kind of input."""
    if best.provenance is None:
        return f"{confidence(best) or UNKNOWN}  (no figure was computed)"
    least = _INPUTS.get(best.provenance, best.provenance)
    return f"{confidence(best) or UNKNOWN}  (least certain input: {least})"


def slower(best: Variant) -> tuple[str, ...]:
    """Return what gets slower or faster, with the ratio whether or not an objective is set."""
    lines = [f"{line.figure} {latency_change(line)}" for line in best.latency]
    if best.throughput_ratio is not None:
        lines.append(f"tokens/s of a replica {ratio_range(best.throughput_ratio)}")
    return (
        *lines,
        *(() if best.latency else (f"latency not known: {literal(best.latency_unknown or 'none was forecast')}",)),
    )


def latency_change(line: LatencyLine) -> str:
    """Return by how much a latency changes: `1.4× slower`."""
    if line.before is None or line.after is None:
        return "overloaded after" if line.after is None else "overloaded before"
    ratio = line.after[1] / line.before[1] if line.before[1] else 1.0
    if abs(ratio - 1) <= MIN_CHANGE:
        return "about as now"
    times = f"{max(ratio, 1 / ratio):.2g}" if 1 / MAX_TIMES < ratio < MAX_TIMES else f"over {MAX_TIMES}"
    return f"{times}× {'slower' if ratio > 1 else 'faster'}"


def could_break(best: Variant) -> Iterator[str]:
    """Yield the kind of harm that a change may do, then the objections to it."""
    yield _HARMS.get(best.risk, best.risk)
    yield from map(literal, (*best.against, *best.moving))
    for text, rules in (("it needs", best.requires), ("it cannot be applied beside", best.excludes)):
        if rules:
            yield f"{text} {literal(', '.join(rules))}"


def affected(row: Recommendation, best: Variant) -> str:
    """Return the services and hosts that a change touches, and the work that it is."""
    services = [touched.partition(":")[2] for touched in best.touches if touched.startswith("service:")]
    whom = f"clients of {', '.join(services)}" if services else row.target
    hosts = f"; given back: {', '.join(best.released)}" if best.released else ""
    return literal(f"{whom}{hosts}; {_WORK.get(best.effort, best.effort)}")
