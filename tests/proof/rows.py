"""Recommendations for the tests of this package."""

from dataclasses import replace
from typing import Any

from pertoken.proof.recommendation import Edit, Recommendation, State, Variant, identity
from pertoken.savings.saving import Saving

NOW = 1_790_000_000
DAY = 86_400
FP8 = Variant(
    "aaaa000000000000",
    "weights bf16 → fp8",
    edits=(Edit("deployment", 7, "weight_dtype", "bf16", "fp8"),),
    commands=("restart chat with --quantization fp8",),
    undo=("restart chat without --quantization",),
    saving=Saving((1_000_000_000, 2_000_000_000, 3_000_000_000)),
    throughput_ratio=(1.2, 1.4, 1.6),
)
INT4 = replace(
    FP8, key="bbbb000000000000", title="weights bf16 → int4", saving=Saving((0, 1_000_000_000, 4_000_000_000))
)


def row(state: State = State.OPEN, rule_id: str = "quantize", **values: Any) -> Recommendation:
    """Return a recommendation for the deployment with id 7."""
    proposed = State.OPEN if state not in (State.REFUSED, State.BLOCKED, State.FAILED) else state
    recommendation = Recommendation(
        recommendation_id=identity(rule_id, "deployment", "7"),
        rule_id=rule_id,
        state=proposed,
        title=FP8.title if proposed is State.OPEN else "Quantize weights",
        target="chat on gpu-1",
        target_kind="deployment",
        target_key="7",
        deployment_id=7,
        reason=None if proposed is State.OPEN else f"{state.label} because of a figure",
        variants=(FP8, INT4) if proposed is State.OPEN else (),
        created_ts=NOW,
        updated_ts=NOW,
    )
    return replace(recommendation, state=state, **values)
