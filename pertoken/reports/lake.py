"""A report over a lake, as HTML and Markdown."""

from collections.abc import Sequence

from pertoken.lake.answers import Coverage
from pertoken.reports.page.html import document, table_section
from pertoken.reports.tables import Table
from pertoken.reports.text.markdown import plain, table_block
from pertoken.text.lake import LakeTable, coverage_lines

MAX_ROWS = 200
"""Rows of a table; JSON has all."""
TITLE = "What our tokens cost, in all cells"


def lake_html(url: str, answers: Sequence[LakeTable], coverage: Coverage) -> str:
    """Return answers of a lake as one HTML document that loads no other resource."""
    sections = [table_section(_table(url, answer)) for answer in answers]
    return document(TITLE, [url, *coverage_lines(coverage)], sections)


def lake_markdown(url: str, answers: Sequence[LakeTable], coverage: Coverage) -> str:
    """Return answers of a lake as Markdown."""
    head = "\n".join(f"- {plain(line)}" for line in (url, *coverage_lines(coverage)))
    blocks = [f"# {TITLE}", f"Amounts are US dollars.\n\n{head}", *(table_block(_table(url, a)) for a in answers)]
    return "\n\n".join(blocks) + "\n"


def _table(url: str, answer: LakeTable) -> Table:
    rows = [tuple(column.text(row) for column in answer.columns) for row in answer.rows[:MAX_ROWS]]
    more = len(answer.rows) - MAX_ROWS
    notes = [note for note in (answer.note, f"and {more:,} more" if more > 0 else None) if note]
    names = tuple(column.key if column.order is None else f">{column.key}" for column in answer.columns)
    return Table(answer.title, names, tuple(rows), "None.", f"pertoken costs --db {url}", tuple(notes))
