"""Looking at changes while a screen is open, as an advice run does: what was detected and judged is stored."""

from pertoken.config import Settings
from pertoken.costs.prices.stored import market_of
from pertoken.errors import StoreError
from pertoken.proof.detection import detect
from pertoken.proof.judging.judge import judge_changes
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store
from pertoken.store.repository import AdviceChanged, AdviceRepository
from pertoken.window.reading import newest_epoch

JUDGED_EVERY_S = 600
"""Time between two looks whether a verdict is due: verdicts are a matter of weeks."""


class ChangeWatch:
    """Detection at every refresh of a screen that finds a new epoch, and verdicts now and then.

    Who may not write advice sees what others stored.
    """

    def __init__(self, place: StoreLocation, settings: Settings) -> None:
        self._place, self._settings = place, settings
        self._seen: tuple[int | None, int] | None = None
        self._judged_ts: int | None = None

    def look(self, store: Store, now_ts: int) -> None:
        """Detect and judge what is due. Raises StoreError if telemetry cannot be read."""
        newest = newest_epoch(store)
        if store.advice is None:
            return
        detects = newest != self._seen
        judges = self._judged_ts is None or now_ts - self._judged_ts >= JUDGED_EVERY_S
        if not detects and not judges:
            return
        self._seen, self._judged_ts = newest, now_ts
        try:
            target = AdviceRepository(self._place)
            if detects:
                market = market_of(store, self._settings.market_provider, self._settings.market_region)
                detect(store, target, market, self._settings, now_ts)
            judge_changes(store, target, self._settings, now_ts)
        except AdviceChanged:
            self._seen = self._judged_ts = None  # at the next refresh, with what somebody else just stored
        except StoreError:
            return
