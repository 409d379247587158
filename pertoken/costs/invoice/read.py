"""Lines of a bill, from the file that a cloud exports, by the columns of its format.

Where exports of one format differ, a column is written with its other names, a bar between them: the first that a row
has counts.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import TypeVar

from pertoken.catalog.offers import toml_table
from pertoken.costs.prices.offers import csv_rows
from pertoken.errors import BadInput
from pertoken.installed import install_command
from pertoken.printable import short
from pertoken.units import NANO_USD


@dataclass(frozen=True, slots=True)
class InvoiceFormat:
    """Columns of one format by purpose; None: it has no such column."""

    name: str
    title: str
    needs: tuple[str, ...]
    resource: str
    """Columns that identify what was used; a line belongs to the host that any of them names."""
    start: str
    cost: tuple[str, ...]
    """Columns of the billed cost: the first one with a number counts."""
    currency: str
    kind: str
    description: str
    source: str
    as_of: date
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Kind of a line by the format's value: usage, covered (by a commitment), discount, negation, credit, tax,
    commitment or fee."""
    end: str | None = None
    effective: tuple[str, ...] = ()
    """Columns of the cost of covered usage with its share of the commitment: the first one with a number counts."""
    credits: str | None = None
    """Column with a list of amounts to subtract from the cost, each with its type."""
    promotions: tuple[str, ...] = ()
    """Begin of the types of credits that pay for usage from elsewhere and leave its price as it is."""
    commitments: tuple[str, ...] = ()
    """Begin of the types of credits of usage that a fee on another line pays for, so that its price is not known."""
    list: str | None = None
    """Column of the cost at list prices."""
    list_price: str | None = None
    """Column of the list price per unit, if `list` is missing."""
    per_usd: str | None = None
    """Column of the exchange rate: units of the currency per dollar."""
    priced_currency: str | None = None
    """Column of the currency that `per_usd` is to, and `priced_cost` is in."""
    priced_cost: str | None = None
    """Column of the effective cost in that currency."""
    split: str | None = None
    """Column that is set on lines that divide the cost of another line, which are not added."""
    allocated: str | None = None
    """Column that is set on lines that together are one charge, which was divided among them."""
    amount: str | None = None
    unit: str | None = None
    """Unit of `amount`."""
    hours_of: str | None = None
    """Part of the path of a resource that has hours; None: any has."""
    hours_by_time: bool = False
    """Whether a resource was used for all of a line's time, and amounts count its cores and bytes by the second."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is read, without duplicates."""
        first = (self.resource, self.start, self.end, self.currency, self.kind, self.description)
        second = (self.credits, self.list, self.list_price, self.per_usd, self.amount, self.unit)
        third = (self.priced_currency, self.priced_cost, self.split, self.allocated)
        specs = filter(None, (*self.needs, *first, *self.cost, *self.effective, *second, *third))
        return tuple(dict.fromkeys(column for spec in specs for column in names_of(spec)))


def column_key(column: str) -> str:
    """Return a column name normalized for comparison: letters and digits in lower case.

    One column is `line_item_unblended_cost`, `lineItem/UnblendedCost` or a field of an object in different exports.
    """
    return re.sub(r"[^a-z0-9]", "", column.casefold())


def names_of(spec: str) -> tuple[str, ...]:
    """Return the names of a column."""
    return tuple(spec.split("|"))


def format_of(columns: Collection[str]) -> InvoiceFormat | None:
    """Return the format of a file with these columns; None if it is not known."""
    names = set(map(column_key, columns))
    return next(
        (form for form in formats() if all(names & set(map(column_key, names_of(need))) for need in form.needs)), None
    )


@cache
def formats() -> tuple[InvoiceFormat, ...]:
    """Return the known formats."""
    return tuple(InvoiceFormat(name, **row) for name, row in toml_table("invoices.toml").items())


MAGIC = b"PAR1"
"""First bytes of a Parquet file."""
MAX_ROWS = 5_000_000
"""Rows of one file: each is a line of a bill, kept in memory."""
_BATCH_ROWS = 65_536


