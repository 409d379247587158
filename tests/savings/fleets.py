"""Fleets of real catalog models with their evidence, for pricing."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from typing import Any

from pertoken.catalog.offers import Offer
from pertoken.evidence import Evidence, Series
from pertoken.provenance import Provenance
from pertoken.savings.context import Context
from pertoken.savings.estimate import Estimate, estimate
from pertoken.state.deployment import Deployment, Placement
from pertoken.state.fleet import Device, Fleet, Host
from pertoken.state.service import Demand, Quantity, Service
from pertoken.units import HOURS_PER_MONTH, NANO_USD
from tests.deployments import MARKET, model

AWS_H100 = 6_880_000_000
"""Nano-USD per device-hour."""
NOW_TS = 1_790_000_000
AWS = Placement("aws", "us-east-1", None, "H100 SXM5", None, "on_demand")
PAIR = Offer(
    "aws", "p5.48xlarge", "H100 SXM5", 2, "us-east-1", "on_demand", AWS_H100, date(2026, 9, 1), "a list of pairs"
)
PAIRED = MARKET.having(
    [
        PAIR,
        replace(PAIR, purchase="spot", nano_usd_per_device_hour=2_500_000_000),
        replace(PAIR, region="us-east-2", nano_usd_per_device_hour=4_290_000_000),
        replace(
            PAIR, instance_type="p5.4xlarge", n_devices=1, region="us-east-2", nano_usd_per_device_hour=4_290_000_000
        ),
    ]
)
"""The catalog with instances of two devices, as these fleets run on."""


def usd_month(hourly: float) -> int:
    return round(hourly * NANO_USD) * HOURS_PER_MONTH


def steady(value: float) -> Series:
    return Series(mean=value, p50=value, p95=value, max=value, n=1440, provenance=Provenance.INTEGRAL)


def evidence(**values: float) -> Evidence:
    return Evidence({name: steady(value) for name, value in values.items()})


def low_batch(**more: float) -> Evidence:
    """Two requests at a time, busy three fifths of the time."""
    known = {
        "generated_tok_s": 40,
        "busy_generated_tok_s": 66,
        "prompt_tok_s": 160,
        "requests_s": 0.1,
        "busy": 0.6,
        "running": 2,
        "waiting": 0,
        "kv_use": 0.06,
        "preemptions": 0,
        "prompt_len": 1600,
        "generated_len": 400,
        "tpot_s": 0.028,
        "power_w": 800,
    }
    return evidence(**{**known, **more})


def slow_host(times: float) -> Evidence:
    """Return the evidence of a host that takes `times` as long for everything, with as many fewer requests."""
    return low_batch(
        generated_tok_s=40 / times,
        busy_generated_tok_s=66 / times,
        prompt_tok_s=160 / times,
        requests_s=0.1 / times,
        tpot_s=0.028 * times,
    )


def summed(seen: Evidence, times: int) -> Evidence:
    """Return the evidence of a service of a number of alike replicas."""
    scaled = ("generated_tok_s", "prompt_tok_s", "requests_s", "running", "waiting")
    return evidence(**{name: series.mean * (times if name in scaled else 1) for name, series in seen.items()})


def llama(number: int, devices: tuple[int, ...], service: str = "chat", **knobs: Any) -> Deployment:
    known = Deployment(
        model("Llama-3.3-70B"),
        "vllm",
        tp=len(devices),
        pp=1,
        dp=1,
        weight_dtype="bf16",
        kv_dtype="bf16",
        max_num_seqs=256,
        max_model_len=8192,
        gpu_memory_utilization=0.9,
        deployment_id=number,
        served_model="Llama-3.3-70B",
        device_ids=devices,
        placement=AWS,
        serves=((service, None),),
    )
    return replace(known, **knobs)


def host(number: int, devices: int = 2, placement: Placement = AWS, **fields: Any) -> Host:
    ids = tuple(10 * number + at for at in range(devices))
    return Host(number, f"gpu-{number}", ids, placement, **fields)


def fleet_of(services: Iterable[Service], hosts: Iterable[Host]) -> Fleet:
    known = tuple(hosts)
    devices = tuple(
        Device(device_id, f"H100 #{device_id % 10}", one.host_id, one.placement.accelerator)
        for one in known
        for device_id in one.device_ids
    )
    return Fleet(tuple(services), known, devices)


def replicas(count: int, **fields: Any) -> Fleet:
    """One service of replicas, each on a host of two devices of its own."""
    demand = Demand(Quantity(0.1 * count, Provenance.COUNTER), (0.05 * count,) * 168)
    hosts = [host(host_id) for host_id in range(1, count + 1)]
    deployments = tuple(llama(host.host_id, host.device_ids) for host in hosts)
    return fleet_of([Service("chat", deployments, demand, **fields)], hosts)


def context(fleet: Fleet, seen: Evidence | None = None, price: int | None = AWS_H100, **fields: Any) -> Context:
    one = seen or low_batch()
    return Context(
        market=fields.pop("market", PAIRED),
        now_ts=fields.pop("now_ts", NOW_TS),
        deployments={deployment.deployment_id: one for deployment in fleet.deployments},
        services={service.name: summed(one, len(service.deployments)) for service in fleet.services},
        nano_usd_per_hour={device.device_id: price for device in fleet.devices},
        allowed_regions=fields.pop("allowed_regions", frozenset({"us-east-2"})),
        **fields,
    )


ONE, FOUR = replicas(1), replicas(4)
DAY_S = 86_400


def priced(fleet: Fleet, proposal: object, **fields: object) -> Estimate:
    return estimate(fleet, fleet.edit(proposal), context(fleet, **fields))  # type: ignore[arg-type]


def chat(fleet: Fleet) -> Service:
    return fleet.service("chat")


def owned() -> Fleet:
    return fleet_of([Service("chat", (llama(1, (10, 11)),))], [host(1, placement=replace(AWS, purchase="owned"))])
