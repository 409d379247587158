"""A recorded fleet with tenants and hostile names, for the tests of reports."""

from collections.abc import Mapping
from pathlib import Path

from pertoken.config import Settings
from pertoken.reports.figures import Period, ReportFigures, period_of, read_figures
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import Store, open_store
from tests.scenario import LOW_BATCH_70B, seed
from tests.tenants import count, metric
from tests.values import files_of, put_files

END = 1_795_395_600
"""2026-11-23T01:00Z."""
HOSTILE = 'alpha"><script>alert(1)</script>\x1b[31m'
HOURS = 3
"""Two of the day before."""
_recorded: dict[float | None, Mapping[str, bytes]] = {}


def recorded(folder: Path, usd_per_hour: float | None = 6.88) -> StoreLocation:
    """Return three hours of a host with four H100s, two of which serve a 70B, and one tenant for half of the tokens."""
    if usd_per_hour in _recorded:
        where = locate(str(folder))
        put_files(where, _recorded[usd_per_hour])
        return where
    where = seed(folder, LOW_BATCH_70B, gpus=4, usd_per_hour=usd_per_hour, minutes=60 * HOURS, end_ts=END)
    words = {"model": LOW_BATCH_70B.model, "key": HOSTILE, "team": "search"}
    for hour in range(1, HOURS):
        half = {metric("prompt", **words): 1800 * 160 * hour, metric("generated", **words): 1800 * 40 * hour}
        count(where, END - 3600 * (HOURS - hour), half)
    _recorded[usd_per_hour] = files_of(where)
    return where


def store_of(folder: Path, usd_per_hour: float | None = 6.88) -> Store:
    return open_store(recorded(folder, usd_per_hour))


def period(start: str = "48h") -> Period:
    return period_of(start, None, END, dated=True)


def figures(folder: Path, usd_per_hour: float | None = 6.88) -> ReportFigures:
    return read_figures(store_of(folder, usd_per_hour), Settings(), period())
