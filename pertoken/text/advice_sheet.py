"""Details of one recommendation as a sheet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pertoken.metrics import SERIES, label_of
from pertoken.proof.recommendation import (
    SET_BY_RUN,
    ChangeLine,
    EvidenceLine,
    LatencyLine,
    Recommendation,
    Refusal,
    State,
    Variant,
    beside_accepted,
    described,
)
from pertoken.text.advice_table import alternative, confidence
from pertoken.text.amounts import amount
from pertoken.text.lifecycle import possible, record_line
from pertoken.text.sheet import Fact, Section, Sheet, sheet
from pertoken.text.words import (
    UNKNOWN,
    ago,
    literal,
    literal_lines,
    quantity,
    ratio_range,
    slo_verdict_reason,
    unit_words,
)
from pertoken.units import format_duration

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
    """Return the change of latency with its ratio, whether or not an objective is set."""
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


HOW_TO_APPLY = "How to apply it (pertoken runs none of this)"
HOW_TO_UNDO = "How to undo it"
_BEFORE_ACCEPTED = (
    "An accepted change of the same target comes first: these figures are in no total, and `pertoken plan` computes "
    "them after it."
)
_WHY = {
    State.BLOCKED: "What it needs",
    State.REFUSED: "Why not",
    State.FAILED: "How the rule failed",
}


def advice_sheet(
    row: Recommendation,
    now_ts: float,
    computed: Sheet = (),
    *,
    with_keys: bool = True,
    advice: Iterable[Recommendation] = (),
) -> Sheet:
    """Return the details of a recommendation: what, how much and at which risk, then its evidence and its commands.

    The `computed` sections follow the evidence. Sections without content are left out. `with_keys`: the state has the
    keys of the decisions that are possible. `advice`: all of the database, in which a change of the same target may be
    accepted.
    """
    best = row.chosen or Variant("", "")
    is_priced = row.chosen is not None
    last = "last evaluated" if row.state in SET_BY_RUN else "last change"
    window = f", last {format_duration(row.window_s)}" if row.window_s else ""
    return sheet(
        Section(
            literal(row.change),
            (
                ("target", literal(row.target)),
                *((("owner", literal(row.owner)),) if row.owner else ()),
                ("rule", literal(row.rule_id)),
                ("read more", f"`pertoken rules explain {literal(row.rule_id)}`"),
                ("state", described(row) + (f"  ({decisions})" if with_keys and (decisions := possible(row)) else "")),
                *((("proposed", literal(row.title)),) if row.change != row.title else ()),
                *(((last, ago(now_ts - row.updated_ts)),) if row.updated_ts else ()),
                *(_change(line, best.changes) for line in best.changes),
            ),
        ),
        Section(_WHY.get(row.state, "Why"), literal_lines(reason) if (reason := why(row)) else ()),
        Section("Not confirmed by the last run", _unconfirmed(row)),
        Section("Priced before an accepted change", (_BEFORE_ACCEPTED,) if row in beside_accepted(advice) else ()),
        Section("What to do about it", literal_lines(row.remedy) if row.remedy else ()),
        Section("How much a month, and how sure", _worth(best) if is_priced else ()),
        Section("What gets slower", _latencies(best) if is_priced else ()),
        Section("What could break", tuple(f"· {line}" for line in could_break(best)) if is_priced else ()),
        Section("Who is affected", (affected(row, best),) if is_priced else ()),
        Section(f"Evidence that the rule read{window}", tuple(map(_evidence, row.evidence))),
        Section("Prices now", tuple(f"· {literal(line)}" for line in row.prices)),
        Section("Assumed", tuple(f"· {literal(line)}" for line in best.assumptions)),
        *computed,
        Section(HOW_TO_APPLY, command_lines(best.commands)),
        Section(HOW_TO_UNDO, command_lines(best.undo)),
        Section("Alternatives", _alternatives(row, best)),
        Section("What the rule printed", literal_lines(row.output.strip("\n")) if row.output else ()),
        Section("Not proposed", tuple(map(_refusal, row.refusals)) if row.best else ()),
    )


_OFF_THE_BILL = {
    False: "off the bill if demand stays the same",
    True: "may rise: off the bill if demand stays the same, but the low end is a loss",
}


def _alternatives(row: Recommendation, best: Variant) -> tuple[str, ...]:
    """Return the other variants, with the option of `pertoken accept` that chooses each."""
    others = [variant for variant in row.variants if variant.key != best.key]
    return tuple(f"· {alternative(variant)}  (--variant {variant.key[:4]})" for variant in others)


def _unconfirmed(row: Recommendation) -> tuple[str, ...]:
    if row.unconfirmed is None:
        return ()
    return (*literal_lines(row.unconfirmed), "It closes unless the next run confirms it.")


def _worth(best: Variant) -> tuple[Fact | str, ...]:
    rows: list[Fact] = [
        (
            ("net", _money(best, best.net, "the bill rises by this: it is in no total"))
            if best.pays_more
            else ("bankable", _money(best, best.net, _OFF_THE_BILL[best.may_rise], "the bill stays"))
        ),
        (
            "capacity",
            _money(best, best.capacity, "more work on the same bill; never added to bankable", "no more than now"),
        ),
        *(("if confirmed", words) for words in _if_confirmed(best)),
        ("confidence", how_sure(best)),
    ]
    if best.tier is not None:
        rows.append(("forecast", literal(best.tier.words)))
    if best.record is not None:
        rows.append(("track record", record_line(best.record)))
    if best.replicas is not None:
        rows.append(("replicas", f"{best.replicas[0]} → {best.replicas[1]}"))
    notes = [f"Not priced: {literal(best.unpriced)}"] if best.unpriced else []
    notes += [f"To confirm: {literal(best.to_confirm)}"] if best.to_confirm else []
    notes += [f"Break-even: {literal(best.break_even)}"] if best.break_even else []
    return (*notes, *rows)


def _refusal(refusal: Refusal) -> Fact:
    return refusal.code, " ".join(literal_lines(refusal.reason))


def _latencies(best: Variant) -> tuple[Fact | str, ...]:
    rows: list[Fact | str] = [("latency objective", slo_verdict_reason(best.slo))]
    rows += [(line.figure, f"{latency_change(line)}: {_latency(line)}") for line in best.latency]
    if best.throughput_ratio is not None:
        rows.append(("tokens/s of a replica", ratio_range(best.throughput_ratio)))
    if not best.latency:
        rows.append(("latency", slower(best)[-1].removeprefix("latency ")))
    if best.replicas_needed is not None:
        n_before, n_after = ("more than were tried" if n is None else str(n) for n in best.replicas_needed)
        rows.append(("replicas needed", f"{n_before} → {n_after}  (the fewest that serve all requests within the SLO)"))
    return tuple(rows)


def _latency(line: LatencyLine) -> str:
    slo = f", SLO {line.slo_ms:.0f} ms" if line.slo_ms is not None else ""
    seen = f", measured {line.measured_ms:.0f} ms" if line.measured_ms is not None else ", not measured"
    return f"{_ms(line.before)} → {_ms(line.after)}{slo}  ({line.provenance}{seen})"


def _ms(range_ms: tuple[float, float, float] | None) -> str:
    if range_ms is None:
        return "overloaded"
    low, likely, high = (f"{end:.0f}" for end in range_ms)
    return f"{likely} ms" if low == high else f"{likely} ms ({low} to {high})"


def _if_confirmed(best: Variant) -> Iterator[str]:
    """Yield the saving that counts once a person has confirmed its assumptions."""
    if best.if_confirmed is not None:
        if any(best.if_confirmed.net):
            yield _money(best, best.if_confirmed.net, "off the bill, in no total before")
        if best.if_confirmed.capacity[1] > 0:
            yield _money(best, best.if_confirmed.capacity, "of capacity, in no total before")


def _money(best: Variant, money: tuple[int, int, int] | None, meaning: str, without: str = "nothing") -> str:
    """Return dollars with their meaning; `without` where there are none."""
    if money is None or not any(money):
        return "to confirm" if best.to_confirm else "not priced" if best.unpriced else without
    low, likely, high = (amount(nano) for nano in money)
    return f"{likely if low == high else f'{likely} likely, {low} to {high}'}  ({meaning})"


def _change(line: ChangeLine, lines: tuple[ChangeLine, ...]) -> Fact:
    """Return a changed field; if several deployments or services change, with the name of its own."""
    several = len({change.where for change in lines}) > 1
    name = f"{line.where}: {line.field}" if several else line.field
    return literal(name), f"{literal(line.before)} → {literal(line.after)}"


def command_lines(commands: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines of all commands."""
    return tuple(line for command in commands for line in literal_lines(command))


def _evidence(line: EvidenceLine) -> Fact:
    name = literal(series_label(line.series))
    if line.missing is not None:
        return name, f"not measured: {literal(line.missing)}"
    figures = (("mean", line.mean), ("p50", line.p50), ("p95", line.p95))
    labelled = [(label, quantity(value, line.unit)) for label, value in figures if value is not None]
    texts = [f"{label} {text.removesuffix(f' {unit_words(line.unit)}')}" for label, text in labelled[:-1]]
    value = ", ".join([*texts, *(f"{label} {text}" for label, text in labelled[-1:])])
    return name, f"{literal(value)}  (n={line.n:,}, {line.provenance or 'origin unknown'})"
