"""Lines of a bill, from the file that a cloud exports."""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from pertoken.catalog.invoices import InvoiceFormat, format_of, formats, plain
from pertoken.costs.csv_rows import csv_rows
from pertoken.costs.invoice.parquet import MAGIC, parquet_rows
from pertoken.errors import BadInput
from pertoken.printable import short
from pertoken.units import NANO_USD

MAX_BYTES = 512 * 2**20
GZIP_MAGIC = b"\x1f\x8b"
MAX_AMOUNT = 10**12
DAY = 86_400
USAGE, COVERED = "usage", "covered"
"""Kinds of lines whose hours are those of a resource."""
DISCOUNT, NEGATION = "discount", "negation"
"""Kinds of lines that lower the cost of such hours; a negation takes off what a commitment pays for."""
_HOURS = re.compile(r"(\d*)\s*(hours?|hrs?|h)\b", re.IGNORECASE)
_SECONDS = re.compile(r"seconds?$", re.IGNORECASE)
_DATES = ("%m/%d/%Y", "%Y-%m-%d %H:%M:%S UTC", "%Y-%m-%d %H:%M:%S.%f UTC")
"""Times as formats write them where it is not ISO 8601."""


@dataclass(frozen=True, slots=True)
class InvoiceLine:
    """One line of a bill."""

    resource: str
    """Identifier of what was used; empty for a line of the whole account."""
    start_ts: int
    end_ts: int
    kind: str
    """usage, covered, discount, negation, credit, tax, commitment, fee or other."""
    nano_usd: int
    """What is billed: all lines sum to the invoice."""
    effective_nano_usd: int
    """With its part of a commitment that covers it; else what is billed."""
    list_nano_usd: int | None
    """At list prices; None: not stated."""
    hours: float | None
    """Hours used; None where its unit is no time."""
    description: str


@dataclass(frozen=True, slots=True)
class Invoice:
    """A bill of a cloud."""

    format: InvoiceFormat
    lines: tuple[InvoiceLine, ...]

    @property
    def nano_usd(self) -> int:
        """Everything that is billed."""
        return sum(line.nano_usd for line in self.lines)

    @property
    def span(self) -> tuple[int, int]:
        """First and last instant that lines with time in them are of."""
        return min(line.start_ts for line in self.lines), max(line.end_ts for line in self.lines)


def read_invoice(path: Path) -> Invoice:
    """Return the lines of a CSV, JSON (a list, or an object on each line) or Parquet export; text may be gzipped.

    Raises BadInput naming the file, the row and the column that is wrong.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadInput(f"{path}: larger than {MAX_BYTES // 2**20} MiB: export one month, or instances alone")
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
        rows = parquet_rows(path) if start == MAGIC else _text_rows(path, _decoded(path, start))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from None
    try:
        flat = [_flat(row) for row in rows]
    except RecursionError:
        raise BadInput(f"{path}: its rows are nested too deeply") from None
    if not flat:
        raise BadInput(f"{path}: holds no line")
    invoice_format = format_of({name for row in flat[:100] for name in row})
    if invoice_format is None:
        known = "; ".join(f"{known_format.title}: {', '.join(known_format.needs)}" for known_format in formats())
        raise BadInput(f"{path}: is none of the known formats, by their columns: {known}")
    return Invoice(
        invoice_format, tuple(_line(f"{path}: row {n}", row, invoice_format) for n, row in enumerate(flat, 1))
    )


def _decoded(path: Path, start: bytes) -> str:
    """Return the text of a file, which may be compressed by gzip."""
    if not start.startswith(GZIP_MAGIC):
        return path.read_text(encoding="utf-8-sig")
    with gzip.open(path) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise BadInput(f"{path}: unpacks to more than {MAX_BYTES // 2**20} MiB: export one month, or instances alone")
    return content.decode("utf-8-sig")


def _text_rows(path: Path, text: str) -> list[Mapping[str, Any]]:
    return _json(path, text) if text.lstrip()[:1] in ("{", "[") else list(csv_rows(path, text))


def _json(path: Path, text: str) -> list[Mapping[str, Any]]:
    try:
        if text.lstrip().startswith("["):
            rows = json.loads(text, parse_float=Decimal)
        else:
            rows = [json.loads(line, parse_float=Decimal) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not valid JSON: {error}") from None
    if not all(isinstance(row, dict) for row in rows):
        raise BadInput(f"{path}: must be a list of objects, or one object on each line")
    return list(rows)


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a row with plain names of columns, nested objects as columns with dots."""
    columns: dict[str, Any] = {}
    for name, value in row.items():
        column = f"{prefix}{plain(str(name))}"
        columns |= _flat(value, f"{column}.") if isinstance(value, dict) else {column: value}
    return columns


