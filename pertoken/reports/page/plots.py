"""Plots as SVG: stacked bars by day, lines by day, and one bar that is divided. Values are dollars."""

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from pertoken.reports.page.markup import Markup, tag
from pertoken.units import format_money

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
    return _plot(title, [*_axis(top), *shapes, *_dates([day for day, _ in days])])


def lines(series: Mapping[str, Days], title: str) -> Markup:
    """Return a line for each series; days without a value are gaps."""
    days = sorted({day for points in series.values() for day, _ in points})
    top = ceiling(max((value for points in series.values() for _, value in points if value is not None), default=0.0))
    step, at = _step(len(days)), {day: n for n, day in enumerate(days)}
    shapes: list[Markup] = []
    for n, (name, values) in enumerate(series.items()):
        for piece in _pieces(values):
            points = [(LEFT + (at[day] + 0.5) * step, _y(value, top)) for day, value in piece]
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
                for (day, value), (x, y) in zip(piece, points, strict=True)
            ]
    return _plot(title, [*_axis(top), *shapes, *_dates(days)])


def divided(parts: Sequence[tuple[str, str, float]], title: str) -> Markup:
    """Return one bar divided in proportion; `parts` are (name, CSS class, dollars)."""
    whole = sum(value for _, _, value in parts)
    x, shapes = 0.0, []
    for name, style, value in parts:
        width = WIDTH * value / whole if whole else 0.0
        about = tag("title", f"{name}: {usd(value)}, {value / whole:.1%}" if whole else name)
        shapes.append(tag("rect", about, x=_1(x), y="0", width=_1(width), height="34", class_=style))
        x += width
    box = f"0 0 {WIDTH} 34"
    return tag("svg", *shapes, viewBox=box, preserveAspectRatio="none", class_="share", role="img", aria_label=title)


def ranked(rows: Sequence[tuple[str, str, tuple[float, float, float]]], title: str) -> Markup:
    """Return a bar for each row with a whisker from low to high; `rows` are (name, CSS class, dollars)."""
    left, right, height = 300, 90, 24
    top = ceiling(max((high for _, _, (_, _, high) in rows), default=0.0))
    scale = (WIDTH - left - right) / top
    shapes: list[Markup] = []
    for n, (name, style, (low, likely, high)) in enumerate(rows):
        y = n * height + 4
        about = tag("title", f"{name}: {usd(likely)} a month, {usd(low)} to {usd(high)}")
        shapes.append(tag("text", about, _cut(name), x=str(left - 8), y=str(y + 12), class_="tick end"))
        bar = max(0.0, likely) * scale
        shapes.append(tag("rect", about, x=str(left), y=str(y), width=_1(bar), height="16", class_=style))
        first, last = left + max(0.0, low) * scale, left + max(0.0, high) * scale
        shapes.append(tag("line", x1=_1(first), x2=_1(last), y1=str(y + 8), y2=str(y + 8), class_="whisker"))
        shapes.append(tag("text", usd(likely), x=_1(max(last, left + bar) + 8), y=str(y + 12), class_="tick"))
    return _plot(title, shapes, height * len(rows) + 4)


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


def _plot(title: str, shapes: Sequence[Markup], height: int = HEIGHT) -> Markup:
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


def _pieces(values: Days) -> list[list[tuple[int, float]]]:
    pieces: list[list[tuple[int, float]]] = [[]]
    for day, value in values:
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append((day, value))
    return [piece for piece in pieces if piece]


def _step(n: int) -> float:
    return (WIDTH - LEFT - RIGHT) / max(1, n)


def _y(value: float, top: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)


def _1(value: float) -> str:
    return f"{value:.1f}"