def parquet_rows(path: Path) -> list[Mapping[str, object]]:
    """Return the rows of a file, as far as a known format reads their columns.

    Raises BadInput for a file that is broken or too long, and where pyarrow is missing.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise BadInput(f"{path}: Parquet needs pyarrow: {install_command('parquet')}; or export CSV") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if file.metadata.num_rows > MAX_ROWS:
                raise BadInput(f"{path}: more than {MAX_ROWS:,} lines: export one month, or instances alone")
            names = _read(file.schema_arrow.names)
            batches = file.iter_batches(_BATCH_ROWS, columns=names)
            return [row for batch in batches for row in batch.to_pylist()] if names else []
    except (pyarrow.ArrowException, OSError, OverflowError, ValueError) as error:
        raise BadInput(f"{path}: not a Parquet file that can be read: {str(error).splitlines()[0]}") from None


def _read(names: Iterable[str]) -> list[str]:
    """Return the columns that a format reads; of a nested one the whole is read by its first part."""
    wanted = {column_key(column) for form in formats() for column in form.columns}
    return [name for name in names if any(column.startswith(column_key(name)) for column in wanted)]


Number = TypeVar("Number", int, float)
MAX_BYTES = 512 * 2**20
GZIP_MAGIC = b"\x1f\x8b"
MAX_AMOUNT = 10**12
DAY = 86_400
USAGE, COVERED = "usage", "covered"
"""Kinds of lines whose hours are those of a resource."""
DISCOUNT, NEGATION = "discount", "negation"
"""Kinds of lines that lower the cost of such hours; a negation takes off what a commitment pays for."""
_HOSTS = ("", "instance", "vm", "virtual machine", "node", "machine", "server", "host", "compute", "box usage")
_DEVICES = ("gpu", "accelerator", "device", "card", "gpu compute")
_TIME = re.compile(
    rf"(?P<n>\d*)[\s\-]*(?P<what>{'|'.join(_HOSTS + _DEVICES)})s?[\s\-_/·*]*"
    r"(?P<time>hours?|hrs?|h|minutes?|mins?|seconds?|secs?|days?)"
)
"""Units of time of hosts or of devices; those of cores or bytes are other units."""
_HOURS_OF = {"h": 1.0, "m": 1 / 60, "s": 1 / 3600, "d": 24.0}
"""Hours of a unit by its first letter."""
_NULLS = ("null", "none", "nan", "n/a")
"""Texts that exports write for a missing value."""
_SECONDS = re.compile(r"seconds?$", re.IGNORECASE)
_DATES = ("%m/%d/%Y", "%Y-%m-%d %H:%M:%S UTC", "%Y-%m-%d %H:%M:%S.%f UTC")
"""Times as formats write them where it is not ISO 8601."""


@dataclass(frozen=True, slots=True)
class InvoiceLine:
    """One line of a bill."""

    resource: str
    """Identifier of the used resource; empty for a line of the whole account."""
    start_ts: int
    end_ts: int
    kind: str
    """usage, covered, discount, negation, credit, tax, commitment, fee or other."""
    nano_usd: int
    """Billed amount: all lines sum to the invoice."""
    effective_nano_usd: int
    """With its part of a commitment that covers it; else the billed amount."""
    list_nano_usd: int | None
    """At list prices; None: not stated."""
    hours: float | None
    """Hours used; None where its unit is no time."""
    description: str
    other_names: tuple[str, ...] = ()
    """Further names of the resource."""
    per_device: bool = False
    """Whether `hours` are those of all devices of the host together."""
    paid_elsewhere: bool = False
    """Whether a fee on another line pays for it, so that its cost is no price."""
    unit: str = ""
    """Unit of its amount, as the bill has it."""


@dataclass(frozen=True, slots=True)
class Invoice:
    """A bill of a cloud."""

    format: InvoiceFormat
    lines: tuple[InvoiceLine, ...]
    unreadable: int = 0
    """Lines that could not be read, which are in no amount."""
    first_unreadable: str = ""
    """The first of them, with its row, its column and the error."""
    split: int = 0
    """Lines that divide the cost of another line, which are in no amount."""

    @property
    def nano_usd(self) -> int:
        """Everything that is billed."""
        return sum(line.nano_usd for line in self.lines)

    @property
    def interval(self) -> tuple[int, int]:
        """First and last instant that lines with time in them are of."""
        return min(line.start_ts for line in self.lines), max(line.end_ts for line in self.lines)


def read_invoice(path: Path) -> Invoice:
    """Return the lines of a CSV, JSON (a list, or an object on each line) or Parquet export; text may be gzipped.

    A line that cannot be read is counted. Raises BadInput for a file in which none can, naming row and column.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadInput(f"{path}: larger than {MAX_BYTES // 2**20} MiB: export one month, or instances alone")
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
        if start == MAGIC:
            rows = parquet_rows(path)
        else:
            text = _decoded(path, start)
            rows = _json(path, text) if text.lstrip()[:1] in ("{", "[") else list(csv_rows(path, text))
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
        format_columns = "; ".join(
            f"{known_format.title}: {', '.join(known_format.needs).replace('|', ' or ')}" for known_format in formats()
        )
        raise BadInput(f"{path}: is none of the known formats, by their columns: {format_columns}")
    lines, allocated, wrong, split = list[InvoiceLine](), list[InvoiceLine](), [], 0
    for n, row in enumerate(flat, 1):
        if invoice_format.split and _text(row, invoice_format.split):
            split += 1
            continue
        try:
            is_part = invoice_format.allocated and _text(row, invoice_format.allocated)
            (allocated if is_part else lines).append(_line(f"{path}: row {n}", row, invoice_format))
        except BadInput as error:
            wrong.append(f"{error}")
    lines += _origins(allocated)
    if not lines:
        raise BadInput(wrong[0] if wrong else f"{path}: holds no line but those that divide the cost of others")
    return Invoice(invoice_format, tuple(lines), len(wrong), wrong[0] if wrong else "", split)


