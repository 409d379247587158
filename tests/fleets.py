"""Deployments, devices and evidence as rules and savings see them, for tests: an H100 host serving a 70B."""

from pertoken.catalog.market import load_market
from pertoken.deployment import Deployment, Fleet, FleetDevice, Model
from pertoken.evidence import Evidence, Series
from pertoken.provenance import Provenance
from pertoken.units import NANO_USD

MARKET = load_market()
H100 = "NVIDIA H100 80GB HBM3"
AWS_H100 = 6_880_000_000
"""Nano-USD per device-hour."""


def model(name: str) -> Model:
    found = MARKET.model(name)
    assert found is not None
    return found


def steady(value: float, provenance: Provenance = Provenance.INTEGRAL) -> Series:
    """A series that never changed."""
    return Series(mean=value, p50=value, p95=value, max=value, n=1440, provenance=provenance)


def evidence(**values: float) -> Evidence:
    return Evidence({name: steady(value) for name, value in values.items()})


def low_batch(**more: float) -> Evidence:
    """Two requests at a time, busy three fifths of the time."""
    return evidence(
        **{
            "generated_tok_s": 40,
            "busy_generated_tok_s": 66,
            "prompt_tok_s": 160,
            "busy": 0.6,
            "running": 2,
            "waiting": 0,
            "kv_use": 0.06,
            "preemptions": 0,
            "prompt_len": 1600,
            "generated_len": 400,
            "tpot_s": 0.028,
            **more,
        }
    )


def device(
    device_id: int, *, held: float = 1, observed_h: float = 24, deployment_ids: tuple[int, ...] = ()
) -> FleetDevice:
    seen = evidence(held=held, observed_h=observed_h)
    return FleetDevice(device_id, H100, "gpu-1", "H100 SXM5", seen, deployment_ids)


LLAMA_70B = Deployment(
    model("Llama-3.3-70B"),
    "vllm",
    accelerator="H100 SXM5",
    tp=2,
    pp=1,
    dp=1,
    weight_dtype="bf16",
    kv_dtype="bf16",
    max_num_seqs=256,
    max_model_len=8192,
    gpu_memory_utilization=0.9,
    deployment_id=7,
    host="gpu-1",
    served_model="Llama-3.3-70B",
    device_ids=(1, 2),
)


def fleet_of(now: Deployment, *, idle: int = 0) -> Fleet:
    """A host whose devices `now` holds, and `idle` more that nothing does."""
    held = tuple(device(each, deployment_ids=(now.deployment_id,)) for each in now.device_ids)
    first = max(now.device_ids, default=0) + 1
    return Fleet((now,), (*held, *(device(first + n, held=0) for n in range(idle))))


def usd(value: float) -> int:
    return round(value * NANO_USD)
