"""Correction of the savings of a combination by the track records of its rules, as for recommendations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pertoken.advisor.plan.levers.lever import Lever
from pertoken.proof.recommendation import RecordLine
from pertoken.proof.track_record import corrected_saving
from pertoken.savings.saving import Saving
from pertoken.savings.sensitivity import At, Sensitivity


@dataclass(frozen=True, slots=True)
class Correction:
    """Correction of a combination: the track records of its levers, weighted by the saving of each lever alone."""

    ratio: float
    """Factor of the likely figure."""
    widening: float
    """Additional factor of the width of the interval."""

    def saving(self, saving: Saving) -> Saving:
        """Return a corrected saving."""
        return corrected_saving(saving, self.ratio, self.widening)

    def sensitivity(self, known: Sensitivity) -> Sensitivity:
        """Return the sensitivity to an assumption in corrected dollars."""
        swing = round(known.swing[0] * self.ratio), round(known.swing[1] * self.ratio)
        return replace(known, low=self._at(known.low), high=self._at(known.high), swing=swing)

    def _at(self, end: At) -> At:
        return replace(end, bankable=round(end.bankable * self.ratio), capacity=round(end.capacity * self.ratio))


def correction(levers: Sequence[Lever]) -> Correction | None:
    """Return the correction of levers that are applied together; None if none of their rules has receipts."""
    records = [lever.variant.record for lever in levers]
    if not any(records):
        return None
    alone = [_alone(lever) for lever in levers]
    weights = alone if sum(alone) else [1.0] * len(levers)
    ratio = sum(w * (1.0 if r is None else r.ratio) for w, r in zip(weights, records, strict=True)) / sum(weights)
    wider = sum(w * (1.0 if r is None else r.widening) for w, r in zip(weights, records, strict=True)) / sum(weights)
    return Correction(ratio, wider)


def record_line(rule_id: str, record: RecordLine) -> str:
    """Return the origin of the correction of a step as text."""
    receipts = "1 receipt" if record.receipts == 1 else f"{record.receipts} receipts"
    share = f"{record.ratio:.0%} ± {record.ratio_sd:.0%}"
    return f"{share} of what {rule_id} promised was realised ({receipts}): the step is corrected by it"


def _alone(lever: Lever) -> float:
    """Return the saving of a lever alone before correction: its likely bankable and capacity dollars."""
    dollars = sum(max(0, likely) for likely in (lever.variant.saving or Saving()).rank)
    record = lever.variant.record
    return float(dollars) if record is None or record.ratio <= 0 else dollars / record.ratio
