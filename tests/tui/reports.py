"""Fixed reports and sources for screens: a rich fleet, a bare host, and a database that fails."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event

from pertoken.advisor.plan.plan import Plan
from pertoken.advisor.planning import PlanRequest
from pertoken.costs.hours.hour import ModelHour, ModelHours
from pertoken.costs.hours.spend import Spend, SpendLine
from pertoken.costs.ledger import Bill
from pertoken.costs.report.lines import (
    DeploymentLine,
    DeviceLine,
    EventLine,
    FleetReport,
    HostLine,
    HostUse,
    MissingMetric,
)
from pertoken.errors import StoreError
from pertoken.proof.judging.banked import Banked
from pertoken.proof.recommendation import (
    ChangeLine,
    EvidenceLine,
    LatencyLine,
    Recommendation,
    Refusal,
    State,
    Variant,
)
from pertoken.proof.track_record import Record
from pertoken.state.service import Slo
from pertoken.tui.study import Detail, RuleList, ShownPlan
from pertoken.window.course.course import Course, Mark, Subject
from pertoken.window.course.timeline import Happening, Timeline
from pertoken.window.engine_counts import EngineCounts
from pertoken.window.progress import Progress
from tests.tui.studies import PLAN, RULES, shown_detail, shown_plan

NOW = 1_800_000_000
USD = 1_000_000_000
GIB = 2**30
H100 = "NVIDIA H100 80GB HBM3"
HOSTILE = "[/b]evil\x1b[31m\u202emodel[red]"


def host(host_id: int, name: str, age_s: int | None = 4) -> HostLine:
    return HostLine(
        host_id=host_id,
        name=name,
        cpu_util=0.124,
        load=3.2,
        memory_used_bytes=121 * GIB,
        memory_bytes=512 * GIB,
        agent_cpu_share=0.004,
        agent_rss_bytes=61 * 2**20,
        age_s=age_s,
        interval_s=10,
        memory_traffic_bytes_s=38.2 * GIB,
    )


def device(device_id: int, host: str, slot: int | None, held_by: tuple[str, ...]) -> DeviceLine:
    return DeviceLine(
        device_id=device_id,
        host=host,
        kind="gpu",
        name=H100,
        slot=slot,
        util=0.83,
        power_w=512.4,
        memory_used_bytes=71 * GIB,
        memory_bytes=80 * GIB,
        nano_usd_per_hour=2_490_000_000,
        held_by=held_by,
        age_s=4,
    )


CHAT = DeploymentLine(
    deployment_id=11,
    model="meta-llama/Llama-3.1-70B-Instruct",
    engine="vllm",
    host="gpu-a",
    devices=(f"{H100} #0", f"{H100} #1"),
    generated_tok_s_now=812.4,
    prompt_tok_s_now=6120.0,
    running_now=14.2,
    waiting_now=0.0,
    generated_tokens=2_411_022,
    prompt_tokens=19_200_411,
    cached_tokens=9_002_113,
    busy=0.87,
    power_w=1024.8,
    nano_usd=4_980_000_000,
    idle_nano_usd=1_350_000_000,
    nano_usd_per_mtok=230_440_000,
    nano_usd_per_generated_mtok=2_065_500_000,
    nano_usd_per_hour=4_980_000_000,
    ttft_p95_s=0.412,
    tpot_p50_s=0.0182,
    spark=(None, None, 410.0, 620.0, 700.0, 655.0, None, 702.0, 812.0, 640.0, 300.0, 0.0, 0.0, 512.0, 812.4),
    incomplete=False,
    coverage=0.998,
    age_s=4,
    fault=None,
    counts=EngineCounts(
        preemptions=7,
        ended=(("stop", 5120), ("length", 902)),
        counted=(("requests_failed", 3),),
        prefix_hit_rate=0.469,
        spec_acceptance_rate=0.61,
        spec_acceptance_length=2.83,
        mfu=0.094,
        mbu=0.612,
    ),
)
RESTARTED = replace(
    CHAT,
    deployment_id=12,
    model="Qwen/Qwen3-8B",
    engine="llama.cpp",
    host="gpu-b",
    devices=(f"{H100} #0",),
    generated_tok_s_now=41.0,
    running_now=0.6,
    waiting_now=3.0,
    busy=0.12,
    nano_usd_per_mtok=8_112_000_000,
    ttft_p95_s=1.84,
    incomplete=True,
    coverage=0.61,
    late=("generated_tokens",),
)
SILENT = replace(
    CHAT,
    deployment_id=13,
    model=HOSTILE,
    host="gpu-b",
    devices=(f"{H100} #1",),
    generated_tok_s_now=None,
    prompt_tok_s_now=None,
    running_now=None,
    waiting_now=None,
    busy=0.0,
    power_w=None,
    nano_usd=None,
    nano_usd_per_mtok=None,
    nano_usd_per_generated_mtok=None,
    nano_usd_per_hour=None,
    ttft_p95_s=None,
    tpot_p50_s=None,
    counts=EngineCounts(),
    spark=(None,) * 15,
    age_s=190,
    fault="http://127.0.0.1:8001/metrics answered 404. Start llama-server with --metrics.",
)
MEASURED = replace(
    device(21, "gpu-a", 0, (CHAT.model,)),
    values={
        "sm_active_1e4": 0.62,
        "sm_occupancy_1e4": 0.18,
        "tensor_active_1e4": 0.27,
        "dram_active_1e4": 0.71,
        "nvlink_rx_mib_s": 1.3 * GIB,
        "nvlink_tx_mib_s": 0.9 * GIB,
        "sm_clock_mhz": 1980.0,
        "temperature_c": 61.0,
    },
    power_source="average, gpu",
)
"""A GPU whose driver tells everything."""


def use(host: HostLine, models: tuple[str, ...] = (), accelerators: int = 2) -> HostUse:
    return HostUse(
        host=host,
        accelerators=accelerators,
        util=0.83,
        sm_active=0.62,
        dram_active=0.71,
        power_w=1024.8,
        generated_tok_s_now=812.4,
        nano_usd_per_hour=4_980_000_000,
        nano_usd_per_mtok=230_440_000,
        spark=CHAT.spark,
        bill=Bill(4_980_000_000, 3_130_000_000, 1_350_000_000, 0, 500_000_000),
        models=models,
    )


RICH = FleetReport(
    now_ts=NOW,
    window_s=3600,
    source="/var/lib/pertoken",
    hosts=(host(1, "gpu-a"), host(2, "gpu-b")),
    uses=(use(host(1, "gpu-a"), (CHAT.model,)), use(host(2, "gpu-b"), (RESTARTED.model, HOSTILE), 3)),
    devices=(
        MEASURED,
        device(22, "gpu-a", 1, (CHAT.model,)),
        replace(device(23, "gpu-b", 0, (RESTARTED.model,)), util=None, power_w=None),
        replace(device(24, "gpu-b", 1, (HOSTILE, "other processes")), nano_usd_per_hour=None, age_s=190),
        replace(device(25, "gpu-b", 2, ()), util=0.0, power_w=71.2, memory_used_bytes=600 * 2**20),
    ),
    deployments=(CHAT, RESTARTED, SILENT),
    bill=Bill(paid=9_960_000_000, busy=4_631_400_001, idle=2_838_599_999, other=249_000_000, unallocated=2_241_000_000),
    nano_usd_per_hour=9_960_000_000,
    unpriced_n=1,
    unpriced_devices=(f"{H100} #1",),
    nano_usd_per_mtok=412_330_000,
    generated_tok_s_now=853.4,
    power_w=1096.0,
    incomplete=True,
    missing=(
        MissingMetric(f"{H100} #0", "util", "unsupported", "the driver does not report it under MIG", None, 23),
        MissingMetric(
            f"{H100} #0", "power", "denied", "/dev/nvidia0 may not be read", "Add the agent to group video.", 23
        ),
    ),
    events=(
        EventLine(NOW - 190, "engine_unreadable", "http://127.0.0.1:8001/metrics answered 404", 19),
        EventLine(NOW - 1260, "engine_restart", "Qwen/Qwen3-8B restarted on gpu-b", 1),
        EventLine(NOW - 3300, "agent_start", "agent 0.1.0 started on gpu-a [b]!", 1),
        EventLine(NOW - 3400, "agent_start", "agent 0.1.0 started on gpu-b", 1),
    ),
    hints=(
        f"{HOSTILE} cannot be read: http://127.0.0.1:8001/metrics answered 404. Start llama-server with --metrics.",
        f"No price is known for {H100}: set what an hour of it costs you, in dollars, with "
        f'`pertoken prices set DOLLARS --for "{H100}"`.',
    ),
    bill_observed=0.979,
    coverage=0.866,
)
BARE = FleetReport(
    now_ts=NOW,
    window_s=3600,
    source="/home/me/.local/share/pertoken",
    hosts=(host(1, "laptop"),),
    uses=(replace(use(host(1, "laptop"), (), 0), bill=None, nano_usd_per_mtok=None, power_w=None),),
    devices=(
        DeviceLine(
            device_id=31,
            host="laptop",
            kind="cpu",
            name="AMD EPYC 9354P 32-Core Processor",
            slot=None,
            util=0.124,
            power_w=None,
            memory_used_bytes=None,
            memory_bytes=None,
            nano_usd_per_hour=None,
            held_by=(),
            age_s=4,
        ),
    ),
    deployments=(),
    bill=None,
    nano_usd_per_hour=None,
    unpriced_n=0,
    unpriced_devices=("AMD EPYC 9354P 32-Core Processor",),
    nano_usd_per_mtok=None,
    generated_tok_s_now=None,
    power_w=None,
    incomplete=False,
    missing=(
        MissingMetric(
            "AMD EPYC 9354P 32-Core Processor",
            "power",
            "denied",
            "/sys/class/powercap is readable by root only",
            "Run the agent as a service, or give it read access.",
            31,
        ),
    ),
    events=(),
    hints=(
        "No inference server was found on this host. Start one (vLLM, or llama-server with --metrics), or name "
        "one that runs elsewhere: `pertoken agent --engine http://HOST:PORT`.",
    ),
)


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
    bankable=_month(1200, 1640, 1818),
    capacity=_month(0, 210, 400),
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
INT4 = replace(FP8, key="1123456789abcdef", title="Serve INT4 weights", bankable=_month(900, 1500, 1700), capacity=None)
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
    bankable=_month(-120, 900, 1500),
    capacity=_month(2000, 2600, 3100),
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
            "2", "Release the idle device", bankable=_month(1818, 1818, 1818), touches=("host:2",), released=("b",)
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
            bankable=None,
            capacity=None,
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
        reason="ttft_s was not measured",
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
SILENT_ADVICE = tuple(each for each in ADVICE if each.state is not State.OPEN)


def _hours(model: str, *per_mtok: int | None) -> ModelHours:
    """Hours at so many micro-dollars per Mtok, with a million tokens each; -1: no token; None: nothing recorded."""
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
"""What a million tokens cost, by model and hour: with gaps, an hour without a token, and a model without a price."""


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
    """A value for each minute that rises and falls, with a gap."""
    half = _MINUTES // 2
    return tuple(None if i in gap else low + (high - low) * (half - abs(half - i)) / half for i in range(_MINUTES))


COURSE = Course(
    start_ts=NOW - 3600,
    slice_s=60,
    series={
        "generated_tok_s": _wave(200, 900, range(18, 24)),
        "prompt_tok_s": _wave(1200, 6800, range(18, 24)),
        "power_w": _wave(700, 1180),
        "util": _wave(0.5, 0.97),
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


@dataclass
class FixedSource:
    """Gives what it holds. `error` fails every call; `wait` holds every call until it is set."""

    report: FleetReport = RICH
    recommendations: tuple[Recommendation, ...] = ADVICE
    error: Callable[[], Exception] | None = None
    wait: Event | None = None
    windows: list[int] = field(default_factory=list)
    day: tuple[ModelHours, ...] = DAY
    hours_asked: int = 0
    decisions: list[tuple[int, str]] = field(default_factory=list)
    planned: Plan = PLAN
    requests: list[tuple[PlanRequest | None, bool]] = field(default_factory=list)
    details: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    rules_asked: int = 0
    off: set[str] = field(default_factory=set)
    moments: list[int | None] = field(default_factory=list)
    subjects: list[Subject] = field(default_factory=list)
    bill: Spend = TENANTS
    saved: Banked = BANKED
    history: Course = COURSE
    recorded: Timeline = TIMELINE
    recorded_until: int | None = None
    priced: list[tuple[str, int]] = field(default_factory=list)

    def _before(self) -> None:
        if self.wait is not None:
            self.wait.wait(30)
        if self.error is not None:
            raise self.error()

    def fleet(self, window_s: int, at: int | None = None) -> FleetReport:
        self._before()
        self.windows.append(window_s)
        self.moments.append(at)
        return replace(self.report, window_s=window_s, now_ts=at or self.report.now_ts)

    def tenants(self, window_s: int, at: int | None = None) -> Spend:
        self._before()
        return self.bill

    def banked(self) -> Banked:
        self._before()
        return self.saved

    def course(self, subject: Subject, window_s: int, at: int | None = None) -> Course:
        self._before()
        self.subjects.append(subject)
        return self.history

    def timeline(self, now_ts: int) -> Timeline:
        self._before()
        return self.recorded

    def hours(self, at: int | None = None) -> tuple[ModelHours, ...]:
        self._before()
        self.hours_asked += 1
        return self.day

    def advice(self, at: int | None = None) -> tuple[Recommendation, ...]:
        self._before()
        return self.recommendations

    def records(self) -> Mapping[str, Record]:
        self._before()
        return {"quantize-weights": Record(4, 0.92, 0.11, 0.3)}

    def plan(
        self, rows: Sequence[Recommendation], request: PlanRequest | None, progress: Progress, *, fresh: bool = False
    ) -> ShownPlan:
        self._before()
        self.requests.append((request, fresh))
        return ShownPlan(shown_plan(request, self.planned), request, 604_800)

    def rules(self) -> RuleList:
        self._before()
        self.rules_asked += 1
        return RuleList(
            tuple(
                replace(each, entry=replace(each.entry, state="disabled")) if each.entry.id in self.off else each
                for each in RULES
            ),
            "/etc/pertoken/rules.d",
        )

    def set_price(self, selector: str, nano_usd: int) -> str:
        self.priced.append((selector, nano_usd))
        return f"{selector}: priced"

    def switch(self, rule_id: str, on: bool) -> str:
        self._before()
        (self.off.discard if on else self.off.add)(rule_id)
        return f"{rule_id}: {'on' if on else 'off'}"

    def detail(
        self, rows: Sequence[Recommendation], each: Recommendation, values: Mapping[str, float], progress: Progress
    ) -> Detail:
        self._before()
        self.details.append((each.recommendation_id, dict(values)))
        return shown_detail(each, values)

    def decide(self, each: Recommendation, decision: str) -> str:
        self._before()
        self.decisions.append((each.recommendation_id, decision))
        return f"{decision}: stored"

    def describe(self) -> str:
        self._before()
        return self.report.source


def locked() -> Exception:
    return StoreError("/var/lib/pertoken/telemetry.db: locked by pid 4211 [b]: stop it, or wait\nsecond line")
