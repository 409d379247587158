"""Content of the screens without a terminal, as text and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pertoken.tui.source import Source

SCREENS = ("fleet", "savings", "plan", "rules", "hours")
WINDOW_S = 3600


def values(source: Source, screens: Sequence[str]) -> dict[str, Any]:
    """Return the content of screens by name, as JSON values. Raises PertokenError."""
    return {name: _VALUES[name](source) for name in screens}


def text(source: Source, screen: str, width: int | None, hour_rate: float) -> str:
    """Return the content of a screen as text; tables have at most `width` cells, None for any. Raises PertokenError."""
    if screen == "plan":
        from pertoken.text.plan import plan_text

        shown = _plan(source)
        return plan_text(shown.plan, shown.window_s)
    if screen == "rules":
        return "\n\n".join(rule.page.strip() for rule in source.rules().rules) + "\n"
    if screen == "hours":
        from pertoken.text.summary import hours_summary

        return hours_summary(source.hours(), width)
    from pertoken.text.summary import advice_summary, fleet_summary

    report = source.fleet(WINDOW_S)
    if screen == "fleet":
        return fleet_summary(report, width)
    advice = source.advice()
    return advice_summary(report, advice, width, hour_rate=hour_rate, no_advice=None if advice else source.no_advice())


def _fleet(source: Source) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(source.fleet(WINDOW_S).whole())


def _savings(source: Source) -> dict[str, Any]:
    from dataclasses import asdict

    from pertoken.cli.advise import all_values

    return {
        "recommendations": all_values(source.advice()),
        "banked": asdict(source.banked()),
    }


def _plan_values(source: Source) -> dict[str, Any]:
    from pertoken.text.export import plan_values

    shown = _plan(source)
    return plan_values(shown.plan, shown.window_s)


def _rules(source: Source) -> list[dict[str, Any]]:
    from dataclasses import asdict

    records = source.records()
    rows = []
    for rule in source.rules().rules:
        record = records.get(rule.entry.id)
        rows.append({**asdict(rule.entry), "page": rule.page, "record": None if record is None else asdict(record)})
    return rows


def _hours(source: Source) -> list[dict[str, Any]]:
    from pertoken.cli.costs import hour_lines

    return list(hour_lines(source.hours(), "model"))


def _plan(source: Source) -> Any:
    from pertoken.window.columns import no_progress

    return source.plan(source.advice(), None, no_progress)


_VALUES: dict[str, Callable[[Source], Any]] = {
    "fleet": _fleet,
    "savings": _savings,
    "plan": _plan_values,
    "rules": _rules,
    "hours": _hours,
}
