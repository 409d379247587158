"""The one way from rows to figures: everything recorded of a stretch of time, read in one transaction."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

from sqlalchemy import Connection

from pertoken.catalog.market import Market
from pertoken.store.connect.open import Store
from pertoken.store.query import read, sums
from pertoken.store.query.answers import Rows, asking
from pertoken.store.query.buckets import buckets
from pertoken.store.query.energy import weekly_energy
from pertoken.store.query.segments import Segments, divided_hours, stretches
from pertoken.window.columns import Columns, columns
from pertoken.window.epochs.history import read_history
from pertoken.window.evidence import EvidenceReader
from pertoken.window.inventory import Inventory, by, read_inventory
from pertoken.window.measured import read_measured, resolution
from pertoken.window.progress import Progress, no_progress
from pertoken.window.recent import Recent, read_recent
from pertoken.window.totals import Following, Totals, following, stretch

SLICES_S = (60, 300, 600, 3600, 7200, 43_200, 86_400)
"""Lengths of slices of a window. From some hours on they are whole hours: a fleet has too many minutes."""
DAY = 86_400
MAX_SLICES = 15
"""Cells of a sparkline in the fleet's table."""
SERVED = ("epoch_id", "ts", "whole_ms", "prompt_tokens", "generated_tokens", "observed_ms")
SHARED = ("epoch_id", "ts", "device_id", "held_ns")


Piece = tuple[Segments, Following]


def first_recorded(store: Store) -> int | None:
    """Return when the first host was first seen; None if nothing was recorded. Raises StoreError."""
    with store.read() as connection:
        return read.first_ts(connection)


def weekly_power_w(connection: Connection, device_ids: Collection[int]) -> dict[int, list[tuple[int, float]]]:
    """Return the mean watts of each device by the start of each week (Monday 00:00 UTC), oldest first.

    They are its measured energy over its time, else the mean of its power samples. Weeks without either are left out.
    """
    found: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for device_id, week, energy_mj, measured_ms, power_mw, samples in weekly_energy(connection, device_ids):
        if measured_ms:
            found[device_id].append((week, float(energy_mj) / float(measured_ms)))  # mJ/ms is W
        elif samples:
            found[device_id].append((week, float(power_mw) / float(samples) / 1000))
    return dict(found)


class ServedBuckets(NamedTuple):
    """Buckets between two cuts of a window."""

    start: int
    is_part: bool
    """Whether it begins with a part of an hour whose minutes were deleted."""
    served: Columns
    """`SERVED`: time each epoch held its devices whole, its tokens and observed time."""
    shared: Columns
    """`SHARED`: time each epoch held a part of a device."""


class Window:
    """Telemetry of [start, end). Each part is read when it is asked for, in the caller's transaction.

    Nothing in it has a price. Instants at which prices change are passed as `cuts`, so that sums never span one.
    `dated`: `end`, a whole minute, is in the past, and everything is as of then.
    """

    def __init__(self, connection: Connection, start: int, end: int, *, dated: bool = False) -> None:
        self._connection = connection
        self.start, self.end = start, end
        self._as_of = end if dated else None
        self._whole_hour = read.whole_hour(connection, end)
        """Whether the hour that `end` lies in is as new as its minutes."""
        self._has_minutes: dict[int, bool] = {}
        """By start of an hour, as far as looked up."""

    @cached_property
    def inventory(self) -> Inventory:
        """What there was."""
        return read_inventory(self._connection, self.start, self.end, self._as_of)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Let a server work on what was asked while Python does; look late at what was asked first."""
        with asking(self._connection):
            yield

    @property
    def slice_s(self) -> int:
        """Length of the slices of a sparkline."""
        return next((s for s in SLICES_S if self.end - self.start <= s * MAX_SLICES), SLICES_S[-1])

    def pieces(self, cuts: Iterable[int]) -> tuple[Piece, ...]:
        """Return what lies between two cuts each, and in it the busy time of worker ranks."""
        return tuple((each, following(self._connection, each, self.inventory)) for each in self._stretches(cuts))

    def totals(self, pieces: Sequence[Piece]) -> Totals:
        """Ask for the sums of each piece; within `asking` a server works while Python does."""
        connection = self._connection
        paid = [stretch(connection, *each) for each in pieces]
        hours = self._hours()
        return Totals(
            self.inventory,
            paid,
            sums.histograms(connection, hours, ("ttft_s", "tpot_s")),
            sums.engine_counter_totals(connection, hours),
            sums.generated_by_slice(connection, self.start // self.slice_s * self.slice_s, self.end, self.slice_s),
        )

    def recent(self) -> Recent:
        """Ask how it is now."""
        return read_recent(self._connection, self.inventory, self.start, self._as_of)

    def served(self, cuts: Iterable[int]) -> Iterator[ServedBuckets]:
        """Yield the buckets of all epochs between two cuts each."""
        for each in self._stretches(cuts):
            yield ServedBuckets(
                each[0].begin,
                each[0].part is not None,
                columns(SERVED, buckets(self._connection, "deployment", each, SERVED)),
                columns(SHARED, buckets(self._connection, "share", each, SHARED)),
            )

    def device_time(self, cuts: Iterable[int]) -> Iterator[tuple[int, int, Rows]]:
        """Yield (first, last, rows of `sums.device_time`) between two cuts each."""
        for each in self._stretches(cuts):
            yield each[0].begin, each[-1].until, sums.device_time(self._connection, each)

    def evidence(self, market: Market, progress: Progress = no_progress) -> EvidenceReader:
        """Read all that rules may ask for. `progress` is called between statements, and as rows come in."""
        owners = len(self.inventory.devices) + len(self.inventory.epochs)
        where = resolution(self._connection, self.start, self.end, owners)
        return EvidenceReader(
            market,
            self.inventory,
            read_measured(self._connection, where, self.inventory.own_devices, progress),
            self._histograms(progress),
            by(read.missing(self._connection, self._as_of), "owner_id"),
            read.holders_known_since(self._connection),
            read_history(self._connection, self._device_kinds(), self.end, self._as_of),
        )

    def _device_kinds(self) -> Mapping[int, str]:
        return {device_id: str(row.name) for device_id, row in self.inventory.devices.items()}

    def _histograms(self, progress: Progress) -> Mapping[tuple[int, str], Sequence[tuple[str, str]]]:
        """Read histograms day by day: what is grouped at once stays small, and progress is seen."""
        found: dict[tuple[int, str], list[tuple[str, str]]] = defaultdict(list)
        pieces = self._stretches(range(self.start // DAY * DAY + DAY, self.end, DAY))
        for done, piece in enumerate(pieces):
            progress("reading histograms", done / len(pieces))
            for epoch_id, metric, upper_bounds, counts in sums.histograms(self._connection, piece):
                found[epoch_id, metric].append((upper_bounds, counts))
        return found

    def _hours(self) -> Segments:
        (whole,) = self._stretches(())
        return whole

    def _stretches(self, cuts: Iterable[int]) -> tuple[Segments, ...]:
        """Return the buckets between two cuts each; hours without minutes are divided by time."""
        cuts = tuple(cuts)
        divided = divided_hours(self.start, self.end, cuts, under_way=self._whole_hour)
        unread = [hour for hour in divided if hour not in self._has_minutes]
        gone = read.without_minutes(self._connection, unread)
        self._has_minutes |= {hour: hour not in gone for hour in unread}
        without = [hour for hour in divided if not self._has_minutes[hour]]
        return stretches(self.start, self.end, cuts, under_way=self._whole_hour, without_minutes=without)
