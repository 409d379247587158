"""Answers of a lake as tables of text cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from pertoken.costs.ledger import KindDollars, TokenCounts, divide, kind_prices
from pertoken.lake.questions import Coverage
from pertoken.text.amounts import amount
from pertoken.text.columns import Column, table
from pertoken.text.words import literal
from pertoken.units import MTOK, NANO_USD, counted, format_count, format_utc

Row = Mapping[str, object]
MAX_FAULTS = 5
"""Days that a note names; of more only the number."""
NAMES = {
    "nano_usd": "dollars",
    "busy_nano_usd": "busy",
    "idle_nano_usd": "idle",
    "other_nano_usd": "other work",
    "unallocated_nano_usd": "unallocated",
    "prefill_nano_usd": "prefill",
    "cached_nano_usd": "cached",
    "decode_nano_usd": "decode",
    "unsplit_nano_usd": "not split",
    "unused_nano_usd": "not used",
    "low_nano_usd": "low",
    "likely_nano_usd": "likely",
    "high_nano_usd": "high",
    "low_nano_usd_month": "low/month",
    "likely_nano_usd_month": "likely/month",
    "high_nano_usd_month": "high/month",
    "nano_usd_per_mtok": "$/Mtok",
    "prefill_nano_usd_per_mtok": "computed $/Mtok",
    "cached_nano_usd_per_mtok": "cached $/Mtok",
    "decode_nano_usd_per_mtok": "generated $/Mtok",
    "prompt_tokens": "prompt",
    "cached_tokens": "of them cached",
    "generated_tokens": "generated",
    "unpriced_device_hours": "hours without price",
}
"""Columns as people read them; others by their own name."""
_HIDDEN = frozenset({"recommendation_id", "state", "commitment", "overlapped_nano_usd", "decode_low_nano_usd"})


@dataclass(frozen=True, slots=True)
class LakeTable:
    """One answer."""

    title: str
    rows: Sequence[Row]
    note: str | None = None

    @property
    def columns(self) -> list[Column[Row]]:
        """Columns of its rows: names first, then amounts and counts."""
        keys = [key for key in self.rows[0] if key not in _HIDDEN] if self.rows else []
        keys.sort(key=lambda key: not _is_name(key))
        return [_column(key, rank) for rank, key in enumerate(keys)]


def with_per_mtok(row: Row) -> dict[str, object]:
    """Return a row of dollars and tokens with the cost of a million of its tokens; None where none was served."""
    tokens = (_count(row, "prompt_tokens") or 0) + (_count(row, "generated_tokens") or 0)
    nano_usd = _count(row, "nano_usd")
    return {**row, "nano_usd_per_mtok": divide(nano_usd * MTOK, tokens) if tokens and nano_usd is not None else None}


def with_kind_prices(row: Row) -> dict[str, object]:
    """Return a row of dollars by kind of work with the cost of a million tokens of each kind; None where not known."""
    dollars = {field.name: _count(row, f"{field.name}_nano_usd") for field in fields(KindDollars)}
    known_dollars = {name: nano_usd for name, nano_usd in dollars.items() if nano_usd is not None}
    tokens = TokenCounts(*(_count(row, f"{kind}_tokens") for kind in TokenCounts._fields))
    prices = kind_prices(KindDollars(**known_dollars) if len(known_dollars) == len(dollars) else None, tokens)
    per_mtok = ((name.replace("_usd_", "_nano_usd_"), price.value) for name, price in prices.items())
    return {**row, **{name: None if usd is None else round(usd * NANO_USD) for name, usd in per_mtok}}


def _count(row: Row, key: str) -> int | None:
    """Return a whole number of a row; None for NULL."""
    count = row[key]
    return count if isinstance(count, int) else None


def lake_text(title: str, tables: Sequence[LakeTable], coverage: Coverage, width: int | None) -> str:
    """Return answers as text, at most `width` cells wide; None: nothing is cut."""
    blocks = [[title, *coverage_lines(coverage)]]
    for answer in tables:
        lines = table(answer.title, answer.rows, answer.columns, width) if answer.rows else [answer.title, "  none"]
        blocks.append([*lines, *([f"  {answer.note}"] if answer.note else [])])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def coverage_lines(coverage: Coverage) -> list[str]:
    """Return the coverage of the answers, and the days that are left out."""
    through = (
        "nothing of these hours is published"
        if coverage.through_ts is None
        else f"to {format_utc(coverage.through_ts)}"
    )
    cells = counted(len(coverage.cells), "cell")
    lines = [f"{cells}, {counted(coverage.n_days, 'published day')}, {through}"]
    lines += [f"Left out: {literal(str(fault))}" for fault in coverage.faults[:MAX_FAULTS]]
    if len(coverage.faults) > MAX_FAULTS:
        lines.append(f"Left out: {counted(len(coverage.faults) - MAX_FAULTS, 'more day')} of cells")
    return lines


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) else None


def _cell(key: str, value: object) -> str:
    if "nano_usd" in key:
        return amount(_number(value))
    if value is None:
        return "" if not _is_name(key) else "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return format_count(value) if key.endswith("tokens") else f"{value:,}"
    return literal(str(value))


def _is_name(key: str) -> bool:
    return "nano_usd" not in key and not key.endswith(("_tokens", "_hours")) and key not in ("changes", "hour")


def _column(key: str, rank: int) -> Column[Row]:
    order = None if _is_name(key) else lambda row: _number(row[key])
    return Column(NAMES.get(key, key), lambda row: _cell(key, row[key]), rank, order, 12 if rank == 0 else None)
