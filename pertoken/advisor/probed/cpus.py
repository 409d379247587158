"""CPUs that a probe measured, so that deployments on them can be forecast."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from pertoken.catalog.market import Market, MeasuredRates
from pertoken.evidence import OperatingPoint
from pertoken.forecast.measured.cpu import cpu_accelerator, measured_rates
from pertoken.state.deployment import Deployment
from pertoken.window.inventory import Inventory


def with_cpus(
    market: Market,
    deployments: Iterable[Deployment],
    there: Inventory,
    probed: Mapping[int, Sequence[OperatingPoint]],
) -> Market:
    """Return the market with the CPUs of probed deployments, by the name of their device; the same without any.

    What probes of several deployments measured on CPUs of one name counts by the dtype of their weights.
    """
    rates: dict[str, dict[str, MeasuredRates]] = defaultdict(dict)
    memory_bytes: dict[str, int] = {}
    for each in deployments:
        held = [there.devices[device_id] for device_id in each.device_ids if device_id in there.devices]
        points = probed.get(each.deployment_id, ())
        if len(held) != 1 or held[0].kind != "cpu" or each.weight_dtype is None:
            continue
        found = measured_rates(each.model, each.weight_dtype, points)
        memory = there.host[held[0].host_id].memory_bytes
        if found is not None and memory:
            rates[held[0].name][each.weight_dtype] = found
            memory_bytes[held[0].name] = memory
    today = datetime.fromtimestamp(there.now_ts, UTC).date()
    devices = [cpu_accelerator(name, of, memory_bytes[name], today) for name, of in rates.items()]
    return market.with_measured(devices) if devices else market
