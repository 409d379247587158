"""A small fleet to edit: one service of four replicas on two rented hosts, another on a third, one host idle."""

from dataclasses import replace

from pertoken.provenance import Provenance
from pertoken.state.deployment import Deployment, Model, Placement
from pertoken.state.fleet import Device, Fleet, Host
from pertoken.state.service import Demand, Quantity, Service

RENTED = Placement("aws", "us-east-1", "p5.48xlarge", "H100 SXM5", 2, "on_demand")
LARGE = Model("llama-70b", params_total=70_000_000_000, params_active=70_000_000_000)
SMALL = Model("llama-8b", params_total=8_000_000_000, params_active=8_000_000_000)


def measured(value: float) -> Quantity:
    return Quantity(value, Provenance.COUNTER)


DEPLOYMENT = Deployment(
    LARGE,
    "vllm",
    engine_version="0.11.0",
    tp=1,
    weight_dtype="bf16",
    max_num_seqs=64,
    serves=(("chat", None),),
    placement=RENTED,
)


def fleet() -> Fleet:
    replicas = tuple(
        replace(DEPLOYMENT, deployment_id=100 + at, device_ids=(10 * (1 + at // 2) + at % 2,)) for at in range(4)
    )
    code = replace(DEPLOYMENT, deployment_id=200, model=SMALL, device_ids=(30,), serves=(("code", None),))
    demand = Demand(measured(12.0), (6.0,) * 168, measured(800.0), measured(200.0), measured(0.3))
    hosts = tuple(Host(at, f"host-{at}", (10 * at, 10 * at + 1), RENTED) for at in (1, 2, 3, 4))
    return Fleet(
        services=(Service("chat", replicas, demand), Service("code", (code,), demand)),
        hosts=hosts,
        devices=tuple(
            Device(device_id, f"H100 #{device_id % 10}", host.host_id, "H100 SXM5")
            for host in hosts
            for device_id in host.device_ids
        ),
    )


FLEET = fleet()
CHAT, CODE = FLEET.service("chat"), FLEET.service("code")
NOW = CHAT.deployments[0]
