"""A report as Markdown."""

import re

from pertoken.printable import literal
from pertoken.reports.figures import ReportFigures
from pertoken.reports.headline import headlines
from pertoken.reports.tables import Table, tables
from pertoken.text.amounts import in_dollars

_ACTING = re.compile(r"([\\`*_{}\[\]<>|#~!&])")


@in_dollars()
def markdown(report: ReportFigures) -> str:
    """Return the report as Markdown with tables."""
    blocks = [
        f"# What our tokens cost\n\n{plain(report.period.text)}, {plain(report.source)}. Amounts are US dollars.",
        "\n".join(f"- **{plain(headline.value)}** {plain(headline.name)}" for headline in headlines(report)),
        *(table_block(table) for table in tables(report)),
    ]
    return "\n\n".join(blocks) + "\n"


def plain(text: str) -> str:
    """Return text on one line with Markdown characters escaped."""
    return _ACTING.sub(r"\\\1", literal(text))


def table_block(table: Table) -> str:
    """Return one table with its notes and command."""
    lines = [f"## {table.title}", ""]
    if table.rows:
        lines.append(f"| {' | '.join(plain(name.lstrip('>')) for name in table.columns)} |")
        lines.append(f"|{'|'.join('---:' if name.startswith('>') else '---' for name in table.columns)}|")
        lines += [f"| {' | '.join(map(plain, row))} |" for row in table.rows]
    else:
        lines.append(table.empty)
    lines += ["", *(f"{note}\n" for note in map(_sentence, table.notes)), f"The same in a terminal: `{table.command}`"]
    return "\n".join(lines)


def _sentence(note: str) -> str:
    """Return a note with angle brackets and pipes escaped, which names in it may hold."""
    return re.sub(r"([<>|])", r"\\\1", literal(note))
