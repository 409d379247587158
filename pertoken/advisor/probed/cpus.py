"""CPUs measured by a probe, so that deployments on them can be forecast."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from pertoken.advisor.probed.rates import cpu_accelerator, measured_rates
from pertoken.catalog.market import Market, MeasuredRates
from pertoken.evidence import OperatingPoint
from pertoken.state.deployment import Deployment
from pertoken.window.inventory import Inventory


def with_cpus(
    market: Market,
    deployments: Iterable[Deployment],
    inventory: Inventory,
    probed: Mapping[int, Sequence[OperatingPoint]],
) -> Market:
    """Return the market with the CPUs of probed deployments, by device name; unchanged without any.

    Rates from several deployments on CPUs of one name are kept by engine and dtype of the weights.
    """
    rates: dict[str, dict[tuple[str, str], MeasuredRates]] = defaultdict(dict)
    memory_bytes: dict[str, int] = {}
    for deployment in deployments:
        held = [inventory.devices[device_id] for device_id in deployment.device_ids if device_id in inventory.devices]
        points = probed.get(deployment.deployment_id, ())
        if len(held) != 1 or held[0].kind != "cpu" or deployment.weight_dtype is None:
            continue
        measured = measured_rates(deployment.model, deployment.engine, deployment.weight_dtype, points)
        memory = inventory.host[held[0].host_id].memory_bytes
        if measured is not None and memory:
            rates[held[0].name][deployment.engine, deployment.weight_dtype] = measured
            memory_bytes[held[0].name] = memory
    today = datetime.fromtimestamp(inventory.now_ts, UTC).date()
    devices = [cpu_accelerator(name, of, memory_bytes[name], today) for name, of in rates.items()]
    return market.with_measured(devices) if devices else market