def _origins(allocated: Iterable[InvoiceLine]) -> list[InvoiceLine]:
    """Return the charges that these lines are parts of: their amounts and hours add up."""
    origins: dict[InvoiceLine, list[InvoiceLine]] = defaultdict(list)
    for line in allocated:
        key = replace(line, nano_usd=0, effective_nano_usd=0, list_nano_usd=None, hours=None, paid_elsewhere=False)
        origins[key].append(line)
    return [
        replace(
            key,
            nano_usd=sum(part.nano_usd for part in parts),
            effective_nano_usd=sum(part.effective_nano_usd for part in parts),
            list_nano_usd=_known_sum(part.list_nano_usd for part in parts),
            hours=_known_sum(part.hours for part in parts),
            paid_elsewhere=any(part.paid_elsewhere for part in parts),
        )
        for key, parts in origins.items()
    ]


def _known_sum(values: Iterable[Number | None]) -> Number | None:
    known_values = [value for value in values if value is not None]
    return sum(known_values[1:], known_values[0]) if known_values else None


def _decoded(path: Path, start: bytes) -> str:
    """Return the text of a file, which may be compressed by gzip."""
    if not start.startswith(GZIP_MAGIC):
        return path.read_text(encoding="utf-8-sig")
    with gzip.open(path) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise BadInput(f"{path}: unpacks to more than {MAX_BYTES // 2**20} MiB: export one month, or instances alone")
    return content.decode("utf-8-sig")


def _json(path: Path, text: str) -> list[Mapping[str, object]]:
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


