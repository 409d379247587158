"""The typical situations. Their figures hang together as on a real host: requests running follow from arrivals and
latencies (Little's law), tokens from requests and lengths. They are chosen for what a host does, not for any rule."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pertoken.evidence import Evidence, Series
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.placement import Commitment, Placement
from pertoken.state.service import Service
from pertoken.testing.builders import deployment, evidence, fleet, series, service
from pertoken.testing.regime import HOST_MEMORY_FREE, OBSERVED_H, Regime, regime

CHAT = "chat"
PAID_UNTIL = 1_900_000_000
"""Epoch seconds at which what is committed ends."""


@dataclass(frozen=True, slots=True)
class Load:
    """What one replica serves, and how its engine and devices take it."""

    requests_s: float
    prompt_len: float
    generated_len: float
    ttft_s: float
    tpot_s: float
    busy: float
    waiting: float = 0.0
    cached_share: float = 0.0
    kv_use: float | None = None
    preemptions: float | None = None
    dram_active: float | None = None
    tensor_active: float | None = None
    device_util: float | None = None
    power_w: float | None = None
    """Of all its devices together."""
    device_memory: float | None = None
    sm_clock_mhz: float = 1755.0
    throttled: float = 0.0
    """Time in which power, heat or a limit slowed the clocks."""
    aborted: float = 0.02
    """Requests that were aborted, of all that ended."""
    peak: float = 1.5
    """95th percentile of the minutes over their mean."""

    @property
    def evidence(self) -> Evidence:
        """What was measured of it in a week."""
        prompts, tokens = self.requests_s * self.prompt_len, self.requests_s * self.generated_len
        e2e_s = self.ttft_s + self.tpot_s * self.generated_len
        rates = {
            "requests_s": self.requests_s,
            "prompt_tok_s": prompts,
            "computed_tok_s": prompts * (1 - self.cached_share),
            "generated_tok_s": tokens,
        }
        values = {name: series(mean, p95=mean * self.peak, max=2 * mean * self.peak) for name, mean in rates.items()}
        running = self.requests_s * e2e_s / self.busy
        values["running"] = series(running, p95=running * self.peak, max=2 * running * self.peak)
        values["busy"] = series(self.busy, p95=min(1, self.busy * self.peak), max=min(1, 2 * self.busy * self.peak))
        values["waiting"] = series(self.waiting, p95=self.waiting * self.peak, max=2 * self.waiting * self.peak)
        values["busy_generated_tok_s"] = series(tokens / self.busy)
        values["cached_share"] = series(self.cached_share)
        requests = max(1, round(self.requests_s * 7 * 86_400))
        for name, mean in (("prompt_len", self.prompt_len), ("generated_len", self.generated_len)):
            values[name] = series(mean, p50=0.7 * mean, p95=2.5 * mean, max=4 * mean, n=requests)
        for name, mean in (("ttft_s", self.ttft_s), ("tpot_s", self.tpot_s), ("e2e_s", e2e_s)):
            values[name] = series(mean, p50=0.9 * mean, p95=1.6 * mean, max=4 * mean, n=requests)
        values["observed_h"] = series(OBSERVED_H, n=1)
        shares = ("kv_use", "dram_active", "tensor_active", "device_util")
        known = {name: getattr(self, name) for name in (*shares, "preemptions", "power_w", "device_memory")}
        for name, mean in known.items():
            if mean is not None:
                high = min(1.0, 1.1 * mean) if name in shares else 1.1 * mean
                values[name] = series(mean, p95=high, max=high)
        return evidence(**values, **self._requests(requests), **self._devices())

    def _requests(self, n: int) -> dict[str, Series]:
        """Return how requests came, waited and ended, and how many tokens a step has."""
        # Waiting follows from arrivals (Little's law); a preempted request waits after its first token, too.
        queue_s = min(self.waiting / self.requests_s, 0.9 * self.ttft_s)
        tokens_s = self.requests_s * (self.prompt_len * (1 - self.cached_share) + self.generated_len)
        step = tokens_s * self.tpot_s / self.busy
        known = {
            "queue_s": series(queue_s, p50=0.9 * queue_s, p95=1.6 * queue_s, max=4 * queue_s, n=n),
            "max_tokens": series(4 * self.generated_len, n=n),
            "step_tokens": series(step, p50=0.8 * step, p95=2.5 * step, max=4 * step, n=n),
            "ended_by_stop": series(0.92 - self.aborted),
            "ended_by_length": series(0.08),
            "ended_by_abort": series(self.aborted),
            "arrival_dispersion": series(1 + 2 * (self.peak - 1)),
        }
        if self.cached_share:
            known |= {"prefix_hit_rate": series(self.cached_share), "kv_reuse_gap_s": series(60, p95=600, max=3600)}
        return known

    def _devices(self) -> dict[str, Series]:
        """Return energy, clocks and memory as far as the devices are measured at all."""
        known = {"host_memory_free": series(HOST_MEMORY_FREE)}
        if self.power_w is not None:
            power_w, tokens_s = self.power_w, self.requests_s * (self.prompt_len + self.generated_len)
            known |= {
                "energy_w": series(power_w, p95=1.1 * power_w, max=1.1 * power_w),
                "j_per_token": series(power_w / tokens_s, p95=1.2 * power_w / tokens_s, max=2 * power_w / tokens_s),
                "sm_clock_mhz": series(self.sm_clock_mhz),
                "temperature_c": series(61, p95=66, max=70),
                "throttled": series(self.throttled),
            }
        if self.tensor_active is not None and self.device_util is not None:
            active = max(self.tensor_active, 0.9 * self.device_util)
            known |= {"sm_active": series(active), "sm_occupancy": series(0.3 * active)}
        return known


FEW_LONG = Load(
    0.12, 1600, 400, 0.15, 0.028, 0.7, kv_use=0.08, preemptions=0, dram_active=0.72, tensor_active=0.05,
    device_util=0.97, power_w=800, device_memory=1.54e11,
)  # fmt: skip
"""A few long answers at a time: each step reads all weights for two or three requests."""


def _service(load: Load, replicas: int, like: Deployment, name: str = CHAT, **fields: Any) -> Service:
    """Return replicas of one deployment, each with this load, and the demand that they have together."""
    return service(
        name,
        *[like] * replicas,
        requests_s=load.requests_s * load.peak * replicas,
        prompt_len=load.prompt_len,
        output_len=load.generated_len,
        cached_share=load.cached_share,
        **fields,
    )


def _of(name: str, meaning: str, load: Load, present: Fleet) -> Regime:
    return regime(present, {each.name: load.evidence for each in present.services}, name=name, meaning=meaning)


def _large(**fields: Any) -> Deployment:
    return deployment("Llama-3.3-70B", tp=2, **fields)


def _idle() -> Regime:
    load = Load(
        0.002, 900, 250, 0.12, 0.026, 0.013, kv_use=0.01, preemptions=0, dram_active=0.02, tensor_active=0.01,
        device_util=0.02, power_w=170, device_memory=1.54e11, peak=3,
    )  # fmt: skip
    meaning = "Two replicas that hardly anybody calls, and a host whose devices nobody holds."
    return _of("idle", meaning, load, fleet(_service(load, 2, _large()), idle_hosts=1))


def _bandwidth_bound() -> Regime:
    meaning = "Two replicas of a 70B decode two or three requests at a time: every step waits on reading weights."
    return _of("bandwidth-bound", meaning, FEW_LONG, fleet(_service(FEW_LONG, 2, _large())))


def _compute_bound() -> Regime:
    load = Load(
        16.0, 700, 350, 0.25, 0.032, 0.98, kv_use=0.55, preemptions=0, dram_active=0.42, tensor_active=0.66,
        device_util=1, power_w=680, device_memory=7.3e10, throttled=0.3, peak=1.2,
    )  # fmt: skip
    like = deployment("Llama-3.1-8B", weight_dtype="fp8")
    meaning = "An 8B in FP8 decodes some two hundred requests at a time: products bound it, memory bandwidth does not."
    return _of("compute-bound", meaning, load, fleet(_service(load, 2, like)))


def _kv_bound() -> Regime:
    load = Load(
        0.9, 6000, 900, 1.8, 0.034, 1.0, waiting=7, kv_use=0.96, preemptions=40, dram_active=0.6, tensor_active=0.2,
        device_util=1, power_w=1100, device_memory=1.58e11, peak=1.1,
    )  # fmt: skip
    like = deployment("Llama-3.3-70B", tp=2, weight_dtype="fp8", max_model_len=32_768)
    meaning = "Long prompts fill the KV cache: requests wait for it and are preempted, far below the batch limit."
    return _of("kv-bound", meaning, load, fleet(_service(load, 2, like)))


LONG_PROMPTS = Load(
    8.0, 7000, 40, 0.9, 0.045, 0.9, waiting=2.0, cached_share=0.35, kv_use=0.3, preemptions=0, dram_active=0.25,
    tensor_active=0.6, device_util=0.95, power_w=670, device_memory=7.2e10,
)  # fmt: skip
"""Long prompts with short answers."""


def _prefill_heavy() -> Regime:
    load = LONG_PROMPTS
    like = deployment("Llama-3.1-8B", max_model_len=32_768, enable_prefix_caching=True)
    meaning = "Long prompts with short answers, a third of them alike: nearly all of the time goes into prefill."
    return _of("prefill-heavy", meaning, load, fleet(_service(load, 2, like)))


def _saturated() -> Regime:
    load = Load(
        2.6, 800, 500, 12.0, 0.05, 1.0, waiting=30, kv_use=0.45, preemptions=0, dram_active=0.5, tensor_active=0.3,
        device_util=1, power_w=640, device_memory=7.3e10, aborted=0.12, peak=1.05,
    )  # fmt: skip
    like = deployment("Llama-3.1-8B", max_num_seqs=64)
    meaning = "More arrives than is served: the batch limit is reached in every minute and a queue stands before it."
    present = fleet(_service(load, 2, like))
    # Of the requests in flight as many run as the limit lets in; the others wait.
    measured = evidence(**{**dict(load.evidence.items()), "running": series(63.4, p95=64, max=64)})
    return regime(present, {CHAT: measured}, name="saturated", meaning=meaning)


def _moe() -> Regime:
    load = Load(
        1.4, 2500, 600, 0.4, 0.03, 0.95, kv_use=0.2, preemptions=0, dram_active=0.55, tensor_active=0.15,
        device_util=0.99, power_w=3600, device_memory=5.8e11,
    )  # fmt: skip
    like = deployment("Qwen3-235B-A22B", tp=8, ep=8, max_model_len=32_768)
    meaning = "A mixture of experts on eight devices: few parameters compute a token, all of them stay in memory."
    return _of("moe", meaning, load, fleet(_service(load, 1, like)))


def _multi_tenant() -> Regime:
    busy = Load(
        3.0, 900, 300, 0.1, 0.012, 0.75, kv_use=0.12, preemptions=0, dram_active=0.55, tensor_active=0.12,
        device_util=0.8, power_w=420, device_memory=7.2e10,
    )  # fmt: skip
    quiet = replace(busy, requests_s=0.05, busy=0.1, kv_use=0.02, dram_active=0.06, device_util=0.1, power_w=140)
    first = _service(busy, 1, deployment(device_ids=(10,)), "acme", isolation="tenant")
    second = _service(quiet, 1, deployment(device_ids=(11,)), "globex")
    services = [replace(each, demand=replace(each.demand, tenants=(each.name,))) for each in (first, second)]
    meaning = "Two customers on one host of two devices: one is busy and shares nothing, the other one is quiet."
    present = fleet(*services)
    return regime(present, {"acme": busy.evidence, "globex": quiet.evidence}, name="multi-tenant", meaning=meaning)


ENGINE_COUNTS = (
    "ttft_s", "tpot_s", "e2e_s", "queue_s", "max_tokens", "step_tokens", "ended_by_stop", "ended_by_length",
    "ended_by_abort",
)  # fmt: skip
"""Series that llama.cpp does not expose."""


def _cpu() -> Regime:
    load = Load(0.02, 300, 200, 2.0, 0.09, 0.35, device_util=0.6, peak=2)
    unknown = dict.fromkeys(("dp", "pp", "tp", "max_num_batched_tokens", "enable_chunked_prefill", "enforce_eager"))
    like = deployment(
        "Llama-3.1-8B", engine="llama.cpp", weight_dtype="int4", max_num_seqs=4, gpu_memory_utilization=None,
        enable_prefix_caching=None, placement=Placement(), **unknown,
    )  # fmt: skip
    seen = {name: each for name, each in load.evidence.items() if name not in ENGINE_COUNTS}
    meaning = "llama.cpp on the CPUs of a host: four slots, no KV gauge, no latency histograms, no accelerator."
    seen["memory_traffic_bytes_s"] = series(9e10, p95=1.2e11, max=1.3e11)
    return regime(fleet(_service(load, 1, like)), {CHAT: evidence(**seen)}, name="cpu", meaning=meaning)


def _spot() -> Regime:
    like = deployment(placement=Placement("aws", "us-east-1", accelerator="L4", purchase="spot"), weight_dtype="fp8")
    load = Load(
        0.5,
        800,
        300,
        0.3,
        0.045,
        0.85,
        kv_use=0.3,
        preemptions=0,
        device_util=0.9,
        power_w=70,
        device_memory=2.1e10,
        sm_clock_mhz=1500,
    )
    meaning = "Three replicas on spot devices, without activity counters."
    return _of("spot", meaning, load, fleet(_service(load, 3, like)))


def _committed() -> Regime:
    placement = Placement("aws", "us-east-1", "p4de.24xlarge", "A100 80GB SXM4", 8, "reserved")
    load = replace(FEW_LONG, dram_active=None, tensor_active=None, sm_clock_mhz=1290)
    paid = Commitment("aws", "us-east-1", "p4de.24xlarge", 2, 20_000_000_000, PAID_UNTIL)
    present = fleet(_service(load, 2, _large(placement=placement)), commitments=(paid,))
    present = replace(present, hosts=tuple(replace(each, paid_until=PAID_UNTIL) for each in present.hosts))
    return _of("committed", "Two replicas on instances that are paid for until a date, used or not.", load, present)


def _owned() -> Regime:
    placement = Placement(accelerator="A100 80GB SXM4", purchase="owned")
    load = replace(FEW_LONG, dram_active=None, tensor_active=None, power_w=600, sm_clock_mhz=1290)
    present = fleet(_service(load, 2, _large(placement=placement)))
    return _of("owned", "Two replicas on servers of one's own: no provider and no instance type.", load, present)


def _owned_decode() -> Regime:
    load = Load(
        0.18, 1600, 400, 0.15, 0.02, 0.9, kv_use=0.04, preemptions=0, dram_active=0.66, tensor_active=0.05,
        device_util=0.97, power_w=560, device_memory=2.7e11, sm_clock_mhz=1980, peak=1.1,
    )  # fmt: skip
    like = _large(placement=Placement(accelerator="H200 SXM", purchase="owned"))
    meaning = "Servers of one's own decode a few long answers at a time: memory is busy, and power far below its limit."
    return _of("owned-decode", meaning, load, fleet(_service(load, 2, like)))


def _owned_prefill() -> Regime:
    load = replace(LONG_PROMPTS, waiting=0.2, power_w=630, sm_clock_mhz=1850)
    like = deployment(
        "Llama-3.1-8B", max_model_len=32_768, placement=Placement(accelerator="H100 SXM5", purchase="owned")
    )
    meaning = "Servers of one's own compute long prompts: products keep them near their power limit."
    return _of("owned-prefill", meaning, load, fleet(_service(load, 2, like)))


def _uncached() -> Regime:
    load = Load(
        6.8, 6000, 60, 0.9, 0.045, 0.92, waiting=0.6, kv_use=0.3, preemptions=0, dram_active=0.22, tensor_active=0.68,
        device_util=0.96, power_w=680, device_memory=7.2e10, peak=1.05,
    )  # fmt: skip
    like = deployment("Llama-3.1-8B", max_model_len=32_768)
    meaning = "Long prompts with short answers, and a prefix cache that is off: every prompt is computed whole."
    return _of("uncached", meaning, load, fleet(_service(load, 2, like)))


def _drafting() -> Regime:
    like = _large(num_speculative_tokens=3)
    load = replace(FEW_LONG, tpot_s=0.016, busy=0.5)
    present = fleet(_service(load, 2, like))
    measured = evidence(**dict(load.evidence.items()), spec_acceptance_rate=0.62, spec_acceptance_length=2.86)
    meaning = "A few long answers at a time from an engine that drafts: most of its drafted tokens are accepted."
    return regime(present, {CHAT: measured}, name="drafting", meaning=meaning)


def _drafting_saturated() -> Regime:
    load = Load(
        16.0, 700, 350, 0.25, 0.033, 0.99, kv_use=0.55, preemptions=0, dram_active=0.42, tensor_active=0.8,
        device_util=1, power_w=690, device_memory=7.3e10, peak=1.2,
    )  # fmt: skip
    like = deployment("Llama-3.1-8B", weight_dtype="fp8", num_speculative_tokens=3)
    measured = evidence(**dict(load.evidence.items()), spec_acceptance_rate=0.12, spec_acceptance_length=1.36)
    meaning = "An engine drafts for some two hundred requests at a time, and few of its drafted tokens are accepted."
    return regime(fleet(_service(load, 2, like)), {CHAT: measured}, name="drafting-saturated", meaning=meaning)


def _one_at_a_time() -> Regime:
    load = Load(0.4, 900, 300, 6.0, 0.008, 0.98, device_util=0.99, power_w=420, device_memory=2.6e10, peak=1.02)
    unknown = dict.fromkeys(("max_num_batched_tokens", "enable_chunked_prefill", "enforce_eager"))
    like = deployment(
        "Llama-3.1-8B", engine="llama.cpp", max_num_seqs=1, gpu_memory_utilization=None, enable_prefix_caching=True,
        **unknown,
    )  # fmt: skip
    known = {name: each for name, each in load.evidence.items() if name not in ENGINE_COUNTS}
    seen = evidence(**known | {"running": series(1.0), "waiting": series(2.4, p95=6, max=9)})
    meaning = "llama.cpp with one slot on a GPU: requests are served one after another while others wait."
    return regime(fleet(_service(load, 1, like)), {CHAT: seen}, name="one-at-a-time", meaning=meaning)


NO_TOKENS = dict.fromkeys(
    ("requests_s", "prompt_tok_s", "computed_tok_s", "generated_tok_s", "busy_generated_tok_s", "preemptions"), 0.0
)


def _stuck() -> Regime:
    still = evidence(
        **NO_TOKENS, busy=0, running=series(3), waiting=series(9, p95=14, max=15), kv_use=0.21, device_util=1.0,
        dram_active=0.0, tensor_active=0.0, power_w=260, device_memory=1.54e11, observed_h=series(24, n=1),
    )  # fmt: skip
    meaning = "A server that answers its health checks and holds its requests, but has given no token for hours."
    present = fleet(service(CHAT, _large(), requests_s=0.0))
    return regime(present, {CHAT: still}, name="stuck", meaning=meaning)


def _asleep() -> Regime:
    still = evidence(
        **NO_TOKENS, busy=0, waiting=0, kv_use=0, asleep=1.0, device_util=0, dram_active=0, tensor_active=0,
        power_w=150, device_memory=2.4e9, observed_h=series(24, n=1),
    )  # fmt: skip
    meaning = "A server that was put to sleep on purpose: its weights left the device and nobody asks for anything."
    present = fleet(service(CHAT, _large(sleep=True), requests_s=0.0))
    return regime(present, {CHAT: still}, name="asleep", meaning=meaning)


FOUR_WEEKS_H = 672.0


def _steady() -> Regime:
    placement = Placement("gcp", "us-central1", "a3-highgpu-8g", "H100 SXM5", 8, "on_demand")
    load = Load(
        1.5, 1600, 400, 0.12, 0.012, 0.85, kv_use=0.1, preemptions=0, dram_active=0.6, tensor_active=0.06,
        device_util=0.95, power_w=3300, device_memory=5.8e11, peak=1.1,
    )  # fmt: skip
    present = fleet(_service(load, 3, deployment("Llama-3.3-70B", tp=8, placement=placement)))
    measured = evidence(**{**dict(load.evidence.items()), "observed_h": series(FOUR_WEEKS_H, n=1)})
    meaning = "Three whole on-demand instances that served in every hour of four weeks."
    return regime(present, {CHAT: measured}, name="steady", meaning=meaning)


@cache
def regimes() -> Mapping[str, Regime]:
    """Return the typical situations by name."""
    made = (
        _idle(), _bandwidth_bound(), _compute_bound(), _kv_bound(), _prefill_heavy(), _saturated(), _moe(),
        _multi_tenant(), _cpu(), _spot(), _committed(), _owned(), _owned_decode(), _owned_prefill(), _uncached(),
        _drafting(), _drafting_saturated(), _one_at_a_time(), _stuck(), _asleep(),
        _steady(),
    )  # fmt: skip
    return {each.name: each for each in made}
