"""Bar chart for the free lines of a screen."""

from collections.abc import Sequence

from pertoken.text.words import peak

_BARS = " ▁▂▃▄▅▆▇█"
MIN_HEIGHT = 3
MAX_HEIGHT = 10


def chart(title: str, values: Sequence[float | None], width: int, height: int) -> tuple[str, ...]:
    """Return at most `height` lines: the title with the scale, and bars from 0 to the highest value over `width` cells.

    A slice without a value is blank; one of 0 has the lowest bar. Empty if no slice has a value.
    """
    known = [value for value in values if value is not None]
    if not known or height < MIN_HEIGHT:
        return ()
    top, rows, n = max(known) or 1.0, min(height, MAX_HEIGHT) - 1, len(values)
    steps = len(_BARS) - 1
    cells = [values[i * n // width] for i in range(width)]
    levels = [0 if value is None else max(1, round(value / top * rows * steps)) for value in cells]
    lines = [
        "".join(_BARS[min(steps, max(0, level - (rows - 1 - row) * steps))] for level in levels) for row in range(rows)
    ]
    return (f"{title}: 0 to {peak(values)}", *lines)
