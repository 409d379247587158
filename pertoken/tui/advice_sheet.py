"""Everything a rule said of one target, in words."""

from pertoken.advisor.recommendation import EvidenceLine, LatencyLine, Recommendation, State
from pertoken.tui.sheet import Fact, Section, Sheet, sheet
from pertoken.tui.words import UNKNOWN, ago, literal, literal_lines, ratio_range, slo_verdict
from pertoken.units import format_usd

_WHY = {
    State.OPEN: "Why",
    State.BLOCKED: "What it needs",
    State.REFUSED: "Why not",
    State.FAILED: "How the rule failed",
    State.EXPIRED: "Why",
}


def advice_sheet(each: Recommendation, now_ts: float) -> Sheet:
    """One piece of advice: why, how much, how to do and undo it, what speaks for and against it."""
    proposed = each.state is State.OPEN
    return sheet(
        Section(
            literal(each.title),
            (
                ("target", literal(each.target)),
                ("rule", literal(each.rule_id)),
                ("state", each.state.lower()),
                *((("last evaluated", ago(now_ts - each.updated_ts)),) if each.updated_ts else ()),
            ),
        ),
        Section(_WHY[each.state], literal_lines(each.reason) if each.reason else ()),
        Section("What to do about it", literal_lines(each.remedy) if each.remedy else ()),
        Section("Worth, per month", _worth(each) if proposed else ()),
        Section("Latency at the p95 demand, before → after", _latencies(each) if proposed else ()),
        Section("Changes", tuple((literal(k), _change(*v)) for k, v in each.changes.items())),
        Section("How to apply it (pertoken runs none of this)", _commands(each.commands)),
        Section("How to undo it", _commands(each.undo)),
        Section("Evidence the rule read", tuple(_evidence(line) for line in each.evidence)),
        Section("Assumed", tuple(f"· {literal(line)}" for line in each.assumptions)),
        Section("Against it", tuple(f"· {literal(line)}" for line in each.against)),
    )


def _worth(each: Recommendation) -> tuple[Fact | str, ...]:
    rows: tuple[Fact, ...] = (
        ("bankable", _money(each.bankable, "the bill falls by this while demand stays as it is")),
        ("capacity", _money(each.capacity, "what the same bill could serve more; never added to bankable")),
        ("throughput", ratio_range(each.throughput_ratio)),
        ("latency objective", "not known" if each.slo == "unknown" else slo_verdict(each.slo)),
        ("least certain input", each.provenance or UNKNOWN),
    )
    return (*((f"Not priced: {literal(each.unpriced)}",) if each.unpriced else ()), *rows)


def _latencies(each: Recommendation) -> tuple[Fact | str, ...]:
    rows: list[Fact | str] = [(line.figure, _latency(line)) for line in each.latency]
    if each.latency_unknown:
        rows.append(f"Not known: {literal(each.latency_unknown)}")
    if each.replicas is not None:
        before, after = ("more than were tried" if n is None else str(n) for n in each.replicas)
        rows.append(
            ("replicas needed", f"{before} → {after}  (fewest that hold all of the model's requests and the SLO)")
        )
    return tuple(rows)


def _latency(line: LatencyLine) -> str:
    slo = f", SLO {line.slo_ms:.0f} ms" if line.slo_ms is not None else ""
    seen = f", measured {line.measured_ms:.0f} ms" if line.measured_ms is not None else ""
    return f"{_ms(line.before)} → {_ms(line.after)}{slo}  ({line.provenance}{seen})"


def _ms(at: tuple[float, float, float] | None) -> str:
    return "overloaded" if at is None else f"{at[1]:.0f} ms ({at[0]:.0f} to {at[2]:.0f})"


def _money(money: tuple[int, int, int] | None, meaning: str) -> str:
    if money is None:
        return UNKNOWN
    low, likely, high = (format_usd(nano) for nano in money)
    return f"{likely if low == high else f'{likely} likely, {low} to {high}'}  ({meaning})"


def _change(before: str, after: str) -> str:
    return f"{literal(before)} → {literal(after)}"


def _commands(commands: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(line for command in commands for line in literal_lines(command))


def _evidence(line: EvidenceLine) -> Fact:
    name = literal(line.series)
    if line.missing is not None:
        return name, f"not measured: {literal(line.missing)}"
    figures = (("mean", line.mean), ("p50", line.p50), ("p95", line.p95))
    known = ", ".join(f"{label} {value:.4g}" for label, value in figures if value is not None)
    return name, f"{known} {literal(line.unit)}  (n={line.n}, {line.provenance or 'origin unknown'})"