def _flat(row: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return a row with plain names of columns, nested objects as columns of their own."""
    columns: dict[str, object] = {}
    for name, value in row.items():
        column = f"{prefix}{column_key(str(name))}"
        columns |= _flat(value, column) if isinstance(value, dict) else {column: value}
    return columns


def _line(where: str, row: Mapping[str, object], form: InvoiceFormat) -> InvoiceLine:
    start = _time(where, row, form.start)
    end = _time(where, row, form.end) if form.end and _text(row, form.end) else start + DAY
    if end <= start:
        raise BadInput(f"{where}: {form.end} is not after {form.start}")
    kind = form.kinds.get(_text(row, form.kind), "other")
    cost = _usd(where, row, form, form.cost)
    if cost is None:
        raise BadInput(f"{where}: {' or '.join(form.cost)} holds no number")
    credits = _credits(where, row, form)
    billed = cost + sum(amount for _, amount in credits)
    # What promotions pay is not billed, and the price is as without them.
    priced = cost + sum(amount for name, amount in credits if not name.startswith(form.promotions))
    stated = _usd(where, row, form, form.effective)
    effective = stated if stated is not None and stated > 0 else priced
    covered = any(name.startswith(form.commitments) for name, _ in credits)
    names = tuple(filter(None, (_text(row, name) for name in names_of(form.resource))))
    hours, per_device, unit = _hours(where, row, form, names, end - start)
    return InvoiceLine(
        resource=names[0] if names else "",
        start_ts=start,
        end_ts=end,
        kind=kind,
        nano_usd=_nano(billed),
        effective_nano_usd=_nano(effective if kind in (USAGE, COVERED) else billed),
        list_nano_usd=_list(where, row, form),
        hours=hours,
        description=_text(row, form.description),
        other_names=names[1:],
        per_device=per_device,
        paid_elsewhere=covered or (kind == COVERED and effective != stated),
        unit=unit,
    )


def _usd(where: str, row: Mapping[str, object], form: InvoiceFormat, columns: Iterable[str]) -> Decimal | None:
    """Return the first of these columns that holds a number, in dollars; None without one.

    Raises BadInput for an amount in a currency without a rate.
    """
    for column in columns:
        number = _number(where, row, column)
        if number is not None:
            return number / (
                Decimal(1) if column_key(column).endswith("usd") or not number else _rate(where, row, form)
            )
    return None


def _rate(where: str, row: Mapping[str, object], form: InvoiceFormat) -> Decimal:
    """Return the units of the row's currency for a dollar. Raises BadInput where they are not known."""
    currency = _text(row, form.currency).upper() or "USD"
    if currency == "USD":
        return Decimal(1)
    rate = None
    if form.priced_currency is None or _text(row, form.priced_currency).upper() in ("", "USD"):
        rate = _number(where, row, form.per_usd) if form.per_usd else None
    if not rate and form.priced_cost and _text(row, form.priced_currency or "").upper() == "USD":
        billed, usd = _number(where, row, form.effective[-1]), _number(where, row, form.priced_cost)
        rate = billed / usd if billed and usd else None
    if not rate or rate <= 0:
        raise BadInput(f"{where}: is in {short(currency)}, and no rate to dollars stands beside it: export it in USD")
    return rate


def _credits(where: str, row: Mapping[str, object], form: InvoiceFormat) -> list[tuple[str, Decimal]]:
    """Return type and amount in dollars of a line's credits, which are negative."""
    given = None if form.credits is None else row.get(column_key(form.credits))
    if isinstance(given, str) and given.strip():
        try:
            given = json.loads(given, parse_float=Decimal)
        except (ValueError, RecursionError):
            raise BadInput(f"{where}: {form.credits} is not JSON") from None
    if not isinstance(given, list):
        return []
    credits = [credit for credit in given if isinstance(credit, dict) and credit.get("amount") is not None]
    amounts = [_decimal(where, form.credits or "", credit["amount"]) for credit in credits]
    rate = _rate(where, row, form) if any(amounts) else Decimal(1)
    return [(str(credit.get("type")), amount / rate) for credit, amount in zip(credits, amounts, strict=True)]


def _list(where: str, row: Mapping[str, object], form: InvoiceFormat) -> int | None:
    """Return the cost of a line at list prices; None where it does not state that, or states 0."""
    stated = _usd(where, row, form, names_of(form.list)) if form.list else None
    if stated is None and form.list_price and form.amount:
        price, amount = _usd(where, row, form, (form.list_price,)), _number(where, row, form.amount)
        stated = None if price is None or amount is None else price * amount
    return _nano(stated) if stated else None


def _hours(
    where: str, row: Mapping[str, object], form: InvoiceFormat, names: Sequence[str], seconds: int
) -> tuple[float | None, bool, str]:
    """Return the hours of a line, whether they are those of its devices together, and the unit of its amount.

    Hours are None where its unit is no time; they are its time where amounts count cores and bytes by the second.
    """
    unit = _text(row, form.unit or "")
    path = next((name for name in names if "/" in name), None)
    if form.hours_of and path is not None and form.hours_of not in path:
        return None, False, unit
    if form.hours_by_time:
        return (seconds / 3600 if _SECONDS.search(unit) else None), False, unit
    units = names_of(form.unit or "")
    for number, amount_column in enumerate(names_of(form.amount or "")):
        unit_column = units[min(number, len(units) - 1)]
        amount, match = _number(where, row, amount_column), _TIME.fullmatch(_text(row, unit_column).casefold())
        if amount is not None and match is not None:
            hours = float(amount) * int(match["n"] or 1) * _HOURS_OF[match["time"][0]]
            return hours, match["what"] in _DEVICES, unit
    return None, False, unit


def _time(where: str, row: Mapping[str, object], column: str) -> int:
    text = _text(row, column)
    for read in (datetime.fromisoformat, *(lambda text, form=form: datetime.strptime(text, form) for form in _DATES)):
        try:
            moment = read(text)
        except ValueError:
            continue
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    raise BadInput(f"{where}: {column} {short(repr(text))} is not a time")


def _text(row: Mapping[str, object], column: str) -> str:
    """Return the first value that a row has under one of the column's names; empty without one."""
    values = (row.get(column_key(name)) for name in names_of(column))
    texts = (str(value).strip() for value in values if value is not None)
    return next((text for text in texts if text and text.casefold() not in _NULLS), "")


def _number(where: str, row: Mapping[str, object], column: str) -> Decimal | None:
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


IN_FOLDERS = (".parquet", ".csv", ".csv.gz")
"""Ends of the names of files that count in a folder; beside them exports keep manifests."""
MAX_FILES = 10_000


def read_bill(paths: Sequence[Path], file_read: Callable[[], None] = lambda: None) -> Invoice:
    """Return the lines of all files together; a folder stands for the CSV and Parquet files in it, at any depth.

    `file_read` is called after each file. Raises BadInput naming the file, the row and the column that
    is wrong; for files of different formats, for one that is there twice, and for more than `MAX_ROWS` lines.
    """
    files = _files(paths)
    seen: dict[str, Path] = {}
    parts: list[Invoice] = []
    for file in files:
        digest = _digest(file)
        if digest in seen:
            raise BadInput(f"{file}: the same as {seen[digest]}: its lines would count twice; pass one of them")
        seen[digest] = file
        part = read_invoice(file)
        if parts and part.format != parts[0].format:
            raise BadInput(f"{file}: is {part.format.title}, and {files[0]} is {parts[0].format.title}: pass one bill")
        parts.append(part)
        if sum(len(invoice.lines) for invoice in parts) > MAX_ROWS:
            raise BadInput(f"{file}: with it more than {MAX_ROWS:,} lines: export one month, or instances alone")
        file_read()
    return Invoice(
        parts[0].format,
        tuple(line for part in parts for line in part.lines),
        sum(part.unreadable for part in parts),
        next((part.first_unreadable for part in parts if part.unreadable), ""),
        sum(part.split for part in parts),
    )


def _files(paths: Iterable[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        try:
            inside = sorted(file for file in path.rglob("*") if file.name.endswith(IN_FOLDERS) and file.is_file())
        except OSError as error:
            raise BadInput(f"{path}: cannot be read: {error}") from None
        if not inside:
            raise BadInput(f"{path}: holds no file that ends in {', '.join(IN_FOLDERS)}")
        files += inside
    if len(files) > MAX_FILES:
        raise BadInput(f"{len(files):,} files: more than {MAX_FILES:,} are not read as one bill; pass one month")
    return files


def _digest(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {error}") from None
