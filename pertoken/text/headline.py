"""The main figures of the fleet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pertoken.costs.ledger import BillTotal
from pertoken.costs.report.lines import FleetReport
from pertoken.text.amounts import amount, caption, headline, no_rate, price
from pertoken.text.program.key_names import key_name
from pertoken.text.words import UNKNOWN, at_least, literal, observed, percent
from pertoken.units import format_count, format_duration

if TYPE_CHECKING:  # modules that the first frame does not need
    from pertoken.advisor.plan.plan import Plan
    from pertoken.proof.judging.receipts import Banked


CAPTION_CELLS = 18
"""Cells of a caption under large digits at 80 columns."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One value with unit and caption. The caption of an unknown value is the reason."""

    value: str
    unit: str
    caption: str

    @property
    def sentence(self) -> str:
        """Value and unit; of an unknown value, the reason."""
        return self.caption if self.value == UNKNOWN else f"{self.value}{self.unit}"


def figures(report: FleetReport) -> tuple[Figure, ...]:
    """Return the main figures, in this order.

    The headline (dollars per Mtok) over the window, with its observed share; dollars per hour and tokens per second
    now, of the hosts that report; the idle share of the bill; and watts.
    """
    window = f"{observed(report.coverage)} of {format_duration(report.window_s)}"
    silent = sum(host.stale for host in report.hosts)
    reporting = len(report.hosts) - silent
    part = f", {reporting} of {len(report.hosts)} hosts" if silent else " now"

    def of_hosts(unit: str) -> str:
        full = f"{unit}{part}"
        return full if len(full) <= CAPTION_CELLS else f"{unit}, {reporting} host{'' if reporting == 1 else 's'}"

    no_reports = "no reports" if report.hosts and not reporting else None
    per_hour = amount(report.nano_usd_per_hour)
    without = report.unpriced_n
    power = UNKNOWN if report.power_w is None else f"{report.power_w:,.0f}"
    shown, missing = headline(), {"per_request": "no requests", "good": "no SLO"}
    no_mtok = no_rate() or ("no price" if report.bill is None else missing.get(shown.name, "no tokens"))
    return (
        _figure(
            amount(price(report)),
            f"{shown.caption.removeprefix('$')} ({window})",
            caption(f"{shown.caption}, {window}"),
            caption(f"{shown.caption}: {no_mtok}"),
        ),
        _figure(
            per_hour,
            "/hour",
            caption(f"$/hour, {without} unpriced" if without else of_hosts("$/hour") if silent else "$/hour now"),
            caption(f"$/hour: {no_reports or no_rate() or 'no price'}"),
        ),
        _figure(
            format_count(report.generated_tok_s_now),
            " tok/s",
            of_hosts("tok/s") if silent else "tokens/s now",
            f"tok/s: {no_reports or 'no engine'}",
        ),
        _figure(_idle(report.bill), " idle or unallocated", "idle + unallocated", "idle: no price"),
        _figure(power, " W", f"watts{part}", f"watts: {no_reports or 'not read'}"),
    )


def _idle(bill: BillTotal | None) -> str:
    """Return the share of the bill without work: idle while reserved, and unallocated."""
    if bill is None or not bill.paid:
        return UNKNOWN
    share = (bill.idle + bill.unallocated) / bill.paid
    return (at_least if bill.busy_is_bound else percent)(share)


def savings_line(plan: Plan | None, banked: Banked | None, no_advice: str | None = None) -> str:
    """Return the bankable saving of the plan under its least certain assumption, and what left a bill.

    `plan` is None while it is being composed; `no_advice` says why no rule has run, and when one does.
    """
    saved = "being read" if banked is None else "nothing yet" if banked.nano_usd is None else _saved(banked)
    if no_advice:
        return literal(no_advice.removeprefix("No rule has run yet. "))
    if plan is None:
        return f"Bankable: the plan is being composed · banked: {saved}"
    if not any(plan.bankable):
        return f"No step lowers the bill ({key_name('savings')} shows why) · banked: {saved}"
    weakest = f" if {literal(plan.sensitivity[0].assumption)}" if plan.sensitivity else ""
    low, likely, high = map(amount, plan.bankable)
    dollars = likely if low == high else f"{likely} ({low}–{high})"  # short, to leave space for the assumption
    return f"Bankable {dollars}/month{weakest} · banked: {saved}"


def _saved(banked: Banked) -> str:
    assert banked.nano_usd is not None
    return amount(banked.nano_usd[1])


def _figure(value: str, unit: str, caption: str, unknown: str) -> Figure:
    return Figure(value, unit, unknown if value == UNKNOWN else caption)
