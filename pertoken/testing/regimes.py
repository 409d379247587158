"""Typical situations of a deployment, for tests of rules. They do not depend on any rule.

Their figures are consistent: running requests follow from arrivals and latencies (Little's law), tokens from requests
and lengths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from pertoken.evidence import Epoch, Series
from pertoken.state.deployment import Commitment, Deployment, Model, Placement
from pertoken.state.service import Slo
from pertoken.testing.builders import (
    CHAT,
    Load,
    Regime,
    Week,
    deployment,
    earlier,
    evidence,
    fleet,
    regime,
    regime_of,
    series,
    service,
    service_of,
)

STEADY = Load(
    2.0, 1200, 300, 0.12, 0.013, 0.6, cached_share=0.3, kv_use=0.15, preemptions=0, dram_active=0.45,
    tensor_active=0.25, device_util=0.8, power_w=430, device_memory=7.2e10,
)  # fmt: skip
"""Nothing waits and nothing is full."""


def _upgraded(name: str, meaning: str, *epochs: Epoch, versions: tuple[str, str] = ("0.32.0", "0.32.0")) -> Regime:
    """Return two replicas of an 8B that serve at some load after one or both got another engine version."""
    like = deployment("Llama-3.1-8B", weight_dtype="fp8", enable_prefix_caching=True)
    present = service_of(STEADY, 2, like)
    deployments = tuple(
        replace(deployment, engine_version=version)
        for deployment, version in zip(present.deployments, versions, strict=True)
    )
    measured = evidence(*epochs, **dict(STEADY.evidence.items()))
    return regime(fleet(replace(present, deployments=deployments)), {CHAT: measured}, name=name, meaning=meaning)


def upgraded_dearer() -> Regime:
    """Return both replicas on a newer version that costs more."""
    meaning = "Both replicas got a newer engine a week ago; at like load a token takes a third more device time since."
    return _upgraded("upgraded-dearer", meaning, earlier("0.31.0", (1.28, 1.33, 1.38)))


def upgraded_other_load() -> Regime:
    """Return both replicas on a newer version, under another load than before."""
    meaning = "Both replicas got a newer engine a week ago, and another load since: no hours of the two epochs match."
    return _upgraded("upgraded-other-load", meaning, earlier("0.31.0"))


def upgraded_one() -> Regime:
    """Return one of two replicas on a newer version that costs less."""
    meaning = "One of two replicas got a newer engine a week ago; at like load it takes a fifth less device time since."
    previous_epoch = replace(earlier("0.31.0", (0.77, 0.8, 0.83)), deployment_id=1)
    return _upgraded("upgraded-one", meaning, previous_epoch, versions=("0.32.0", "0.31.0"))


def unmaintained() -> Regime:
    """Return a replica of an engine that gets no new features."""
    load = replace(STEADY, device_util=0.7)
    unknown = dict.fromkeys(("max_num_batched_tokens", "enable_chunked_prefill", "enforce_eager"))
    like = deployment(
        "Llama-3.1-8B", engine="tgi", engine_version="3.3.7", gpu_memory_utilization=None,
        enable_prefix_caching=None, **unknown,
    )  # fmt: skip
    meaning = "A replica of an engine in maintenance mode; its page has no KV gauge and no prefix counters."
    return regime_of("unmaintained", meaning, load, fleet(service_of(load, 1, like)))


PAID_UNTIL = 1_900_000_000
"""End of commitments, epoch seconds."""


FEW_LONG = Load(
    0.12, 1600, 400, 0.15, 0.028, 0.7, kv_use=0.08, preemptions=0, dram_active=0.72, tensor_active=0.05,
    device_util=0.97, power_w=800, device_memory=1.54e11,
)  # fmt: skip
"""A few long outputs at a time: each step reads all weights for two or three requests."""


def _large(**fields: object) -> Deployment:
    return deployment("Llama-3.3-70B", tp=2, **fields)


def _idle() -> Regime:
    load = Load(
        0.002, 900, 250, 0.12, 0.026, 0.013, kv_use=0.01, preemptions=0, dram_active=0.02, tensor_active=0.01,
        device_util=0.02, power_w=170, device_memory=1.54e11, peak=3,
    )  # fmt: skip
    meaning = "Two replicas with hardly any requests, and a host with unused devices."
    return regime_of("idle", meaning, load, fleet(service_of(load, 2, _large()), idle_hosts=1))


def _bandwidth_bound() -> Regime:
    meaning = "Two replicas of a 70B decode two or three requests at a time: every step waits on reading weights."
    return regime_of("bandwidth-bound", meaning, FEW_LONG, fleet(service_of(FEW_LONG, 2, _large())))


def _compute_bound() -> Regime:
    load = Load(
        16.0, 700, 350, 0.25, 0.032, 0.98, kv_use=0.55, preemptions=0, dram_active=0.42, tensor_active=0.66,
        device_util=1, power_w=680, device_memory=7.3e10, throttled=0.3, peak=1.2,
    )  # fmt: skip
    like = deployment("Llama-3.1-8B", weight_dtype="fp8")
    meaning = "An 8B in FP8 decodes about two hundred requests at a time: GEMM limits it, memory bandwidth does not."
    return regime_of("compute-bound", meaning, load, fleet(service_of(load, 2, like)))


def _kv_bound() -> Regime:
    load = Load(
        0.9, 6000, 900, 1.8, 0.034, 1.0, waiting=7, kv_use=0.96, preemptions=40, dram_active=0.6, tensor_active=0.2,
        device_util=1, power_w=1100, device_memory=1.58e11, peak=1.1,
    )  # fmt: skip
    like = deployment("Llama-3.3-70B", tp=2, weight_dtype="fp8", max_model_len=32_768)
    meaning = "Long prompts fill the KV cache: requests wait for it and are preempted, far below the batch limit."
    return regime_of("kv-bound", meaning, load, fleet(service_of(load, 2, like)))


LONG_PROMPTS = Load(
    8.0, 7000, 40, 0.9, 0.045, 0.9, waiting=2.0, cached_share=0.35, kv_use=0.3, preemptions=0, dram_active=0.25,
    tensor_active=0.6, device_util=0.95, power_w=670, device_memory=7.2e10,
)  # fmt: skip
"""Long prompts with short outputs."""


def _prefill_heavy() -> Regime:
    load = LONG_PROMPTS
    like = deployment(
        "Llama-3.1-8B", max_model_len=32_768, enable_prefix_caching=True, attention_backend="generic"
    )  # fmt: skip
    meaning = "Long prompts with short outputs, a third of the tokens cached: nearly all of the time goes into prefill."
    return regime_of("prefill-heavy", meaning, load, fleet(service_of(load, 2, like)))


def _saturated() -> Regime:
    load = Load(
        2.6, 800, 500, 12.0, 0.05, 1.0, waiting=30, kv_use=0.45, preemptions=0, dram_active=0.5, tensor_active=0.3,
        device_util=1, power_w=640, device_memory=7.3e10, aborted=0.12, peak=1.05,
    )  # fmt: skip
    like = deployment("Llama-3.1-8B", max_num_seqs=64)
    meaning = "More requests arrive than are served: the batch limit is reached in every minute and requests queue."
    present = fleet(service_of(load, 2, like))
    # Requests in flight run up to the batch limit; the others wait.
    measured = evidence(**{**dict(load.evidence.items()), "running": series(63.4, p95=64, max=64)})
    return regime(present, {CHAT: measured}, name="saturated", meaning=meaning)


def _moe() -> Regime:
    load = Load(
        1.4, 2500, 600, 0.4, 0.03, 0.95, kv_use=0.2, preemptions=0, dram_active=0.55, tensor_active=0.15,
        device_util=0.99, power_w=3600, device_memory=5.8e11,
    )  # fmt: skip
    like = deployment("Qwen3-235B-A22B", tp=8, ep=8, max_model_len=32_768)
    meaning = "A MoE model on eight devices: few parameters compute a token, all of them stay in memory."
    return regime_of("moe", meaning, load, fleet(service_of(load, 1, like)))


def _multi_tenant() -> Regime:
    busy = Load(
        3.0, 900, 300, 0.1, 0.012, 0.75, kv_use=0.12, preemptions=0, dram_active=0.55, tensor_active=0.12,
        device_util=0.8, power_w=420, device_memory=7.2e10,
    )  # fmt: skip
    quiet = replace(busy, requests_s=0.05, busy=0.1, kv_use=0.02, dram_active=0.06, device_util=0.1, power_w=140)
    first = service_of(busy, 1, deployment(device_ids=(10,)), "acme", isolation="tenant")
    second = service_of(quiet, 1, deployment(device_ids=(11,)), "globex")
    services = [
        replace(service, demand=replace(service.demand, tenants=(service.name,))) for service in (first, second)
    ]
    meaning = "Two customers on one host with two devices: one is busy and isolated, the other one is quiet."
    present = fleet(*services)
    return regime(present, {"acme": busy.evidence, "globex": quiet.evidence}, name="multi-tenant", meaning=meaning)


ENGINE_COUNTS = (
    "ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s", "max_tokens", "step_tokens", "ended_by_stop", "ended_by_length",
    "ended_by_abort", "ended_by_error", "ended_by_repetition",
)  # fmt: skip
"""Series that llama.cpp does not expose."""


def _cpu() -> Regime:
    load = Load(0.02, 300, 200, 2.0, 0.09, 0.35, device_util=0.6, peak=2)
    unknown = dict.fromkeys(("dp", "pp", "tp", "max_num_batched_tokens", "enable_chunked_prefill", "enforce_eager"))
    like = deployment(
        "Llama-3.1-8B", engine="llama.cpp", weight_dtype="int4", max_num_seqs=4, gpu_memory_utilization=None,
        enable_prefix_caching=None, placement=Placement(), **unknown,
    )  # fmt: skip
    seen = {name: series for name, series in load.evidence.items() if name not in ENGINE_COUNTS}
    meaning = "llama.cpp on the CPUs of a host: four slots, no KV gauge, no latency histograms, no accelerator."
    seen["memory_traffic_bytes_s"] = series(9e10, p95=1.2e11, max=1.3e11)
    return regime(fleet(service_of(load, 1, like)), {CHAT: evidence(**seen)}, name="cpu", meaning=meaning)


def _spot() -> Regime:
    like = deployment(placement=Placement("aws", "us-east-1", accelerator="L4", purchase="spot"), weight_dtype="fp8")
    load = Load(
        0.5, 800, 300, 0.3, 0.045, 0.85, kv_use=0.3, preemptions=0, device_util=0.9, power_w=70, device_memory=2.1e10,
        sm_clock_mhz=1500,
    )  # fmt: skip
    meaning = "Three replicas on spot devices, without activity counters."
    return regime_of("spot", meaning, load, fleet(service_of(load, 3, like)))


def _committed() -> Regime:
    placement = Placement("aws", "us-east-1", "p4de.24xlarge", "A100 80GB SXM4", 8, "reserved")
    load = replace(FEW_LONG, dram_active=None, tensor_active=None, sm_clock_mhz=1290)
    paid = Commitment("aws", "us-east-1", "p4de.24xlarge", 2, 20_000_000_000, PAID_UNTIL)
    present = fleet(service_of(load, 2, _large(placement=placement)), commitments=(paid,))
    present = replace(present, hosts=tuple(replace(host, paid_until=PAID_UNTIL) for host in present.hosts))
    return regime_of(
        "committed", "Two replicas on instances that are paid for until a date, used or not.", load, present
    )


def _owned() -> Regime:
    placement = Placement(accelerator="A100 80GB SXM4", purchase="owned")
    load = replace(FEW_LONG, dram_active=None, tensor_active=None, power_w=600, sm_clock_mhz=1290)
    present = fleet(service_of(load, 2, _large(placement=placement)))
    return regime_of("owned", "Two replicas on owned servers: no provider and no instance type.", load, present)


def _owned_decode() -> Regime:
    load = Load(
        0.18, 1600, 400, 0.15, 0.02, 0.9, kv_use=0.04, preemptions=0, dram_active=0.66, tensor_active=0.05,
        device_util=0.97, power_w=560, device_memory=2.7e11, sm_clock_mhz=1980, peak=1.1,
    )  # fmt: skip
    like = _large(placement=Placement(accelerator="H200 SXM", purchase="owned"))
    meaning = "Owned servers decode a few long outputs at a time: memory is busy, and power far below its limit."
    return regime_of("owned-decode", meaning, load, fleet(service_of(load, 2, like)))


def _owned_prefill() -> Regime:
    load = replace(LONG_PROMPTS, waiting=0.2, power_w=630, sm_clock_mhz=1850)
    like = deployment(
        "Llama-3.1-8B", max_model_len=32_768, placement=Placement(accelerator="H100 SXM5", purchase="owned")
    )
    meaning = "Owned servers prefill long prompts: GEMM keeps them near their power limit."
    return regime_of("owned-prefill", meaning, load, fleet(service_of(load, 2, like)))


def _uncached() -> Regime:
    load = Load(
        6.8, 6000, 60, 0.9, 0.045, 0.92, waiting=0.6, kv_use=0.3, preemptions=0, dram_active=0.22, tensor_active=0.68,
        device_util=0.96, power_w=680, device_memory=7.2e10, peak=1.05,
    )  # fmt: skip
    like = deployment("Llama-3.1-8B", max_model_len=32_768)
    meaning = "Long prompts with short outputs, and a disabled prefix cache: every prompt is computed completely."
    return regime_of("uncached", meaning, load, fleet(service_of(load, 2, like)))


def _drafting() -> Regime:
    like = _large(num_speculative_tokens=3)
    load = replace(FEW_LONG, tpot_s=0.016, busy=0.5)
    present = fleet(service_of(load, 2, like))
    measured = evidence(**dict(load.evidence.items()), spec_acceptance_rate=0.62, spec_acceptance_length=2.86)
    meaning = "A few long outputs at a time from an engine that drafts: most of its drafted tokens are accepted."
    return regime(present, {CHAT: measured}, name="drafting", meaning=meaning)


def _drafting_saturated() -> Regime:
    load = Load(
        16.0, 700, 350, 0.25, 0.033, 0.99, kv_use=0.55, preemptions=0, dram_active=0.42, tensor_active=0.8,
        device_util=1, power_w=690, device_memory=7.3e10, peak=1.2,
    )  # fmt: skip
    like = deployment("Llama-3.1-8B", weight_dtype="fp8", num_speculative_tokens=3)
    measured = evidence(**dict(load.evidence.items()), spec_acceptance_rate=0.12, spec_acceptance_length=1.36)
    meaning = "An engine drafts for about two hundred requests at a time, and few of its drafted tokens are accepted."
    return regime(fleet(service_of(load, 2, like)), {CHAT: measured}, name="drafting-saturated", meaning=meaning)


def _one_at_a_time() -> Regime:
    load = Load(0.4, 900, 300, 6.0, 0.008, 0.98, device_util=0.99, power_w=420, device_memory=2.6e10, peak=1.02)
    unknown = dict.fromkeys(("max_num_batched_tokens", "enable_chunked_prefill", "enforce_eager"))
    like = deployment(
        "Llama-3.1-8B", engine="llama.cpp", max_num_seqs=1, max_model_len=65_536, gpu_memory_utilization=None,
        enable_prefix_caching=True, **unknown,
    )  # fmt: skip
    request_series = {name: series for name, series in load.evidence.items() if name not in ENGINE_COUNTS}
    seen = evidence(**request_series | {"running": series(1.0), "waiting": series(2.4, p95=6, max=9)})
    meaning = "llama.cpp with one slot on a GPU: requests are served one after another while others wait."
    return regime(fleet(service_of(load, 1, like)), {CHAT: seen}, name="one-at-a-time", meaning=meaning)


NO_TOKENS = dict.fromkeys(
    ("requests_s", "prompt_tok_s", "computed_tok_s", "generated_tok_s", "busy_generated_tok_s", "preemptions"), 0.0
)


def _stuck() -> Regime:
    measured = evidence(
        **NO_TOKENS, busy=0, running=series(3), waiting=series(9, p95=14, max=15), kv_use=0.21, device_util=1.0,
        dram_active=0.0, tensor_active=0.0, power_w=260, device_memory=1.54e11, observed_h=series(24, n=1), stuck_h=24,
    )  # fmt: skip
    meaning = "A server that passes its health checks and has requests, but has generated no token for hours."
    present = fleet(service(CHAT, _large(), requests_s=0.0))
    return regime(present, {CHAT: measured}, name="stuck", meaning=meaning)


def _asleep() -> Regime:
    measured = evidence(
        **NO_TOKENS, busy=0, waiting=0, kv_use=0, asleep=1.0, device_util=0, dram_active=0, tensor_active=0,
        power_w=150, device_memory=2.4e9, observed_h=series(24, n=1),
    )  # fmt: skip
    meaning = "A server that was put to sleep on purpose: its weights left the device and there are no requests."
    present = fleet(service(CHAT, _large(sleep=True), requests_s=0.0))
    return regime(present, {CHAT: measured}, name="asleep", meaning=meaning)


def _twins() -> Regime:
    load = Load(
        0.1, 700, 250, 0.06, 0.0085, 0.15, kv_use=0.02, preemptions=0, dram_active=0.1, tensor_active=0.01,
        device_util=0.15, power_w=150, device_memory=7.2e10,
    )  # fmt: skip
    services = [service_of(load, 1, deployment("Llama-3.1-8B"), name) for name in ("docs", "code")]
    return regime_of(
        "twins", "Two services of one model, each on its own host and mostly idle.", load, fleet(*services)
    )


OFFICE_HOURS = tuple(7 <= hour % 24 < 19 and hour // 24 < 5 for hour in range(168))


def _nights() -> Regime:
    load = Load(
        0.045, 1600, 400, 0.15, 0.028, 0.27, kv_use=0.06, preemptions=0, dram_active=0.26, tensor_active=0.02,
        device_util=0.3, power_w=400, device_memory=1.54e11, peak=3.4,
    )  # fmt: skip
    per_served_hour = 168 / sum(OFFICE_HOURS)

    def by_hour(flat: Series) -> Series:
        by_hour_of_week = tuple(flat.mean * per_served_hour * served for served in OFFICE_HOURS)
        p95 = max(flat.p95, 1.1 * max(by_hour_of_week))
        wider = replace(flat, p95=p95, max=max(flat.max, p95))
        return replace(wider, distribution=Week(wider, by_hour_of_week))

    rates = ("requests_s", "prompt_tok_s", "computed_tok_s", "generated_tok_s", "busy", "dram_active", "device_util")
    seen = {name: by_hour(series) if name in rates else series for name, series in load.evidence.items()}
    served = service_of(load, 2, _large())
    hours = tuple(2 * load.requests_s * per_served_hour * served for served in OFFICE_HOURS)
    served = replace(served, demand=replace(served.demand, requests_by_hour_of_week=hours))
    meaning = "Two replicas of a 70B that serve an office: no requests at night or at the weekend."
    return regime(fleet(served), {CHAT: evidence(**seen)}, name="nights", meaning=meaning)


def _many_ranks() -> Regime:
    placement = Placement("aws", "us-east-1", accelerator="L40S", purchase="on_demand")
    load = Load(
        1.0, 800, 300, 0.2, 0.012, 0.85, kv_use=0.02, preemptions=0, device_util=0.93, power_w=640,
        device_memory=1.66e11, sm_clock_mhz=2400,
    )  # fmt: skip
    like = deployment("Llama-3.1-8B", tp=4, placement=placement)
    meaning = "An 8B on four devices without NVLink in each of two replicas: the devices wait for each other."
    return regime_of("many-ranks", meaning, load, fleet(service_of(load, 2, like), link="pcie_host"))


def _interfering() -> Regime:
    load = Load(
        2.0, 4000, 300, 0.8, 0.045, 1.0, waiting=1.2, kv_use=0.2, preemptions=0, dram_active=0.4, tensor_active=0.4,
        device_util=1, power_w=2400, device_memory=3.1e11, peak=1.1,
    )  # fmt: skip
    slo = Slo(ttft_p95_ms=1000, tpot_p95_ms=40)
    like = deployment("Llama-3.3-70B", tp=4, weight_dtype="fp8", max_model_len=32_768)
    meaning = "Four large replicas with long prompts that delay decoding: both latency objectives are missed."
    return regime_of("interfering", meaning, load, fleet(service_of(load, 4, like, slo=slo)))


def _unbounded() -> Regime:
    load = Load(
        1.2, 900, 900, 0.2, 0.016, 0.92, kv_use=0.16, preemptions=0, dram_active=0.6, tensor_active=0.16,
        device_util=0.95, power_w=460, device_memory=7.2e10, peak=1.2,
    )  # fmt: skip
    measured = evidence(
        **dict(load.evidence.items())
        | {
            "generated_len": series(900, p50=420, p95=2400, max=8000, n=500_000),
            "max_tokens": series(32_768, n=500_000),
            "ended_by_stop": series(0.976),
            "ended_by_length": series(0.004),
        }
    )
    present = fleet(service_of(load, 2, deployment(max_model_len=65_536)))
    meaning = "Requests allow tens of thousands of tokens, most outputs are short, and a few are very long."
    return regime(present, {CHAT: measured}, name="unbounded", meaning=meaning)


def _overcommitted() -> Regime:
    load = Load(
        0.55, 4000, 700, 3.0, 0.105, 1.0, waiting=1.2, kv_use=0.97, preemptions=500, dram_active=0.62,
        tensor_active=0.18, device_util=1, power_w=1100, device_memory=1.58e11, peak=1.03,
    )  # fmt: skip
    like = _large(weight_dtype="fp8")
    present = fleet(service_of(load, 2, like, slo=Slo(tpot_p95_ms=80)))
    meaning = "More requests run than the KV cache holds: one of four is preempted, and TPOT misses its objective."
    return regime_of("overcommitted", meaning, load, present)


FOUR_WEEKS_H = 672.0


def _steady() -> Regime:
    placement = Placement("gcp", "us-central1", "a3-highgpu-8g", "H100 SXM5", 8, "on_demand")
    load = Load(
        1.5, 1600, 400, 0.12, 0.012, 0.85, kv_use=0.1, preemptions=0, dram_active=0.6, tensor_active=0.06,
        device_util=0.95, power_w=3300, device_memory=5.8e11, peak=1.1,
    )  # fmt: skip
    present = fleet(service_of(load, 3, deployment("Llama-3.3-70B", tp=8, placement=placement)))
    measured = evidence(**{**dict(load.evidence.items()), "observed_h": series(FOUR_WEEKS_H, n=1)})
    meaning = "Three whole on-demand instances that served in every hour of four weeks."
    return regime(present, {CHAT: measured}, name="steady", meaning=meaning)


def _embedding() -> Regime:
    load = Load(
        5.0, 400, 0, 0.15, 0.0, 0.5, kv_use=0, preemptions=0, dram_active=0.1, tensor_active=0.05, device_util=0.3,
        power_w=110, device_memory=2.1e10, sm_clock_mhz=1700,
    )  # fmt: skip
    params = 335_000_000
    bge = Model("BAAI/bge-large-en-v1.5", params, params, n_layers=24, n_kv_heads=16, head_dim=64)
    placement = Placement("aws", "us-east-1", "g5.16xlarge", "A10G", 1, "on_demand")
    served = service(
        CHAT, deployment(bge, weight_dtype="fp16", max_model_len=512, placement=placement), requests_s=7.5,
        prompt_len=400.0, output_len=None,
    )  # fmt: skip
    seen = {name: values for name, values in load.evidence.items() if name not in ("tpot_s", "itl_s")}
    meaning = "An encoder that embeds texts: requests all week, no generated token, and a large host for one GPU."
    return regime(fleet(served), {CHAT: evidence(**seen)}, name="embedding", meaning=meaning)


@cache
def regimes() -> Mapping[str, Regime]:
    """Return the typical situations by name."""
    all_regimes = (
        _idle(), _bandwidth_bound(), _compute_bound(), _kv_bound(), _prefill_heavy(), _saturated(), _moe(),
        _multi_tenant(), _cpu(), _spot(), _committed(), _owned(), _owned_decode(), _owned_prefill(), _uncached(),
        _drafting(), _drafting_saturated(), _one_at_a_time(), _stuck(), _asleep(), _twins(), _nights(), _many_ranks(),
        _interfering(), _unbounded(), _overcommitted(), _steady(), upgraded_dearer(), upgraded_other_load(),
        upgraded_one(), unmaintained(), _embedding(),
    )  # fmt: skip
    return {regime.name: regime for regime in all_regimes}