def _line(where: str, row: Mapping[str, Any], form: InvoiceFormat) -> InvoiceLine:
    start = _time(where, row, form.start)
    end = _time(where, row, form.end) if form.end and _text(row, form.end) else start + DAY
    if end <= start:
        raise BadInput(f"{where}: {form.end} is not after {form.start}")
    kind = form.kinds.get(_text(row, form.kind), "other")
    rate = _rate(where, row, form)
    billed = next(_numbers(where, row, form.cost), None)
    if billed is None:
        raise BadInput(f"{where}: {' or '.join(form.cost)} holds no number")
    billed += _credits(where, row, form)
    effective = next((number for number in _numbers(where, row, form.effective) if number > 0), billed)
    amount = _number(where, row, form.amount) if form.amount else None
    return InvoiceLine(
        resource=_text(row, form.resource),
        start_ts=start,
        end_ts=end,
        kind=kind,
        nano_usd=_nano(billed / rate),
        effective_nano_usd=_nano((effective if kind in (USAGE, COVERED) else billed) / rate),
        list_nano_usd=_list(where, row, form, amount, rate),
        hours=_hours(form, amount, _text(row, form.unit or ""), end - start),
        description=_text(row, form.description),
    )


def _rate(where: str, row: Mapping[str, Any], form: InvoiceFormat) -> Decimal:
    """Return the units of the row's currency for a dollar. Raises BadInput where they are not known."""
    currency = _text(row, form.currency).upper() or "USD"
    in_usd = any(_text(row, name) and plain(name).endswith("usd") for name in form.cost)
    if currency == "USD" or in_usd:
        return Decimal(1)
    rate = _number(where, row, form.per_usd) if form.per_usd else None
    if not rate or rate <= 0:
        raise BadInput(f"{where}: is in {short(currency)}, and no rate to dollars stands beside it: export it in USD")
    return rate


def _credits(where: str, row: Mapping[str, Any], form: InvoiceFormat) -> Decimal:
    """Return the sum of a line's credits, which are negative amounts."""
    given = None if form.credits is None else row.get(plain(form.credits))
    if isinstance(given, str) and given.strip():
        try:
            given = json.loads(given, parse_float=Decimal)
        except (ValueError, RecursionError):
            raise BadInput(f"{where}: {form.credits} is not JSON") from None
    if not isinstance(given, list):
        return Decimal(0)
    amounts = [row.get("amount") for row in given if isinstance(row, dict)]
    return sum((_decimal(where, form.credits or "", amount) for amount in amounts if amount is not None), Decimal(0))


def _list(where: str, row: Mapping[str, Any], form: InvoiceFormat, amount: Decimal | None, rate: Decimal) -> int | None:
    """Return what a line costs at list prices; None where it does not state that, or states 0."""
    stated = _number(where, row, form.list) if form.list else None
    if stated is None and form.list_price and amount is not None:
        price = _number(where, row, form.list_price)
        stated = None if price is None else price * amount
    return _nano(stated / rate) if stated else None


def _hours(form: InvoiceFormat, amount: Decimal | None, unit: str, seconds: int) -> float | None:
    """Return the hours of a line: by its amount, or by its time where amounts count cores and bytes by the second."""
    if form.hours_by_time:
        return seconds / 3600 if _SECONDS.search(unit) else None
    match = _HOURS.match(unit)
    return None if match is None or amount is None else float(amount) * int(match[1] or 1)


def _time(where: str, row: Mapping[str, Any], column: str) -> int:
    text = _text(row, column)
    for read in (datetime.fromisoformat, *(lambda text, form=form: datetime.strptime(text, form) for form in _DATES)):
        try:
            moment = read(text)
        except ValueError:
            continue
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    raise BadInput(f"{where}: {column} {short(repr(text))} is not a time")


def _text(row: Mapping[str, Any], column: str) -> str:
    value = row.get(plain(column))
    return "" if value is None else str(value).strip()


def _numbers(where: str, row: Mapping[str, Any], columns: Iterable[str]) -> Iterator[Decimal]:
    """Yield the numbers of those columns that hold one."""
    numbers = (_number(where, row, column) for column in columns)
    return (number for number in numbers if number is not None)


def _number(where: str, row: Mapping[str, Any], column: str) -> Decimal | None:
    text = _text(row, column)
    return _decimal(where, column, text) if text else None


def _decimal(where: str, column: str, value: object) -> Decimal:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or abs(number) > MAX_AMOUNT:
        raise BadInput(f"{where}: {column} {short(repr(str(value)))} is not a number")
    return number


def _nano(usd: Decimal) -> int:
    return int((usd * NANO_USD).to_integral_value(ROUND_HALF_EVEN))
