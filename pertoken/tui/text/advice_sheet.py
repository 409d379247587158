"""Everything a rule has for one target, in words."""

from pertoken.proof.lifecycle import SET_BY_RUN, described
from pertoken.proof.recommendation import (
    ChangeLine,
    EvidenceLine,
    LatencyLine,
    Recommendation,
    Refusal,
    State,
    Variant,
)
from pertoken.tui.amounts import amount
from pertoken.tui.text.advice_columns import alternative, confidence
from pertoken.tui.text.lifecycle import possible, record_line
from pertoken.tui.text.sheet import Fact, Section, Sheet, sheet
from pertoken.tui.text.words import NONE_FOUND, UNKNOWN, ago, literal, literal_lines, ratio_range, slo_verdict
from pertoken.units import format_duration

HOW_TO_APPLY = "How to apply it (pertoken runs none of this)"
HOW_TO_UNDO = "How to undo it"
_WHY = {
    State.BLOCKED: "What it needs",
    State.REFUSED: "Why not",
    State.FAILED: "How the rule failed",
}


def advice_sheet(each: Recommendation, now_ts: float, computed: Sheet = ()) -> Sheet:
    """One piece of advice: why, how much, how to do and undo it, what speaks for and against it.

    `computed` sections follow the commands.
    """
    best = each.chosen or Variant("", "")
    return sheet(
        Section(
            literal(each.title),
            (
                ("target", literal(each.target)),
                ("rule", literal(each.rule_id)),
                ("state", described(each) + (f"  ({decisions})" if (decisions := possible(each)) else "")),
                *((("decided on", literal(each.estimate.title)),) if each.estimate is not None else ()),
                *(((_last(each), ago(now_ts - each.updated_ts)),) if each.updated_ts else ()),
            ),
        ),
        Section(_WHY.get(each.state, "Why"), literal_lines(each.reason) if each.reason else ()),
        Section("Not confirmed by the last run", _unconfirmed(each)),
        Section("What to do about it", literal_lines(each.remedy) if each.remedy else ()),
        Section("Worth, per month", _worth(best) if each.chosen else ()),
        Section(HOW_TO_APPLY, _commands(best.commands)),
        Section(HOW_TO_UNDO, _commands(best.undo)),
        *computed,
        Section("Latency at the p95 demand, before → after", _latencies(best)),
        Section("Changes", tuple(_change(line, best.changes) for line in best.changes)),
        Section("Alternatives", _alternatives(each, best)),
        Section(_evidence_of(each.window_s), tuple(_evidence(line) for line in each.evidence)),
        Section("Assumed", tuple(f"· {literal(line)}" for line in best.assumptions)),
        Section("Against it", tuple(f"· {literal(line)}" for line in best.against)),
        Section("What the rule printed", literal_lines(each.output.strip("\n")) if each.output else ()),
        Section("Not proposed", tuple(_refusal(refusal) for refusal in each.refusals) if each.best else ()),
    )


def _last(each: Recommendation) -> str:
    return "last evaluated" if each.state in SET_BY_RUN else "last change"


def _alternatives(each: Recommendation, best: Variant) -> tuple[str, ...]:
    """Return the other variants; their key accepts one of them."""
    others = [variant for variant in each.variants if variant.key != best.key]
    return tuple(f"· {alternative(variant)}  (--variant {variant.key[:4]})" for variant in others)


def _unconfirmed(each: Recommendation) -> tuple[str, ...]:
    if each.unconfirmed is None:
        return ()
    return (*literal_lines(each.unconfirmed), "If the next run does not confirm it either, it closes.")


def _evidence_of(window_s: int | None) -> str:
    return "Evidence the rule read" + (f" of the last {format_duration(window_s)}" if window_s else "")


def _worth(best: Variant) -> tuple[Fact | str, ...]:
    rows: list[Fact] = [
        ("bankable", _money(best, best.bankable, "the bill falls by this while demand stays as it is")),
        ("capacity", _money(best, best.capacity, "what the same bill could serve more; never added to bankable")),
        ("throughput", ratio_range(best.throughput_ratio)),
        ("latency objective", "not known" if best.slo == "unknown" else slo_verdict(best.slo)),
        ("risk, effort", f"{best.risk}, {best.effort}"),
        ("confidence", f"{confidence(best) or UNKNOWN}  (least certain input: {best.provenance or UNKNOWN})"),
    ]
    if best.record is not None:
        rows.append(("track record", record_line(best.record)))
    if best.replicas is not None:
        rows.append(("replicas", f"{best.replicas[0]} → {best.replicas[1]}"))
    if best.released:
        rows.append(("hosts given back", literal(", ".join(best.released))))
    for label, rules in (("requires", best.requires), ("excludes", best.excludes)):
        if rules:
            rows.append((label, literal(", ".join(rules))))
    notes = [f"Not priced: {literal(best.unpriced)}"] if best.unpriced else []
    notes += [f"Break-even: {literal(best.break_even)}"] if best.break_even else []
    return (*notes, *rows)


def _refusal(refusal: Refusal) -> Fact:
    return refusal.code, " ".join(literal_lines(refusal.reason))


def _latencies(best: Variant) -> tuple[Fact | str, ...]:
    rows: list[Fact | str] = [(line.figure, _latency(line)) for line in best.latency]
    if best.latency_unknown:
        rows.append(f"Not known: {literal(best.latency_unknown)}")
    if best.replicas_needed is not None:
        before, after = ("more than were tried" if n is None else str(n) for n in best.replicas_needed)
        rows.append(
            ("replicas needed", f"{before} → {after}  (fewest that hold all requests of the service and the SLO)")
        )
    return tuple(rows)


def _latency(line: LatencyLine) -> str:
    slo = f", SLO {line.slo_ms:.0f} ms" if line.slo_ms is not None else ""
    seen = f", measured {line.measured_ms:.0f} ms" if line.measured_ms is not None else ""
    return f"{_ms(line.before)} → {_ms(line.after)}{slo}  ({line.provenance}{seen})"


def _ms(at: tuple[float, float, float] | None) -> str:
    return "overloaded" if at is None else f"{at[1]:.0f} ms ({at[0]:.0f} to {at[2]:.0f})"


def _money(best: Variant, money: tuple[int, int, int] | None, meaning: str) -> str:
    if money is None or not any(money):
        return "not priced" if best.unpriced else NONE_FOUND
    low, likely, high = (amount(nano) for nano in money)
    return f"{likely if low == high else f'{likely} likely, {low} to {high}'}  ({meaning})"


def _change(line: ChangeLine, lines: tuple[ChangeLine, ...]) -> Fact:
    """Return a changed field; what it is of only where several things change."""
    several = len({each.where for each in lines}) > 1
    name = f"{line.where}: {line.field}" if several else line.field
    return literal(name), f"{literal(line.before)} → {literal(line.after)}"


def _commands(commands: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(line for command in commands for line in literal_lines(command))


def _evidence(line: EvidenceLine) -> Fact:
    name = literal(line.series)
    if line.missing is not None:
        return name, f"not measured: {literal(line.missing)}"
    figures = (("mean", line.mean), ("p50", line.p50), ("p95", line.p95))
    known = ", ".join(f"{label} {value:.4g}" for label, value in figures if value is not None)
    return name, f"{known} {literal(line.unit)}  (n={line.n}, {line.provenance or 'origin unknown'})"
