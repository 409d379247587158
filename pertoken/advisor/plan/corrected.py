"""What a combination saves, corrected by the track records of the rules of its levers, as recommendations are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pertoken.advisor.plan.levers.lever import Lever
from pertoken.advisor.plan.plan import Money
from pertoken.proof.recommendation import RecordLine
from pertoken.proof.track_record import corrected_money
from pertoken.savings.assumptions.sensitivity import At, Sensitivity


@dataclass(frozen=True, slots=True)
class Correction:
    """By what a combination is corrected: the records of its levers, each weighted by what its lever saves alone."""

    ratio: float
    """Of the likely figure."""
    widening: float
    """Of the interval, beside the ratio."""

    def money(self, money: Money) -> Money:
        """Return dollars as they are realised."""
        return corrected_money(money, self.ratio, self.widening)

    def sensitivity(self, known: Sensitivity) -> Sensitivity:
        """Return what an assumption is worth of the dollars that are realised."""
        swing = round(known.swing[0] * self.ratio), round(known.swing[1] * self.ratio)
        return replace(known, low=self._at(known.low), high=self._at(known.high), swing=swing)

    def _at(self, end: At) -> At:
        return replace(end, bankable=round(end.bankable * self.ratio), capacity=round(end.capacity * self.ratio))


def correction(levers: Sequence[Lever]) -> Correction | None:
    """Return by what levers that are applied together are corrected; None where no rule of theirs has receipts."""
    records = [lever.variant.record for lever in levers]
    if not any(records):
        return None
    alone = [_alone(lever) for lever in levers]
    weights = alone if sum(alone) else [1.0] * len(levers)
    ratio = sum(w * (1.0 if r is None else r.ratio) for w, r in zip(weights, records, strict=True)) / sum(weights)
    wider = sum(w * (1.0 if r is None else r.widening) for w, r in zip(weights, records, strict=True)) / sum(weights)
    return Correction(ratio, wider)


def record_line(rule_id: str, record: RecordLine) -> str:
    """Return where the correction of a step comes from."""
    receipts = "1 receipt" if record.receipts == 1 else f"{record.receipts} receipts"
    share = f"{record.ratio:.0%} ± {record.ratio_sd:.0%}"
    return f"{share} of what {rule_id} promised was realised ({receipts}): the step is corrected by it"


def _alone(lever: Lever) -> float:
    """Return what a lever saves alone, before its correction: its likely dollars, of both kinds."""
    dollars = sum(
        max(0, interval[1]) for interval in (lever.variant.bankable, lever.variant.capacity) if interval is not None
    )
    record = lever.variant.record
    return float(dollars) if record is None or record.ratio <= 0 else dollars / record.ratio
