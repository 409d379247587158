"""The figures a person looks for first."""

from pertoken.costs.lines import FleetReport
from pertoken.tui.bill import unpriced
from pertoken.tui.words import UNKNOWN
from pertoken.units import format_count, format_duration, format_usd


def figures(report: FleetReport) -> tuple[tuple[str, str], ...]:
    """Four values with their captions; a value that is not known has its reason in the caption."""
    window = format_duration(report.window_s)
    priced = [line.nano_usd_per_hour for line in report.devices if line.nano_usd_per_hour is not None]
    without = unpriced(report)
    no_mtok = "no price is set" if report.bill is None else "no tokens yet"
    return (
        _figure(format_usd(report.nano_usd_per_mtok), f"$ per Mtok, last {window}", f"$ per Mtok: {no_mtok}"),
        _figure(format_count(report.generated_tok_s_now), "generated tok/s now", "tok/s: no engine is read"),
        _figure(
            UNKNOWN if report.power_w is None else f"{report.power_w:,.0f}", "watts now", "watts: not readable here"
        ),
        _figure(
            format_usd(sum(priced)) if priced else UNKNOWN,
            f"$ per hour, {without} unpriced" if without else "$ per hour now",
            "$ per hour: no price",
        ),
    )


def _figure(value: str, caption: str, unknown: str) -> tuple[str, str]:
    return (value, caption if value != UNKNOWN else unknown)
