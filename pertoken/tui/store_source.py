"""Source of the screens over a database, with the calls that store decisions, prices and switches."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pertoken.errors import BadInput
from pertoken.store.connect.open import open_store
from pertoken.tui.stored.studies import StoredStudies

if TYPE_CHECKING:
    from pertoken.proof.lifecycle import Moved
    from pertoken.proof.recommendation import Recommendation


class StoreSource(StoredStudies):
    """A `Source` over a database."""

    def switch(self, rule_id: str, on: bool) -> str:
        """Switch a rule off or on for all later runs with these settings. Raises BadInput."""
        from pertoken.advisor.rules import discovery

        if self._read_only is not None:
            raise BadInput(self._read_only)
        if self._as_of is not None:
            raise BadInput("this is the past: leave --at out to switch rules")
        try:
            (discovery.enable if on else discovery.disable)(self._settings.folder, rule_id)
        except OSError as error:
            raise BadInput(f"{self._settings.folder / discovery.SWITCHES}: {error.strerror or error}") from None
        return f"{rule_id} {'runs again' if on else 'is off'} from the next run on."

    def set_price(self, selector: str, nano_usd: int) -> str:
        """Store the price of a device-hour as `pertoken prices set` does by default. Raises BadInput, StoreError.

        It applies from the beginning if no device that the selector names had a price, else from the next minute.
        """
        from pertoken.costs.repricing import read_prices
        from pertoken.migrations import upgrade
        from pertoken.store import repository
        from pertoken.store.repository import AdviceRepository
        from pertoken.text.amounts import amount

        if self._read_only is not None:
            raise BadInput(self._read_only)
        if self._recorded_from is not None:
            raise BadInput("this is a recording: it is read-only")
        if self._as_of is not None:
            raise BadInput("this is the past: leave --at out to set a price")
        now_ts = int(time.time())
        upgrade(self._location, "advice")
        known = read_prices(self._location, now_ts)
        from_ts = 0 if known.unpriced(selector) else (now_ts // 60 + 1) * 60
        with AdviceRepository(self._location).writing() as connection:
            repository.add_price(
                connection,
                read_seq=known.seq,
                selector=selector,
                nano_usd_per_device_hour=nano_usd,
                from_ts=from_ts,
                set_ts=now_ts,
                set_by=getpass.getuser(),
                note="set on the screens",
            )
        self._pace.forget()
        since = "now on" if from_ts else "the beginning"
        return f"{selector}: {amount(nano_usd)} an hour from {since}; `pertoken prices set` changes it."

    def decide(self, recommendation: Recommendation, decision: str) -> str:
        """Store a decision; return the new state as a sentence. Raises BadInput, StoreError.

        Raises AdviceChanged if the recommendation was changed since it was read.
        """
        from pertoken.proof.stored import store_acts
        from pertoken.store.repository import AdviceRepository
        from pertoken.text.lifecycle import acted

        if self._read_only is not None:
            raise BadInput(self._read_only)
        if self._recorded_from is not None:
            raise BadInput("this is a recording: it is read-only")
        if self._as_of is not None:
            raise BadInput("this is the past: leave --at out to decide")
        if decision == "trial":
            return self._try(recommendation)
        rows = store_acts(
            AdviceRepository(self._location),
            recommendation,
            _acts(decision, recommendation, self._now_ts()),
            getpass.getuser(),
        )
        self._pace.forget()  # so that the next reading shows the decision
        return acted(rows[-1])

    def _try(self, recommendation: Recommendation) -> str:
        """Begin the trial of a recommendation, or look at the running one; return its state as a sentence."""
        from pertoken.proof.trials.look import begin_or_look
        from pertoken.store.repository import AdviceRepository
        from pertoken.text.lifecycle import stands

        now_ts, store = self._now_ts(), open_store(self._location)
        row, trial, seen = begin_or_look(
            store, AdviceRepository(self._location), recommendation, self._settings, now_ts, getpass.getuser()
        )
        self._pace.forget()
        return stands(row, trial, seen, now_ts)


def _acts(decision: str, recommendation: Recommendation, now_ts: int) -> Sequence[Moved]:
    from pertoken.proof import lifecycle as acts

    by_decision: dict[str, Callable[[], Sequence[Moved]]] = {
        "accept": lambda: acts.accept(recommendation, now_ts),
        "snooze": lambda: acts.snooze(recommendation, now_ts, now_ts + acts.SNOOZE_S),
        "dismiss": lambda: acts.dismiss(recommendation, now_ts, now_ts + acts.DISMISS_S),
        "reopen": lambda: acts.reopen(recommendation, now_ts),
        "applied": lambda: acts.declare(recommendation, now_ts),
        "undo": lambda: acts.roll_back(recommendation, now_ts),
    }
    return by_decision[decision]()
