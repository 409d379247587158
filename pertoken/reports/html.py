"""A report, or the tables of a lake, as one HTML file: markup, plots as SVG, and the page."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files

from pertoken import __version__
from pertoken.costs.lines import USES
from pertoken.lake.questions import Coverage
from pertoken.metrics import FIGURES
from pertoken.printable import literal
from pertoken.reports.figures import ReportFigures
from pertoken.reports.markdown import plain, table_block
from pertoken.reports.tables import Table, headlines, tables
from pertoken.text.amounts import headline, in_dollars
from pertoken.text.lake import LakeTable, coverage_lines
from pertoken.units import NANO_USD, format_money

VOID = frozenset({"meta", "br"})


class Markup(str):
    """Text that is already markup and not escaped again."""

    __slots__ = ()


def tag(name: str, /, *children: str | Iterable[str], **attributes: object) -> Markup:
    """Return an element; children that are not `Markup` are text.

    Attributes are written `class_` for `class`, and `stroke_width` for `stroke-width`.
    """
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(literal(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(map(text, flat(children)))
    return Markup(f"<{name}{named}>" if name in VOID else f"<{name}{named}>{inner}</{name}>")


def flat(children: Iterable[str | Iterable[str]]) -> Iterable[str]:
    """Yield children, with sequences flattened."""
    for child in children:
        if isinstance(child, str):
            yield child
        else:
            yield from child


def text(child: str) -> str:
    """Return a child as markup: escaped text on one line."""
    return child if isinstance(child, Markup) else escape(literal(child))


WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 10, 26
"""Margins, which hold the axes."""
MAX_NAME = 48
"""Characters of a name beside a bar; the whole one is its tooltip."""
Days = Sequence[tuple[int, float | None]]
"""(start of the day, dollars); None: unknown."""


def bars(
    days: Sequence[tuple[int, Mapping[str, float]]],
    parts: Sequence[tuple[str, str]],
    title: str,
    part_days: Collection[int] = (),
) -> Markup:
    """Return a bar for each day, stacked by part; `parts` are (name, CSS class), the lowest first.

    Bars of `part_days`, which the period covers in part, are pale.
    """
    top = ceiling(max((sum(values.values()) for _, values in days), default=0.0))
    step = _step(len(days))
    shapes: list[Markup] = []
    for n, (day, values) in enumerate(days):
        low = 0.0
        for name, style in parts:
            value = values.get(name, 0.0)
            if value <= 0:
                continue
            y, bottom = _y(low + value, top), _y(low, top)
            about = tag("title", f"{date(day)}: {name} {usd(value)}")
            shapes.append(
                tag(
                    "rect",
                    about,
                    x=_1(LEFT + n * step + step * 0.1),
                    y=_1(y),
                    width=_1(step * 0.8),
                    height=_1(bottom - y),
                    class_=f"{style} part" if day in part_days else style,
                )
            )
            low += value
    return _plot_svg(title, [*_axis(top), *shapes, *_dates([day for day, _ in days])])


def lines(series: Mapping[str, Days], title: str) -> Markup:
    """Return a line for each series; days without a value are gaps."""
    days = sorted({day for points in series.values() for day, _ in points})
    top = ceiling(max((value for points in series.values() for _, value in points if value is not None), default=0.0))
    step, index_by_day = _step(len(days)), {day: n for n, day in enumerate(days)}
    shapes: list[Markup] = []
    for n, (name, values) in enumerate(series.items()):
        for run in _runs(values):
            points = [(LEFT + (index_by_day[day] + 0.5) * step, _y(value, top)) for day, value in run]
            if len(points) > 1:
                path = " ".join(f"{_1(x)},{_1(y)}" for x, y in points)
                shapes.append(tag("polyline", points=path, class_=f"line s{n}"))
            shapes += [
                tag(
                    "circle",
                    tag("title", f"{date(day)}: {name} {usd(value)}/Mtok"),
                    cx=_1(x),
                    cy=_1(y),
                    r="3",
                    class_=f"dot s{n}",
                )
                for (day, value), (x, y) in zip(run, points, strict=True)
            ]
    return _plot_svg(title, [*_axis(top), *shapes, *_dates(days)])


def divided(parts: Sequence[tuple[str, str, float]], title: str) -> Markup:
    """Return one bar divided in proportion; `parts` are (name, CSS class, dollars)."""
    total_usd = sum(value for _, _, value in parts)
    x, shapes = 0.0, []
    for name, style, value in parts:
        width = WIDTH * value / total_usd if total_usd else 0.0
        about = tag("title", f"{name}: {usd(value)}, {value / total_usd:.1%}" if total_usd else name)
        shapes.append(tag("rect", about, x=_1(x), y="0", width=_1(width), height="34", class_=style))
        x += width
    box = f"0 0 {WIDTH} 34"
    return tag("svg", *shapes, viewBox=box, preserveAspectRatio="none", class_="share", role="img", aria_label=title)


def ranked(rows: Sequence[tuple[str, str, tuple[float, float, float]]], title: str) -> Markup:
    """Return a bar for each row with a whisker from low to high; `rows` are (name, CSS class, dollars)."""
    label_width, amount_width, height = 300, 90, 24
    top = ceiling(max((high for _, _, (_, _, high) in rows), default=0.0))
    scale = (WIDTH - label_width - amount_width) / top
    shapes: list[Markup] = []
    for n, (name, style, (low, likely, high)) in enumerate(rows):
        y = n * height + 4
        about = tag("title", f"{name}: {usd(likely)} a month, {usd(low)} to {usd(high)}")
        shapes.append(tag("text", about, _cut(name), x=str(label_width - 8), y=str(y + 12), class_="tick end"))
        bar = max(0.0, likely) * scale
        shapes.append(tag("rect", about, x=str(label_width), y=str(y), width=_1(bar), height="16", class_=style))
        first, last = label_width + max(0.0, low) * scale, label_width + max(0.0, high) * scale
        shapes.append(tag("line", x1=_1(first), x2=_1(last), y1=str(y + 8), y2=str(y + 8), class_="whisker"))
        shapes.append(tag("text", usd(likely), x=_1(max(last, label_width + bar) + 8), y=str(y + 12), class_="tick"))
    return _plot_svg(title, shapes, height * len(rows) + 4)


def ceiling(value: float) -> float:
    """Return the end of an axis: 1, 2, 2.5 or 5 times a power of ten, not below the value."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= value * (1 - 1e-12))


