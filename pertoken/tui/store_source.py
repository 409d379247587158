"""What the screens show, read from a pertoken database."""

import time

from pertoken.advisor.book import standing
from pertoken.advisor.recommendation import Recommendation
from pertoken.costs.hours.hour import ModelHours
from pertoken.costs.hours.hourly import hourly
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.costs.report.lines import FleetReport
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store, open_store
from pertoken.tui.text.hours import HOURS


class StoreSource:
    """A `Source` over a database. It opens it anew while it lacks something: an agent or advisor may just begin."""

    def __init__(self, place: StoreLocation, as_of: int | None = None) -> None:
        """`as_of`: a whole minute in the past that everything is shown of; None: the present."""
        self._place = place
        self._as_of = as_of
        self._store: Store | None = None

    def describe(self) -> str:
        """The database, without a password."""
        return str(self._place)

    def fleet(self, window_s: int) -> FleetReport:
        """The fleet over the last `window_s` seconds. Raises StoreError."""
        return fleet_report(self._opened(), window_s, self._now_ts(), dated=self._as_of is not None)

    def hours(self) -> tuple[ModelHours, ...]:
        """The last 24 hours, model by model. Raises StoreError."""
        return hourly(self._opened(), HOURS, self._now_ts(), dated=self._as_of is not None)

    def advice(self) -> tuple[Recommendation, ...]:
        """All advice as it stands, or stood and has not changed since. Raises StoreError."""
        return standing(self._opened(), self._as_of)

    def _now_ts(self) -> int:
        return int(time.time()) if self._as_of is None else self._as_of

    def _opened(self) -> Store:
        if self._store is None or self._store.advice is None:
            self._store = open_store(self._place, keep=True)
        return self._store
