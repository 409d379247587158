"""The figures a person looks for first."""

from dataclasses import dataclass

from pertoken.costs.report.lines import FleetReport
from pertoken.tui.text.words import UNKNOWN, observed
from pertoken.units import format_count, format_duration, format_usd


@dataclass(frozen=True, slots=True)
class Figure:
    """One value. Its caption says why where it is not known."""

    value: str
    unit: str
    caption: str

    @property
    def sentence(self) -> str:
        """Value and unit, or why there is none."""
        return self.caption if self.value == UNKNOWN else f"{self.value}{self.unit}"


def figures(report: FleetReport) -> tuple[Figure, ...]:
    """Dollars per Mtok over the window, with how much of it was observed; tokens per second, watts and dollars per hour
    now, of hosts that report."""
    window = f"{observed(report.coverage)} of {format_duration(report.window_s)}"
    silent = sum(host.stale for host in report.hosts)
    reporting = len(report.hosts) - silent
    part = f", {reporting} of {len(report.hosts)} hosts" if silent else " now"
    nobody = "no reports" if report.hosts and not reporting else None
    per_hour = format_usd(report.nano_usd_per_hour)
    without = report.unpriced_n
    power = UNKNOWN if report.power_w is None else f"{report.power_w:,.0f}"
    no_mtok = "$/Mtok: no price" if report.bill is None else "$/Mtok: no tokens"
    return (
        _figure(format_usd(report.nano_usd_per_mtok), f"/Mtok ({window})", f"$/Mtok, {window}", no_mtok),
        _figure(
            format_count(report.generated_tok_s_now),
            " tok/s",
            f"tok/s{part}" if silent else "generated tok/s now",
            f"tok/s: {nobody or 'no engine'}",
        ),
        _figure(power, " W", f"watts{part}", f"watts: {nobody or 'not read'}"),
        _figure(
            per_hour,
            "/hour",
            f"$/hour, {without} unpriced" if without else f"$/hour{part}",
            f"$/hour: {nobody or 'no price'}",
        ),
    )


def _figure(value: str, unit: str, caption: str, unknown: str) -> Figure:
    return Figure(value, unit, unknown if value == UNKNOWN else caption)
