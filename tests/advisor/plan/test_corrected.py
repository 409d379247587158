"""Plans by the track records of the rules of their steps."""

from dataclasses import replace

from pertoken.advisor.plan.compose import compose
from pertoken.advisor.plan.levers import levers
from pertoken.advisor.plan.plan import PlanLimits
from pertoken.advisor.plan.states import correction, record_line
from pertoken.proof.recommendation import Recommendation, RecordLine
from pertoken.proof.track_record import corrected_saving
from pertoken.savings.saving import Saving
from tests.advisor.plan.fleets import advice, present, quantize, scale, small

HALF = RecordLine(receipts=5, ratio=0.5, ratio_sd=0.1, widening=1.2)
GATHERED = present(small((4, 0)))
SCALE, QUANTIZE = advice(GATHERED, [scale(GATHERED.fleet.services[0]), quantize(GATHERED.fleet.services[0])])


def realised(row: Recommendation, record: RecordLine = HALF) -> Recommendation:
    """Return a recommendation as an advice run corrects it."""

    def by(saving: Saving | None) -> Saving | None:
        return None if saving is None else corrected_saving(saving, record.ratio, record.widening)

    variants = tuple(replace(variant, saving=by(variant.saving), record=record) for variant in row.variants)
    return replace(row, variants=variants)


def test_a_plan_of_one_step_saves_the_corrected_estimate_and_gives_the_reason() -> None:
    plain = compose(GATHERED, [SCALE], sensitivity=True)
    plan = compose(GATHERED, [realised(SCALE)], sensitivity=True)
    (step,) = plan.steps
    assert plan.bankable[1] == plain.bankable[1] // 2 > 0
    assert plan.bankable[1] == realised(SCALE).variants[0].net[1]  # type: ignore[index]
    assert step.spend_after == step.spend_before - plan.bankable[1]
    assert step.assumptions[-1] == (
        f"50% ± 10% of what {SCALE.rule_id} promised was realised (5 receipts): the step is corrected by it"
    )
    ends = [(sensitivity.low.bankable, sensitivity.high.bankable) for sensitivity in plan.sensitivity]
    assert ends == [
        (round(sensitivity.low.bankable / 2), round(sensitivity.high.bankable / 2)) for sensitivity in plain.sensitivity
    ]


def test_a_combination_is_corrected_by_the_records_of_its_levers_as_far_as_each_saves() -> None:
    kept, _ = levers(GATHERED, [realised(SCALE), QUANTIZE], PlanLimits())
    one, other = (next(lever for lever in kept if lever.row.rule_id == row.rule_id) for row in (SCALE, QUANTIZE))
    assert correction([other]) is None and correction([]) is None
    only = correction([one])
    assert only is not None and (only.ratio, only.widening) == (0.5, 1.2)
    both = correction([one, other])
    assert both is not None and 0.5 < both.ratio < 1
    assert both.saving(Saving((100, 200, 300))).net[1] == round(200 * both.ratio)


def test_a_plan_without_receipts_is_not_corrected() -> None:
    assert compose(GATHERED, [SCALE]).bankable == SCALE.variants[0].net
    assert record_line("scale", replace(HALF, receipts=1)).count("(1 receipt)") == 1
