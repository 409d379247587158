"""Load and cost of each host of a report, computed when its line is first read."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from pertoken.costs.bill import Bill
from pertoken.costs.report.deployment_line import SloOf, served, spark
from pertoken.costs.report.lines import HostLine, HostUse, Later
from pertoken.costs.served import together
from pertoken.window.columns import newest, rate, total


class HostUses:
    """Devices and deployments of a priced window by host."""

    def __init__(
        self, priced: Bill, current: Sequence[Any], fresh: frozenset[int], slo_of: SloOf | None = None
    ) -> None:
        """`current`: newest epoch of each deployment; `fresh`: hosts that report."""
        self._priced, self._current, self._fresh, self._slo_of = priced, current, fresh, slo_of

    def use(self, line: HostLine) -> HostUse:
        """Return the line of one host."""
        devices, rows = self._devices.get(line.host_id, ()), self._served.get(line.host_id, ())
        recent = self._priced.recent
        gpus = [recent.devices.get(row.device_id) for row in devices if row.kind != "cpu"]
        payers = [row for row in devices if row.parent_id is None]
        money = self._priced.money
        bill = money.bill_of([row.device_id for row in payers])
        now = line.host_id in self._fresh
        used = together([served(self._priced, row.deployment_id, self._slo_of) for row in rows])
        return HostUse(
            host=line,
            accelerators=sum(row.kind != "cpu" for row in payers),
            util=_mean([newest(row, "device_util") for row in gpus]),
            sm_active=_mean([newest(row, "sm_active") for row in gpus]),
            dram_active=_mean([newest(row, "dram_active") for row in gpus]),
            power_w=total([newest(recent.devices.get(row.device_id), "power_w") for row in devices]),
            generated_tok_s_now=total([rate(recent.of(row.deployment_id), "generated_tokens") for row in rows])
            if now
            else None,
            nano_usd_per_hour=self._per_hour(payers) if now else None,
            nano_usd_per_mtok=used.price("blended"),
            served=used,
            spark=Later(partial(self._spark, rows)),
            bill=bill,
            models=tuple(dict.fromkeys(row.served_model for row in rows)),
        )

    def _spark(self, rows: Sequence[Any]) -> Sequence[float | None]:
        return _added([spark(self._priced, self._own(row.deployment_id)) for row in rows])

    def _own(self, deployment_id: int) -> list[int]:
        return [row.epoch_id for row in self._priced.inventory.epochs_of[deployment_id]]

    def _per_hour(self, payers: Sequence[Any]) -> int | None:
        prices = [self._priced.price_of.get(row.device_id) for row in payers]
        known = [price.nano_usd_per_device_hour for price in prices if price is not None]
        rates = [nano_usd for nano_usd in known if nano_usd is not None]
        return sum(rates) if rates else None

    @cached_property
    def _devices(self) -> Mapping[int, Sequence[Any]]:
        devices: dict[int, list[Any]] = defaultdict(list)
        for row in self._priced.inventory.devices.values():
            devices[row.host_id].append(row)
        return devices

    @cached_property
    def _served(self) -> Mapping[int, Sequence[Any]]:
        served: dict[int, list[Any]] = defaultdict(list)
        for row in self._current:
            served[row.host_id].append(row)
        return served


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _added(sparks: Sequence[Sequence[float | None]]) -> tuple[float | None, ...]:
    return tuple(total(values) for values in zip(*sparks, strict=True))
