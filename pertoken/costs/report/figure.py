"""A number, or the reason why it is not known."""

from typing import NamedTuple


class Figure(NamedTuple):
    """A number, or the reason why it is not known."""

    value: float | None
    reason: str | None = None


def per(above: Figure, below: Figure, none: str) -> Figure:
    """Return a quotient; unknown for the reason of its unknown part, or `none` where it would divide by 0."""
    if above.value is None or below.value is None:
        return Figure(None, above.reason or below.reason)
    return Figure(above.value / below.value) if below.value else Figure(None, none)
