"""A look at stored changes as a run makes it: the advice is read first, and handed to what detects and judges."""

from pertoken.catalog.market import Market
from pertoken.config import Settings
from pertoken.proof.detection import detect
from pertoken.proof.judging.judge import AdviceHistory, judge_changes, read_history
from pertoken.proof.verification.question import WEEK_OF_HOURS, Cycle
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store, open_store
from pertoken.store.repository import AdviceRepository


def detect_at(where: StoreLocation, target: AdviceRepository, market: Market, settings: Settings, now_ts: int) -> int:
    store = open_store(where)
    return detect(store, _history(store), target, market, settings, now_ts)


def judge_at(
    where: StoreLocation, target: AdviceRepository, settings: Settings, now_ts: int, cycle: Cycle = WEEK_OF_HOURS
) -> int:
    store = open_store(where)
    return judge_changes(store, _history(store), target, settings, now_ts, cycle)


def _history(store: Store) -> AdviceHistory:
    with store.read("advice") as connection:
        return read_history(connection)
