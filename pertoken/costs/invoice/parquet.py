"""Rows of a bill in Parquet, as AWS Data Exports and BigQuery write it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pertoken.catalog.invoices import formats, plain
from pertoken.errors import BadInput
from pertoken.installed import install_command

MAGIC = b"PAR1"
"""First bytes of a Parquet file."""
MAX_ROWS = 5_000_000
"""Rows of one file: each is a line of a bill, kept in memory."""
_BATCH_ROWS = 65_536


def parquet_rows(path: Path) -> list[Mapping[str, Any]]:
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
    wanted = {plain(column) for form in formats() for column in form.columns}
    return [name for name in names if any(column.startswith(plain(name)) for column in wanted)]