def usd(value: float) -> str:
    """Return dollars as text."""
    return format_money(value, "$")


def date(ts: int) -> str:
    """Return the day of an instant, UTC."""
    return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%d")


def _cut(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def _plot_svg(title: str, shapes: Sequence[Markup], height: int = HEIGHT) -> Markup:
    """Return a plot that scrolls where it would be too small to read."""
    drawn = tag("svg", *shapes, viewBox=f"0 0 {WIDTH} {height}", class_="plot", role="img", aria_label=title)
    return tag("div", drawn, class_="wide")


def _axis(top: float) -> list[Markup]:
    marks = []
    for n in range(5):
        value = top * n / 4
        y = _y(value, top)
        marks.append(tag("line", x1=str(LEFT), x2=str(WIDTH - RIGHT), y1=_1(y), y2=_1(y), class_="grid"))
        marks.append(tag("text", usd(value), x=str(LEFT - 6), y=_1(y + 4), class_="tick end"))
    return marks


def _dates(days: Sequence[int]) -> list[Markup]:
    step, every = _step(len(days)), max(1, math.ceil(len(days) / 8))
    return [
        tag("text", date(day)[5:], x=_1(LEFT + (n + 0.5) * step), y=str(HEIGHT - 8), class_="tick middle")
        for n, day in enumerate(days)
        if n % every == 0
    ]


def _runs(values: Days) -> list[list[tuple[int, float]]]:
    runs: list[list[tuple[int, float]]] = [[]]
    for day, value in values:
        if value is None:
            runs.append([])
        else:
            runs[-1].append((day, value))
    return [run for run in runs if run]


def _step(n: int) -> float:
    return (WIDTH - LEFT - RIGHT) / max(1, n)


def _y(value: float, top: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)


def _1(value: float) -> str:
    return f"{value:.1f}"


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
    return (files("pertoken.reports") / "report.css").read_text(encoding="utf-8")


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
    # The dollars of a day that is not over include idle hours before its later tokens.
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
    variants = [("found", "s0", row, row.best) for row in report.savings.folds.shown[:CHANGES]]
    variants += [("taken", "s2", row, row.chosen) for row in report.savings.taken[:CHANGES]]
    rows = [
        (f"{what}: {row.change}", style, (low / NANO_USD, likely / NANO_USD, high / NANO_USD))
        for what, style, row, variant in variants
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


MAX_ROWS = 200
"""Rows of a table; JSON has all."""
TITLE = "What our tokens cost, in all cells"


def lake_html(url: str, answers: Sequence[LakeTable], coverage: Coverage) -> str:
    """Return answers of a lake as one HTML document that loads no other resource."""
    sections = [table_section(_table(url, answer)) for answer in answers]
    return document(TITLE, [url, *coverage_lines(coverage)], sections)


def lake_markdown(url: str, answers: Sequence[LakeTable], coverage: Coverage) -> str:
    """Return answers of a lake as Markdown."""
    head = "\n".join(f"- {plain(line)}" for line in (url, *coverage_lines(coverage)))
    blocks = [f"# {TITLE}", f"Amounts are US dollars.\n\n{head}", *(table_block(_table(url, a)) for a in answers)]
    return "\n\n".join(blocks) + "\n"


def _table(url: str, answer: LakeTable) -> Table:
    rows = [tuple(column.text(row) for column in answer.columns) for row in answer.rows[:MAX_ROWS]]
    more = len(answer.rows) - MAX_ROWS
    notes = [note for note in (answer.note, f"and {more:,} more" if more > 0 else None) if note]
    names = tuple(column.key if column.order is None else f">{column.key}" for column in answer.columns)
    return Table(answer.title, names, tuple(rows), "None.", f"pertoken costs --db {url}", tuple(notes))
