"""Rows of CSV files that people supply: lists of offers, and bills."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from pertoken.errors import BadInput


def csv_rows(path: Path, text: str) -> list[Mapping[str, str]]:
    """Return the rows of a CSV file by the names of its columns. Raises BadInput naming a line that is not CSV."""
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        return list(reader)
    except csv.Error as error:
        raise BadInput(f"{path}: line {reader.reader.line_num}: not valid CSV: {error}") from None
