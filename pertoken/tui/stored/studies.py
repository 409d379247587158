"""Computations over a pertoken database that take seconds: plan, track records, rules, detail of a recommendation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pertoken.errors import BadInput
from pertoken.store.connect.open import open_store
from pertoken.text.decision import Detail, ListedRule, RuleList, ShownPlan
from pertoken.tui.stored.readings import StoredReadings

if TYPE_CHECKING:  # modules that the first frame does not need
    from pertoken.advisor.planning import Planner, PlanRequest
    from pertoken.proof.recommendation import Recommendation
    from pertoken.proof.track_record import Record
    from pertoken.window.columns import Progress


class StoredStudies(StoredReadings):
    """The computations of a `Source` over a database."""

    def records(self) -> Mapping[str, Record]:
        """Return the track record of each rule, by rule id. Raises StoreError."""
        from pertoken.proof.judging.receipts import read_receipts, records

        store = open_store(self._location)
        if store.advice is None:
            return {}
        with store.read("advice") as connection:
            receipts = [
                receipt
                for receipt in read_receipts(connection)
                if self._as_of is None or receipt.created_ts <= self._as_of
            ]
        return {rule.rule: rule.record for rule in records(receipts)}

    def plan(
        self, rows: Sequence[Recommendation], request: PlanRequest | None, progress: Progress, *, fresh: bool = False
    ) -> ShownPlan:
        """Compose the plan of some advice. Raises StoreError, and BadInput for assumptions that are impossible."""
        from pertoken.advisor.planning import PlanRequest

        with self._planning:
            if fresh:
                self._planner = None
            planner = self._planner_of()
            plan = planner.plan(open_store(self._location), rows, request or PlanRequest(), progress)
        return ShownPlan(plan, request, planner.window_s)

    def rules(self) -> RuleList:
        """Load every rule. Raises BadInput for a list of disabled rules that cannot be read."""
        from pertoken.advisor.rules.discovery import DROP_IN
        from pertoken.advisor.rules.listing import entries, listed, page

        known = listed(self._settings)
        rules = tuple(ListedRule(entry, page(entry.id, known)) for entry in entries(known))
        return RuleList(rules, str(self._settings.folder / DROP_IN))

    def detail(
        self,
        rows: Sequence[Recommendation],
        recommendation: Recommendation,
        values: Mapping[str, float],
        progress: Progress,
    ) -> Detail:
        """Compute the detail of one recommendation. Raises StoreError."""
        from pertoken.proof.detection import journal
        from pertoken.proof.judging.receipts import read_receipts
        from pertoken.proof.judging.verifier import prospects
        from pertoken.proof.trials.look import last_trial

        store = open_store(self._location)
        provable = prospects(store, recommendation, self._now_ts())
        with store.read("advice") as connection:
            entries = journal(connection, recommendation.recommendation_id)
            receipts = read_receipts(connection, recommendation.recommendation_id)
        trial, seen = last_trial(store, recommendation, self._settings, self._now_ts())
        tested, untested = None, None
        if recommendation.chosen is not None:
            try:
                with self._planning:
                    tested = self._planner_of().tested(store, rows, recommendation, values, progress)
            except BadInput as error:
                untested = str(error)
        return Detail(
            recommendation.recommendation_id, dict(values), tested, untested, provable, receipts, entries, trial, seen
        )

    def _planner_of(self) -> Planner:
        from pertoken.advisor.planning import Planner

        self._planner = self._planner or Planner(self._settings, self._as_of)
        return self._planner
