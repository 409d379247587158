"""The stretch of time that a report covers."""

from dataclasses import dataclass

from pertoken.errors import BadInput
from pertoken.store.schema.telemetry import HOUR
from pertoken.units import format_utc, parse_time

DAY = 86_400
DEFAULT_DAYS = 30


@dataclass(frozen=True, slots=True)
class Period:
    """[start, end), epoch seconds; it starts at a full hour of the clock."""

    start: int
    end: int
    dated: bool
    """Whether its end was given: everything is as of that end, without later rows."""

    @property
    def seconds(self) -> int:
        """Length."""
        return self.end - self.start

    @property
    def hours(self) -> int:
        """Hours of the clock, the one that its end lies in included, as `pertoken costs --hours` counts them."""
        return -(-self.end // HOUR) - self.start // HOUR

    @property
    def at(self) -> str:
        """Its end as `--at` takes it: `2026-11-21T10:00Z`."""
        return format_utc(self.end).replace(" ", "T")

    @property
    def text(self) -> str:
        """`2026-10-22 00:00Z to 2026-11-21 10:00Z`."""
        return f"{format_utc(self.start)} to {format_utc(self.end)}"

    def days(self) -> range:
        """Return the starts of the days of the calendar (UTC) it touches."""
        return range(self.start // DAY * DAY, self.end, DAY)

    def part_days(self) -> frozenset[int]:
        """Return the days that it covers in part; none where it covers no day wholly, so that all are alike."""
        part = frozenset(day for day in self.days() if day < self.start or day + DAY > self.end)
        return part if len(part) < len(self.days()) else frozenset()

    def preceding(self) -> "Period":
        """Return the period of the same length before this one."""
        return Period(self.start - self.seconds, self.start, dated=True)


def period_of(start: str | None, end: str | None, now_ts: int, *, dated: bool) -> Period:
    """Return the period of `--from` and `--to`; `now_ts` is `--at`, or now. Raises BadInput.

    Without `--to` it ends now; without `--from` it starts `DEFAULT_DAYS` before.
    """
    until = now_ts if end is None else _time("--to", end, now_ts)
    if until > now_ts:
        raise BadInput(f"--to {end}: lies after {format_utc(now_ts)}, the end of the report")
    until = until // 60 * 60 if end is not None else until
    first = until - DEFAULT_DAYS * DAY if start is None else _time("--from", start, now_ts)
    first = first // HOUR * HOUR
    if first >= until:
        raise BadInput(f"--from {start}: begins at {format_utc(first)}, not before the end at {format_utc(until)}")
    return Period(first, until, dated=dated or end is not None)


def _time(option: str, text: str, now_ts: int) -> int:
    try:
        return parse_time(text, now_ts)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from None
