"""Hours, bills and histories of the fleet."""

from pertoken.costs.hours import ModelHour, ModelHours
from pertoken.costs.spend import Spend, SpendLine
from pertoken.proof.judging.receipts import Banked
from pertoken.state.service import Slo
from pertoken.window.course import Course, Mark
from pertoken.window.timeline import Happening, Timeline
from tests.tui.figures import CHAT, HOSTILE, NOW, USD


def _hours(model: str, *per_mtok: int | None) -> ModelHours:
    """Return hours with these micro-dollars per Mtok and a million tokens each; -1: no token; None: not recorded."""
    hours = (
        None if p is None else ModelHour(max(p, 1) * 1000, 10**6 if p >= 0 else 0, 3_600_000, 3_600_000)
        for p in per_mtok
    )
    return ModelHours(model, NOW // 3600 * 3600 - 23 * 3600, tuple(hours))


DAY = (
    _hours(CHAT.model, *(180_000 + 9_000 * (n * 7 % 13) for n in range(20)), None, None, -1, 230_440),
    _hours(HOSTILE, *[None] * 20, 8_112_000, 7_950_000, 9_410_000, 8_020_000),
    ModelHours(
        "no-price", NOW // 3600 * 3600 - 23 * 3600, (*[None] * 22, *[ModelHour(None, 4_200, 2_250_000, 3_600_000)] * 2)
    ),
)
"""Prices by model and hour, with gaps, an hour without a token, and a model without a price."""


TENANTS = Spend(
    "tenant",
    NOW - 3600,
    NOW,
    9_960_000_000,
    (
        SpendLine("search", 5_200_000_000, 12_400_000, team="search"),
        SpendLine("[b]chat\x1b[31m", 2_110_000_000, 6_010_000),
        SpendLine("unattributed", 160_000_000, 201_000),
        SpendLine("unallocated", 2_490_000_000),
    ),
)
BANKED = Banked(2, (310 * USD, 402 * USD, 488 * USD))
_MINUTES = 60


def _wave(low: float, high: float, gap: range = range(0)) -> tuple[float | None, ...]:
    """Return values by minute that rise and fall, with a gap."""
    half = _MINUTES // 2
    return tuple(None if i in gap else low + (high - low) * (half - abs(half - i)) / half for i in range(_MINUTES))


COURSE = Course(
    start_ts=NOW - 3600,
    slice_s=60,
    series={
        "generated_tok_s": _wave(200, 900, range(18, 24)),
        "prompt_tok_s": _wave(1200, 6800, range(18, 24)),
        "power_w": _wave(700, 1180),
        "device_util": _wave(0.5, 0.97),
        "sm_active": _wave(0.3, 0.74),
        "dram_active": _wave(0.2, 0.66),
        "kv_use": _wave(0.1, 0.62),
        "running": _wave(2, 31),
        "waiting": _wave(0, 4),
        "ttft_p50": _wave(0.08, 0.21),
        "ttft_p95": _wave(0.21, 0.47),
        "tpot_p50": (None,) * _MINUTES,
        "tpot_p95": (None,) * _MINUTES,
    },
    power_limit_w=1400.0,
    energy_kwh=0.97,
    prompt_tokens=19_200_411,
    cached_tokens=9_002_113,
    generated_tokens=2_411_022,
    models=(CHAT.model,),
    deployment_ids=(11,),
    slo=Slo(ttft_p95_ms=400.0),
    marks=(
        Mark(NOW - 2400, "epoch", "meta-llama/Llama-3.1-70B-Instruct: max_num_seqs 64 → 128"),
        Mark(NOW - 1260, "event", "Qwen/Qwen3-8B restarted on gpu-b [b]!"),
        Mark(NOW - 600, "verdict", "chat on gpu-a: max_num_seqs 64 → 128: cheaper, -12.0% per token"),
    ),
)
TIMELINE = Timeline(
    NOW - 7200,
    NOW,
    (
        Happening(NOW - 6300, "agent 0.1.0 started on gpu-a [b]!"),
        Happening(NOW - 3300, "Qwen/Qwen3-8B restarted on gpu-b"),
        Happening(NOW - 190, "http://127.0.0.1:8001/metrics answered 404"),
    ),
)
