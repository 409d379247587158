"""What is wrong now, as lines above everything else."""

from collections.abc import Sequence

from pertoken.costs.report.lines import FleetReport, Trouble, TroubleKind
from pertoken.text.amounts import amount
from pertoken.text.columns import Column, table
from pertoken.text.words import UNKNOWN, literal

NOW = "Now"
MAX_LINES = 10
"""Lines of a summary; JSON has all."""
_OUTAGES = (TroubleKind.STUCK, TroubleKind.SILENT)
COLUMNS: tuple[Column[Trouble], ...] = (
    Column("what", lambda line: f"{mark(line)} {line.kind.value}", 1),
    Column("target", lambda line: literal(line.target), 0, min_cells=14),
    Column("$/hour", lambda line: per_hour(line), 2),
    Column("command", lambda line: literal(line.command), 3),
    Column("why", lambda line: literal(line.reason), 4, min_cells=20, keep_start=True),
)


def mark(line: Trouble) -> str:
    """Return the mark of an outage or of another trouble, readable without colour."""
    return "✗" if line.kind in _OUTAGES else "!"


def per_hour(line: Trouble) -> str:
    """Return what its target costs: `$1.95/hour`; a dash if unknown."""
    return UNKNOWN if line.nano_usd_per_hour is None else f"{amount(line.nano_usd_per_hour)}/hour"


def trouble_table(report: FleetReport, width: int | None) -> list[str]:
    """Return the most urgent troubles as a table; `width` as in `summary`."""
    lines = table(NOW, report.troubles[:MAX_LINES], COLUMNS, width)
    return [*lines, *_more(len(report.troubles) - MAX_LINES)]


def trouble_rows(troubles: Sequence[Trouble], width: int) -> list[str]:
    """Return the troubles as rows of at most `width` cells, without a head."""
    return [line.strip() for line in table(NOW, troubles, COLUMNS, width)[2:]]


def trouble_sentences(troubles: Sequence[Trouble]) -> tuple[str, ...]:
    """Return each trouble as one sentence, with its dollars and its command."""
    return tuple(
        f"{mark(line)} {line.kind.value}: {literal(line.target)}, {literal(line.reason)} ({per_hour(line)}). "
        f"{literal(line.command)}"
        for line in troubles
    )


def _more(count: int) -> list[str]:
    return [f"  and {count} more: `pertoken top --once --json` has all"] if count > 0 else []
