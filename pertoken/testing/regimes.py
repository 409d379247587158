"""Typical situations of a deployment, for tests of rules. They do not depend on any rule.

`regimes.toml` has them in order, with the figures of one service with equal replicas; the others are made here. Figures
are consistent: running requests follow from arrivals and latencies (Little's law), tokens from requests and lengths.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files

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
    series,
    service,
    service_of,
)

STEADY = Load(
    2.0, 1200, 300, 0.12, 0.013, 0.6, cached_share=0.3, kv_use=0.15, preemptions=0, dram_active=0.45,
    tensor_active=0.25, device_util=0.8, power_w=430, device_memory=7.2e10,
)  # fmt: skip
"""Nothing waits and nothing is full."""


def _upgraded(*epochs: Epoch, versions: tuple[str, str] = ("0.32.0", "0.32.0")) -> Regime:
    """Return two replicas of an 8B that serve at some load after one or both got another engine version."""
    like = deployment("Llama-3.1-8B", weight_dtype="fp8", enable_prefix_caching=True)
    present = service_of(STEADY, 2, like)
    deployments = tuple(
        replace(deployment, engine_version=version)
        for deployment, version in zip(present.deployments, versions, strict=True)
    )
    measured = evidence(*epochs, **dict(STEADY.evidence.items()))
    return regime(fleet(replace(present, deployments=deployments)), {CHAT: measured})


def _large(**fields: object) -> Deployment:
    return deployment("Llama-3.3-70B", tp=2, **fields)


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
    present = fleet(*services)
    return regime(present, {"acme": busy.evidence, "globex": quiet.evidence})


PAID_UNTIL = 1_900_000_000
"""End of commitments, epoch seconds."""


def _committed() -> Regime:
    placement = Placement("aws", "us-east-1", "p4de.24xlarge", "A100 80GB SXM4", 8, "reserved")
    load = Load(
        0.12, 1600, 400, 0.15, 0.028, 0.7, kv_use=0.08, preemptions=0, device_util=0.97, power_w=800,
        device_memory=1.54e11, sm_clock_mhz=1290,
    )  # fmt: skip
    paid = Commitment("aws", "us-east-1", "p4de.24xlarge", 2, 20_000_000_000, PAID_UNTIL)
    present = fleet(service_of(load, 2, _large(placement=placement)), commitments=(paid,))
    present = replace(present, hosts=tuple(replace(host, paid_until=PAID_UNTIL) for host in present.hosts))
    return regime(present, {CHAT: load.evidence})


NO_TOKENS = dict.fromkeys(
    ("requests_s", "prompt_tok_s", "computed_tok_s", "generated_tok_s", "busy_generated_tok_s", "preemptions"), 0.0
)


def _stuck() -> Regime:
    measured = evidence(
        **NO_TOKENS, busy=0, running=series(3), waiting=series(9, p95=14, max=15), kv_use=0.21, device_util=1.0,
        dram_active=0.0, tensor_active=0.0, power_w=260, device_memory=1.54e11, observed_h=series(24, n=1), stuck_h=24,
    )  # fmt: skip
    present = fleet(service(CHAT, _large(), requests_s=0.0))
    return regime(present, {CHAT: measured})


def _asleep() -> Regime:
    measured = evidence(
        **NO_TOKENS, busy=0, waiting=0, kv_use=0, asleep=1.0, device_util=0, dram_active=0, tensor_active=0,
        power_w=150, device_memory=2.4e9, observed_h=series(24, n=1),
    )  # fmt: skip
    present = fleet(service(CHAT, _large(sleep=True), requests_s=0.0))
    return regime(present, {CHAT: measured})


def _twins() -> Regime:
    load = Load(
        0.1, 700, 250, 0.06, 0.0085, 0.15, kv_use=0.02, preemptions=0, dram_active=0.1, tensor_active=0.01,
        device_util=0.15, power_w=150, device_memory=7.2e10,
    )  # fmt: skip
    services = [service_of(load, 1, deployment("Llama-3.1-8B"), name) for name in ("docs", "code")]
    return regime(fleet(*services), {name: load.evidence for name in ("docs", "code")})


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
    return regime(fleet(served), {CHAT: evidence(**seen)})


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
    return regime(fleet(served), {CHAT: evidence(**seen)})


_MADE: Mapping[str, Callable[[], Regime]] = {
    "multi-tenant": _multi_tenant,
    "committed": _committed,
    "stuck": _stuck,
    "asleep": _asleep,
    "twins": _twins,
    "nights": _nights,
    "upgraded-dearer": lambda: _upgraded(earlier("0.31.0", (1.28, 1.33, 1.38))),
    "upgraded-other-load": lambda: _upgraded(earlier("0.31.0")),
    "upgraded-one": lambda: _upgraded(
        replace(earlier("0.31.0", (0.77, 0.8, 0.83)), deployment_id=1), versions=("0.32.0", "0.31.0")
    ),
    "embedding": _embedding,
}
"""Situations of which the table has no figures."""

ENGINE_COUNTS = (
    "ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s", "max_tokens", "step_tokens", "ended_by_stop", "ended_by_length",
    "ended_by_abort", "ended_by_error", "ended_by_repetition",
)  # fmt: skip
"""Series that llama.cpp does not expose."""


@cache
def regimes() -> Mapping[str, Regime]:
    """Return the typical situations by name."""
    rows = tomllib.loads(files("pertoken.testing").joinpath("regimes.toml").read_text(encoding="utf-8"))
    by_name: dict[str, Regime] = {}
    for name, row in rows.items():
        if name in _MADE:
            by_name[name] = replace(_MADE[name](), name=name, meaning=row["meaning"])
            continue
        load = Load(**row["load"], **row["devices"])
        fields = row["deployment"] | dict.fromkeys(row.get("unknown", ()))
        fields |= {"placement": Placement(**row["placement"])} if "placement" in row else {}
        like, objectives = deployment(**fields), Slo(**row.get("slo", {}))
        present = fleet(service_of(load, row["replicas"], like, slo=objectives), **row.get("fleet", {}))
        uncounted = ENGINE_COUNTS if like.engine == "llama.cpp" else ()
        measured = {key: values for key, values in load.evidence.items() if key not in uncounted}
        measured |= {key: series(**figures) for key, figures in row.get("series", {}).items()}
        by_name[name] = regime(present, {CHAT: evidence(**measured)}, name=name, meaning=row["meaning"])
    return by_name
