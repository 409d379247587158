"""A report as one HTML file."""

from collections.abc import Iterable, Sequence
from importlib.resources import files

from pertoken import __version__
from pertoken.costs.lines import USES
from pertoken.metrics import FIGURES
from pertoken.reports.figures import ReportFigures
from pertoken.reports.headline import headlines
from pertoken.reports.page.markup import Markup, tag
from pertoken.reports.page.plots import bars, divided, lines, ranked, usd
from pertoken.reports.tables import Table, tables
from pertoken.text.amounts import headline, in_dollars
from pertoken.units import NANO_USD

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Content security policy: loads no resources and runs no scripts."""
CHANGES = 6
"""Recommendations of each kind in the plot of savings."""
MODELS = 6
"""Models in the plot of $/Mtok, the most expensive ones."""
USE_NAMES = {
    "busy": "busy",
    "idle": "idle while reserved",
    "other": "other work",
    "unallocated": "unallocated",
}


@in_dollars()
def page(report: ReportFigures) -> str:
    """Return the report as a whole HTML document."""
    sections = (headline_list(report), *plots(report), *(table_section(table) for table in tables(report)))
    title = f"pertoken, {report.period.text}"
    return document("What our tokens cost", [f"{report.period.text} · {report.source}"], sections, title)


def document(heading: str, lines: Sequence[str], sections: Iterable[Markup], title: str | None = None) -> str:
    """Return a whole HTML document of some sections, which loads no other resource. `lines` stand under the heading."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title or heading),
        tag("style", Markup(_style())),
    )
    body = tag(
        "body",
        tag("header", tag("h1", heading), *(tag("p", line) for line in lines)),
        tag("main", *sections),
        tag("footer", tag("p", f"pertoken {__version__}. Amounts are US dollars; – is not known.")),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _style() -> str:
    return (files("pertoken.reports.page") / "report.css").read_text(encoding="utf-8")


def headline_list(report: ReportFigures) -> Markup:
    """Return the figures at the head of a report."""
    figures = (tag("li", tag("b", headline.value), tag("span", headline.name)) for headline in headlines(report))
    return tag("ul", *figures, class_="figures")


def plots(report: ReportFigures) -> list[Markup]:
    """Return the plots of a report; a sentence in their place where no device has a price."""
    parts = [(name, f"use-{name}") for name in USES]
    if report.bill is None:
        return [tag("section", tag("h2", "Spend"), tag("p", "No device has a price: `pertoken prices set` gives one."))]
    bill = report.bill
    shares = [(USE_NAMES[name], f"use-{name}", getattr(bill, name) / NANO_USD) for name in USES]
    by_day = report.charges.by_day()
    spend = [
        (day, {name: nano / NANO_USD for name, nano in by_day.get(day, {}).items()}) for day in report.period.days()
    ]
    # The dollars of a day that is not over include idle hours whose tokens are still to come.
    part_days = report.period.part_days()
    prices = {
        name: [(day, None if nano is None or day in part_days else nano / NANO_USD) for day, nano in days]
        for name, days in report.daily_prices(MODELS).items()
    }
    series = [(name, f"s{n}") for n, name in enumerate(prices)]
    meaning = FIGURES[headline().figure].meaning
    tenants = [
        (line.name, f"s{n % 8}", line.nano_usd / NANO_USD)
        for n, line in enumerate(sorted(report.tenants.lines, key=lambda line: -line.nano_usd)[:8])
    ]
    bound = " Busy is an upper bound, idle a lower bound." if bill.busy_is_bound else ""
    return [
        _plot("Where a dollar goes", divided(shares, "Where a dollar goes"), shares, f"Shares of the bill.{bound}"),
        _plot(
            "Spend",
            bars(spend, parts, "Dollars by day", part_days),
            [(USE_NAMES[name], style, None) for name, style in parts],
            f"Dollars by day (UTC).{' Pale bars are of a part of a day.' if part_days else ''}",
        ),
        _plot(
            f"$ per {headline().unit} by model",
            lines(prices, f"Dollars per {headline().unit} by day"),
            [(name, style, None) for name, style in series],
            f"Dollars of all devices of a model, divided by what it served, of whole days: {meaning}.",
        ),
        _plot("Dollars by tenant", divided(tenants, "Dollars by tenant"), tenants, "The eight largest lines."),
        *_savings(report),
    ]


def _savings(report: ReportFigures) -> list[Markup]:
    """Return the plot of proposed and accepted bankable dollars, or no plot without any."""
    known = [("found", "s0", row, row.best) for row in report.savings.folds.shown[:CHANGES]]
    known += [("taken", "s2", row, row.chosen) for row in report.savings.taken[:CHANGES]]
    rows = [
        (f"{what}: {row.change}", style, (low / NANO_USD, likely / NANO_USD, high / NANO_USD))
        for what, style, row, variant in known
        if variant is not None and variant.net is not None and not variant.pays_more
        for low, likely, high in (variant.net,)
    ]
    if not rows:
        return []
    note = "Bankable dollars per month with their interval; accepted ones by the estimate at acceptance."
    return [_plot("Savings", ranked(rows, "Bankable dollars a month"), (), note)]


Legend = Sequence[tuple[str, str, float | None]]
"""(name, CSS class, dollars)."""


def _plot(title: str, svg: Markup, legend: Legend, note: str) -> Markup:
    keys = [
        tag("li", tag("i", class_=style), name if value is None else f"{name} {usd(value)}")
        for name, style, value in legend
    ]
    return tag("section", tag("h2", title), tag("p", note, class_="note"), svg, tag("ul", *keys, class_="legend"))


def table_section(table: Table) -> Markup:
    """Return one table with its notes and command."""
    if not table.rows:
        body = tag("p", table.empty)
    else:
        styles = ["number" if name.startswith(">") else None for name in table.columns]
        head = tag(
            "tr",
            *(tag("th", name.lstrip(">"), class_=style) for name, style in zip(table.columns, styles, strict=True)),
        )
        labels = [name.lstrip(">") for name in table.columns]
        rows = (
            tag(
                "tr",
                *(
                    tag("td", cell, class_=style, data_label=label)
                    for cell, style, label in zip(row, styles, labels, strict=True)
                ),
            )
            for row in table.rows
        )
        body = tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="wide")
    notes = (tag("p", note, class_="note") for note in table.notes)
    shown_by = tag("p", "The same in a terminal: ", tag("code", table.command), class_="note")
    return tag("section", tag("h2", table.title), body, *notes, shown_by)
