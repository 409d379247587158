"""Fixed values for those that take seconds to compute: a plan, rules, and the detail of one recommendation."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from pertoken.advisor.plan.plan import Headroom, LeftOut, Money, Plan, PlanStep
from pertoken.advisor.planning import PlanRequest, Tested
from pertoken.advisor.rules.listing import RuleEntry
from pertoken.proof.detection import JournalEntry as JournalEntry
from pertoken.proof.judging.verifier import Prospect
from pertoken.proof.recommendation import Edit, Recommendation, State
from pertoken.proof.trials.look import Observed
from pertoken.proof.trials.trial import Arm, Design, Trial
from pertoken.proof.verification.verify import Detectable
from pertoken.savings.estimate import Estimate
from pertoken.savings.saving import Saving
from pertoken.savings.sensitivity import At, Sensitivity
from pertoken.text.study import Detail, ListedRule
from pertoken.units import NANO_USD

HOSTILE = "[/b]evil\x1b[31m\u202emodel[red]"
NOTHING = (0, 0, 0)
TRIAL = Trial(
    recommendation_id=401,
    design=Design.REPLICAS,
    started_ts=1_799_990_000,
    canary=Arm(8, 7, "chat on gpu-a", "http://gpu-a:8000"),
    control=Arm(9, 17, "chat on gpu-b", "http://gpu-b:8000"),
    edits=(Edit("deployment", 8, "weight_dtype", "bf16", "fp8"),),
    minutes=120,
    warm_up_s=1800,
)


def usd(low: int, likely: int, high: int) -> Money:
    return low * NANO_USD, likely * NANO_USD, high * NANO_USD


def step(recommendation_id: int, rule_id: str, title: str, where: str, bankable: Money, **more: object) -> PlanStep:
    known = PlanStep(
        rule_id=rule_id,
        recommendation_id=recommendation_id,
        variant_key="ab12",
        title=title,
        where=where,
        risk="quality",
        effort="hours",
        spend_before=0,
        spend_after=0,
        bankable=bankable,
        capacity=NOTHING,
        slo="unknown",
        commands=(f"do {rule_id}",),
        undo=(f"undo {rule_id}",),
    )
    return replace(known, **more)  # type: ignore[arg-type]


STEPS = (
    step(103, "release-idle", "Release the idle device", "gpu-b", usd(1818, 1818, 1818), risk="none", effort="minutes"),
    step(
        101,
        "quantize-weights",
        "Serve FP8 weights",
        "meta-llama/Llama-3.1-70B-Instruct",
        usd(1200, 1500, 1818),
        capacity=usd(0, 200, 400),
        slo="near_miss",
        headroom=Headroom("TTFT p95", 704.0, 850.0, 800.0),
        commands=("docker run --quantization fp8", "pip install pertoken-eval"),
        conflicts=("move-accelerator, Move to H200: both change the placement",),
        assumptions=("Quality at FP8 is acceptable: not measured here",),
        against=("Outputs differ from those of BF16.",),
    ),
    step(105, "batch-limit", f"Raise the batch limit {HOSTILE}", HOSTILE, NOTHING, slo="pass"),
)
LOAD = Sensitivity(
    "the load stays as measured",
    At("0.8 times the load", 2900 * NANO_USD, 100 * NANO_USD),
    At("1.25 times the load", 3400 * NANO_USD, 300 * NANO_USD),
    (418 * NANO_USD, 100 * NANO_USD),
    (0.8, 1.25),
)
PRICE = Sensitivity(
    "the list price is paid",
    At("70% of it", 2323 * NANO_USD, 140 * NANO_USD),
    At("100% of it", 3318 * NANO_USD, 200 * NANO_USD),
    (995 * NANO_USD, 60 * NANO_USD),
    (0.7, 1.0),
)
PLAN = Plan(
    spend=7270 * NANO_USD,
    bankable=usd(3018, 3318, 3636),
    capacity=usd(0, 200, 400),
    steps=STEPS,
    left_out=(
        LeftOut(
            "move-accelerator", 102, "Move to H200", "meta-llama/Llama-3.1-70B-Instruct", "conflicts with step 2: both"
        ),
    ),
    sensitivity=(PRICE, LOAD),
)


def shown_plan(request: PlanRequest | None, plan: Plan) -> Plan:
    """Return a plan with the same steps in the requested order, without those that are left out."""
    limits = PlanRequest().limits if request is None else request.limits
    left = [LeftOut(e.rule_id, e.recommendation_id, e.title, e.where, "you left it out") for e in plan.steps]
    order = {key: at for at, key in enumerate(limits.order)}
    kept = [step for step in plan.steps if step.recommendation_id not in limits.without]
    kept.sort(key=lambda step: order.get(step.recommendation_id, len(order)))
    spend, steps = plan.spend, []
    for step in kept:
        steps.append(replace(step, spend_before=spend, spend_after=spend - step.bankable[1]))
        spend -= step.bankable[1]
    assert all(one.spend_after == other.spend_before for one, other in pairwise(steps))
    bankable = tuple(sum(step.bankable[end] for step in kept) for end in range(3))
    gone = tuple(step for step in left if step.recommendation_id in limits.without)
    return replace(plan, steps=tuple(steps), bankable=bankable, left_out=(*plan.left_out, *gone))  # type: ignore[arg-type]


RULES = (
    ListedRule(
        RuleEntry(
            "quantize-weights", "Store weights in fewer bits", "pertoken", "1.0", "loaded", None, "confined", 604_800
        ),
        "quantize-weights: Store weights in fewer bits\n\nWhy\n  Decode waits on memory.\n",
    ),
    ListedRule(
        RuleEntry("release-idle", "Give idle hosts back", "pertoken", "1.0", "loaded", None, "confined", 604_800),
        "release-idle: Give idle hosts back\n",
    ),
    ListedRule(
        RuleEntry("use-spot", "Buy spot capacity", "pertoken", "1.0", "loaded", None, "confined", 604_800),
        "use-spot: Buy spot capacity\n",
    ),
    ListedRule(
        RuleEntry("mine", None, "/etc/pertoken/rules.d/mine.py", None, "broken", f"SyntaxError: {HOSTILE}", "confined"),
        f"mine: broken\nfrom /etc/pertoken/rules.d/mine.py\n\nTraceback (most recent call last):\n  x = {HOSTILE}\n",
    ),
)


def shown_detail(recommendation: Recommendation, values: Mapping[str, float]) -> Detail:
    """Return the detail that a real source would compute of an open recommendation."""
    factor = values.get(LOAD.assumption, 1.0)
    likely = round(1500 * factor) * NANO_USD
    estimate = Estimate(saving=Saving((likely, likely, likely)))
    return Detail(
        recommendation.recommendation_id,
        dict(values),
        Tested(7270 * NANO_USD, estimate, (PRICE, LOAD)),
        None,
        (Prospect("Llama-70B on gpu-a", Detectable((0.2,) * 28, 12), 0.21),),
        (),
        (JournalEntry(1_799_990_000, "open", "advisor", f"proposed {HOSTILE}"),),
        *((TRIAL, Observed(None, None, None, 0)) if recommendation.state is State.ACCEPTED else ()),
    )
