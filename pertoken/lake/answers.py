"""Answers from a lake: a question is asked of all days that can be read, and the others are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from types import TracebackType
from typing import Any, Self

from pertoken.errors import StoreError
from pertoken.lake import questions
from pertoken.lake.engines import Engine, EngineFailed, engine
from pertoken.lake.files import LakeFiles
from pertoken.lake.reading import DayFault, Days, Range, Tables, checked, days_of, verified
from pertoken.lake.tables import ADVICE, COSTS, KINDS, OWNERS, SAVINGS, TOKENS

ASKED = (COSTS, TOKENS, KINDS, OWNERS, SAVINGS, ADVICE)
"""Tables that questions read."""
CHECKED = (COSTS, TOKENS)
"""Tables of hours, whose rows are checked before they are summed."""
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the answers of a session are of."""

    cells: tuple[str, ...]
    n_days: int
    """Days of cells that are in every answer."""
    through_ts: int | None
    """End of the newest closed hour; None without a day."""
    faults: tuple[DayFault, ...]

    def values(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "cells": list(self.cells),
            "days": self.n_days,
            "through_ts": self.through_ts,
            "left_out": [str(fault) for fault in self.faults],
        }


class FaultyDays(Exception):
    """Days with rows of no bill."""

    def __init__(self, faults: tuple[DayFault, ...]) -> None:
        super().__init__(*faults)
        self.faults = faults


class OpenTables(Mapping[str, Any]):
    """Tables of some days. A table is opened and checked when a question first reads it.

    Reading one raises FaultyDays where some of its days hold rows of no bill, and EngineFailed.
    """

    def __init__(self, engine: Engine, days: Days, asked: Range) -> None:
        self._engine, self._days, self._asked = engine, days, asked
        self._opened: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._opened:
            self._opened[name] = self._open(name)
        return self._opened[name]

    def __iter__(self) -> Iterator[str]:
        return iter(ASKED)

    def __len__(self) -> int:
        return len(ASKED)

    def _open(self, name: str) -> Any:
        table = self._engine.table(name, self._days.paths(name))
        if name not in CHECKED:
            return table
        reason = f"its {name} hold lines that no bill holds"
        rows = self._engine.run(questions.faulty_days({name: table}, name)).to_pylist()
        if rows:
            raise FaultyDays(tuple(DayFault(row["cell"], date.fromisoformat(row["day"]), reason) for row in rows))
        return questions.with_owners(questions.within(table, self._asked))


class LakeSession:
    """Questions about one range of days, over one engine. Close it, or use it as a context manager."""

    def __init__(self, url: str, asked: Range, engine_name: str) -> None:
        """Raise BadInput for an unknown engine or URL, StoreError where the lake cannot be listed or is none."""
        lake = LakeFiles(url)
        self.asked = asked
        days = checked(days_of(lake, asked), ASKED)
        self._engine: Engine = engine(engine_name, lake)
        self._open(days)

    @property
    def coverage(self) -> Coverage:
        """Which days the answers are of; it may shrink with a question that finds a damaged file."""
        days = self._days
        through_ts = max((manifest.through_ts for manifest in days.manifests), default=None)
        return Coverage(days.cells, len(days.manifests), through_ts, days.faults)

    def rows(self, question: Callable[[Tables], Any]) -> list[Row]:
        """Return the rows that answer a question, whole decimals as int.

        Where the engine cannot read a file, all files are compared with their checksums, and the days of those that
        differ are left out. Raises StoreError where the engine fails without such a file.
        """
        try:
            return self._ask(question)
        except EngineFailed as error:
            days = verified(self._days, ASKED)
            if days == self._days:
                raise StoreError(f"{self._engine.name}: {error}") from None
            self._open(days)
        try:
            return self._ask(question)
        except EngineFailed as error:
            raise StoreError(f"{self._engine.name}: {error}") from None

    def _ask(self, question: Callable[[Tables], Any]) -> list[Row]:
        while True:
            try:
                return [_plain(row) for row in self._engine.run(question(self._tables)).to_pylist()]
            except FaultyDays as found:
                self._open(self._days.without(found.faults))

    def _open(self, days: Days) -> None:
        self._days, self._tables = days, OpenTables(self._engine, days, self.asked)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.__exit__(kind, error, trace)


def _plain(row: Row) -> Row:
    return {name: int(value) if isinstance(value, Decimal) else value for name, value in row.items()}
