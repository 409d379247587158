"""Advice in every state that a screen shows."""

from dataclasses import replace

from pertoken.proof.recommendation import (
    ChangeLine,
    EvidenceLine,
    LatencyLine,
    Recommendation,
    Refusal,
    State,
    Variant,
)
from pertoken.savings.saving import Saving
from tests.tui.figures import H100, HOSTILE, NOW, USD


def _month(low: int, likely: int, high: int) -> tuple[int, int, int]:
    return low * USD, likely * USD, high * USD


FP8 = Variant(
    key="0123456789abcdef",
    title="Serve FP8 weights",
    changes=(
        ChangeLine("meta-llama/Llama-3.1-70B-Instruct", "weight_dtype", "bf16", "fp8"),
        ChangeLine("meta-llama/Llama-3.1-70B-Instruct", "tp", "2", "1"),
    ),
    commands=("vllm serve meta-llama/Llama-3.1-70B-Instruct --quantization fp8 --tensor-parallel-size 1",),
    undo=("vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 2",),
    saving=Saving(_month(1200, 1640, 1818), _month(0, 210, 400)),
    throughput_ratio=(1.31, 1.58, 1.92),
    slo="near_miss",
    latency=(
        LatencyLine("TTFT p95", (410.2, 812.4, 1204.0), (300.0, 561.0, 990.0), 790.0, 800.0, "forecast"),
        LatencyLine("TPOT p95", (38.0, 44.6, 52.0), (24.0, 31.3, 44.8), None, None, "forecast"),
    ),
    replicas_needed=(4, 2),
    risk="quality",
    effort="medium",
    touches=("service:chat",),
    provenance="forecast",
    assumptions=("Quality at FP8 is acceptable: not measured here.",),
    against=("Compute-bound at peak hours (batch 64): the gain shrinks there.",),
)
INT4 = replace(FP8, key="1123456789abcdef", title="Serve INT4 weights", saving=Saving(_month(900, 1500, 1700)))
QUANTIZE = Recommendation(
    recommendation_id=101,
    rule_id="quantize-weights",
    state=State.OPEN,
    title=FP8.title,
    target="meta-llama/Llama-3.1-70B-Instruct on gpu-a",
    target_kind="deployment",
    target_key="11",
    deployment_id=11,
    reason="Decode waits on memory at a mean batch of 14: half the weight bytes are read twice as fast.",
    variants=(FP8, INT4),
    refusals=(Refusal("infeasible", "tp 2 → 1: it would not start: weights of 140 GB leave no KV cache"),),
    evidence=(
        EvidenceLine("running", "requests", 14.2, 14.0, 63.5, 360, "reported"),
        EvidenceLine("dram_active", "ratio", None, None, None, 0, None, "needs GPM: Hopper and `nvidia-smi` 535+"),
    ),
    created_ts=NOW - 7200,
    updated_ts=NOW - 600,
)
H200 = replace(
    FP8,
    title="Move to H200",
    saving=Saving(_month(-120, 900, 1500), _month(2000, 2600, 3100)),
    throughput_ratio=(1.4, 1.7, 1.9),
    slo="pass",
)
MOVE = replace(
    QUANTIZE,
    recommendation_id=102,
    rule_id="move-accelerator",
    title=H200.title,
    variants=(H200,),
    refusals=(),
    evidence=(),
)
RELEASE = replace(
    QUANTIZE,
    recommendation_id=103,
    rule_id="release-idle",
    title="Release the idle device",
    target=f"{H100} #2 on gpu-b",
    target_kind="host",
    target_key="2",
    deployment_id=None,
    reason="Nothing held it for 24 h.",
    variants=(
        Variant(
            "2",
            "Release the idle device",
            saving=Saving(_month(1818, 1818, 1818)),
            touches=("host:2",),
            released=("b",),
        ),
    ),
    refusals=(),
    evidence=(),
)
UNPRICED = replace(
    QUANTIZE,
    recommendation_id=104,
    rule_id="batch-limit",
    title="Raise the batch limit",
    target=f"{HOSTILE} on gpu-b",
    target_key="13",
    deployment_id=13,
    variants=(
        replace(
            FP8,
            title="Raise the batch limit",
            saving=None,
            throughput_ratio=(1.0, 1.2, 1.5),
            slo="fail",
            unpriced="no price is set for its device",
            touches=("service:other",),
        ),
    ),
    refusals=(),
)
ADVICE = (
    MOVE,
    UNPRICED,
    QUANTIZE,
    RELEASE,
    Recommendation(
        201,
        "use-spot",
        State.REFUSED,
        "Buy spot capacity",
        "Qwen/Qwen3-8B on gpu-b",
        reason="no spot offer of this accelerator in the chosen region",
    ),
    Recommendation(
        202,
        "route-requests",
        State.BLOCKED,
        "Route easy requests to a smaller model",
        "Qwen/Qwen3-8B on gpu-b",
        reason="TTFT was not measured",
        remedy="Start the engine with its latency histograms on.",
    ),
    Recommendation(
        203,
        "strangers-rule",
        State.FAILED,
        "A stranger's rule",
        "the fleet",
        reason='Traceback (most recent call last):\n  File "x.py", line 3, in f\nZeroDivisionError: [b]division[/b]',
        remedy="Ask the author of the rule.",
    ),
    replace(QUANTIZE, recommendation_id=301, state=State.EXPIRED, title="Expired and not to be shown"),
)
SILENT_ADVICE = tuple(row for row in ADVICE if row.state is not State.OPEN)
