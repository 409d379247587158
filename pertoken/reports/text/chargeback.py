"""Chargeback as CSV: lines by model, team, tenant and owner, each set of which sums to the bill."""

import csv
import io
from collections.abc import Iterable

from pertoken.costs.spend import Spend
from pertoken.printable import csv_cell
from pertoken.reports.figures import ReportFigures
from pertoken.units import NANO_USD

COLUMNS = (
    *("period_start", "period_end", "by", "name", "team", "key", "user", "usd", "tokens", "usd_per_mtok"),
    *("cached_tokens", "generated_tokens", "weighted"),
)


def chargeback_csv(report: ReportFigures) -> str:
    """Return the CSV. The lines of each grouping sum to the bill; unknown values are empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for spend in (report.models, report.teams, report.tenants, *report.owners):
        writer.writerows(_rows(report, spend))
    return out.getvalue()


def _rows(report: ReportFigures, spend: Spend) -> Iterable[list[str]]:
    start, end = utc(report.period.start), utc(report.period.end)
    for line in spend.lines:
        price = line.nano_usd_per_mtok
        known = spend.nano_usd is not None
        yield [
            start,
            end,
            spend.by,
            *(csv_cell(cell or "") for cell in (line.name, line.team, line.key, line.user)),
            dollars(line.nano_usd) if known else "",
            "" if line.tokens is None else str(line.tokens),
            dollars(price) if known and price is not None else "",
            *("" if count is None else str(count) for count in (line.cached_tokens, line.generated_tokens)),
            str(not line.unweighted).lower() if line.team or line.key or line.user else "",
        ]


def utc(ts: int) -> str:
    """Return an instant as ISO 8601: `2026-11-21T10:00:00Z`."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def dollars(nano_usd: int) -> str:
    """Return dollars with all nine decimals that are stored, so that sums are exact: `12.5`."""
    sign, nano_usd = ("-" if nano_usd < 0 else ""), abs(nano_usd)
    whole, rest = divmod(nano_usd, NANO_USD)
    return f"{sign}{whole}.{rest:09d}".rstrip("0").rstrip(".")
