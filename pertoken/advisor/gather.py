"""One reading of a window for an advice run: the fleet as it is, and what was measured on each part of it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from pertoken.advisor import series
from pertoken.advisor.commands import Addresses, DeviceAddress
from pertoken.advisor.demand import demand
from pertoken.advisor.fleet import Inventory, device_name, fleet, service_name
from pertoken.catalog.market import Market
from pertoken.config import Settings
from pertoken.costs import engine_counts, ranks
from pertoken.costs.prices import PriceBook, Priced
from pertoken.costs.quantiles import histogram
from pertoken.costs.report import price_book
from pertoken.evidence import SERIES, Evidence, Series
from pertoken.provenance import Provenance, worst
from pertoken.savings.context import Context, EnergyPrice
from pertoken.state.demand import Demand
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.service import Slo
from pertoken.store import read, sums
from pertoken.store.answers import Rows
from pertoken.store.open import Store
from pertoken.store.segments import Segment, segments
from pertoken.units import HOUR_MS, NANO_USD, SHARE

STOPPED_S = 900
"""A deployment without a row for so long, while its host has newer ones, does not run any more."""
LENGTHS = ("prompt_len", "generated_len")


@dataclass(frozen=True, slots=True)
class Gathered:
    """Everything one advice run looks at."""

    fleet: Fleet
    context: Context
    hosts: Mapping[int, Evidence]
    """By host id: of its accelerators together."""
    names: Mapping[int, str]
    """Devices, hosts and deployments as people call them, by id."""
    addresses: Addresses


def gather(store: Store, market: Market, window_s: int, now_ts: int, settings: Settings | None = None) -> Gathered:
    """Read the last `window_s` seconds. Evidence is of each deployment's present epoch only.

    Raises StoreError if the database cannot be read.
    """
    prices = price_book(store, now_ts)
    with store.read() as connection:
        reading = _Reading(connection, market, prices, now_ts - window_s, now_ts)
    return reading.gathered(settings or Settings())


class _Reading:
    """The rows of one window."""

    def __init__(self, connection: Connection, market: Market, prices: PriceBook, start: int, now_ts: int) -> None:
        self.market, self.prices, self.now_ts = market, prices, now_ts
        minutes = Segment(60, start // 60 * 60, now_ts + 60)
        devices, epochs = read.devices(connection, start), read.epochs(connection, start)
        self.rows = {row.device_id: row for row in devices}
        led = ranks.heads(epochs)
        self.epochs = [row for row in epochs if row.epoch_id not in led]
        self.there = Inventory(
            devices,
            _running(self.epochs, read.hosts(connection)),
            ranks.devices(read.by_epoch(read.epoch_devices(connection, start)), epochs, led),
        )
        self.device_minutes = _by(read.device_buckets(connection, minutes), "device_id")
        self.host_minutes = _by(read.host_buckets(connection, minutes), "host_id")
        self.held_ns: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        """Device -> minute -> time it was held."""
        for share in read.share_buckets(connection, minutes):
            self.held_ns[share.device_id][share.ts] += share.held_ns
        served = _by(read.deployment_buckets(connection, minutes), "epoch_id")
        self.minutes = {epoch_id: series.with_busy(rows) for epoch_id, rows in served.items()}
        self.counts: dict[int, dict[int, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
        """Epoch -> minute -> delta by metric."""
        for row in read.engine_counter_buckets(connection, minutes):
            self.counts[row.epoch_id][row.ts][row.metric] = row.delta
        self.histograms: dict[tuple[int, str], list[tuple[str, str]]] = defaultdict(list)
        for epoch_id, metric, upper_bounds, counts in sums.histograms(connection, segments(start, now_ts)):
            self.histograms[epoch_id, metric].append((upper_bounds, counts))
        self.missing = _by(read.missing(connection), "owner_id")
        self.holders_known_since = read.holders_known_since(connection)

    def gathered(self, settings: Settings) -> Gathered:
        services: dict[str, list[Any]] = defaultdict(list)
        for row in self.epochs:
            services[service_name(row.served_model, settings)].append(row)
        demands = {name: self._demand(rows) for name, rows in services.items()}
        there = fleet(self.there, demands, self.market, settings, self.now_ts)
        present = {row.deployment_id: row for row in self.there.epochs}
        alone = {each.deployment_id: self._evidence([each], present) for each in there.deployments}
        context = Context(
            market=self.market,
            now_ts=self.now_ts,
            deployments=alone,
            services={
                each.name: alone[each.deployments[0].deployment_id]
                if len(each.deployments) == 1
                else self._evidence(each.deployments, present)
                for each in there.services
            },
            devices={device_id: self._device_evidence((device_id,)) for device_id in self.rows},
            nano_usd_per_hour={device_id: self._price(row) for device_id, row in self.rows.items()},
            slo=Slo(settings.slo_ttft_p50_ms, settings.slo_ttft_ms, settings.slo_tpot_p50_ms, settings.slo_tpot_ms),
            energy=None
            if settings.energy_usd_per_kwh is None
            else EnergyPrice(round(settings.energy_usd_per_kwh * NANO_USD), settings.energy_pue),
        )
        devices = {device_id: device_name(row) for device_id, row in self.rows.items()}
        return Gathered(
            fleet=there,
            context=context,
            hosts={host.host_id: self._device_evidence(host.device_ids) for host in there.hosts},
            names=devices
            | {host.host_id: host.name for host in there.hosts}
            | {each.deployment_id: each.name for each in there.deployments},
            addresses=Addresses(
                {row.deployment_id: row.host_name for row in self.there.epochs},
                {device_id: DeviceAddress(row.uuid, row.vendor) for device_id, row in self.rows.items()},
            ),
        )

    def _price(self, row: Any) -> int | None:
        """Return nano-USD per hour of a device; of a partition its share of that device's price."""
        payer = row if row.parent_id is None else self.rows.get(row.parent_id)
        per_hour = self.prices.rate(Priced(payer.kind, payer.name, payer.uuid), self.now_ts) if payer else None
        share_1e6 = SHARE if row.parent_id is None else row.part_1e6
        return None if per_hour is None or share_1e6 is None else per_hour * share_1e6 // SHARE

    def _demand(self, rows: Sequence[Any]) -> Demand:
        """Return what was asked of all epochs of a service, those that ended in the window included."""
        lengths = {name: self._histogram(rows, name) for name in LENGTHS}
        return demand([self.minutes.get(row.epoch_id, ()) for row in rows], lengths, self._late(rows) != set())

    def _evidence(self, deployments: Sequence[Deployment], present: Mapping[int, Any]) -> Evidence:
        """Return what was measured on one deployment, or on several added up minute by minute."""
        rows = [present[each.deployment_id] for each in deployments]
        minutes = series.together([self.minutes.get(row.epoch_id, ()) for row in rows])
        if not minutes:
            return Evidence({}, dict.fromkeys(SERIES, "recording has only begun: let the agent run some minutes"))
        busy, origin = series.busy(minutes), series.busy_provenance(minutes)
        device_ids = tuple(dict.fromkeys(device_id for each in deployments for device_id in each.device_ids))
        host_ids = tuple(dict.fromkeys(row.host_id for row in rows))
        found: dict[str, Series | None] = {
            **self._device_series(device_ids),
            "prompt_tok_s": series.rate(minutes, "prompt_tokens"),
            "computed_tok_s": series.rate(minutes, "computed_tokens"),
            "generated_tok_s": series.rate(minutes, "generated_tokens"),
            "busy_generated_tok_s": series.ratio(busy, "generated_tokens", "busy_ms", origin, 1000),
            "cached_share": series.ratio(minutes, "cached_tokens", "prompt_tokens"),
            "requests_s": series.rate(minutes, "requests_finished"),
            "busy": series.ratio(minutes, "busy_ms", "observed_ms", origin),
            "running": series.while_busy(minutes, series.gauge, "running_1e2", 1e2),
            "waiting": series.gauge(minutes, "waiting_1e2", 1e2),
            "kv_use": series.while_busy(minutes, series.mean_gauge, "kv_use_1e4", 1e4, largest=1.0),
            "preemptions": series.rate(minutes, "preemptions", per_ms=HOUR_MS),
            "memory_traffic_bytes_s": self._memory_traffic(host_ids),
            "observed_h": series.single(
                sum(min(row.observed_ms for row in minute) for minute in minutes) / HOUR_MS, Provenance.COUNTER
            ),
            **self._engine_counts(deployments, rows, minutes, origin),
            **{name: self._histogram(rows, name) for name in (*LENGTHS, "ttft_s", "tpot_s", "e2e_s")},
        }
        for name in self._late(rows):
            if (late := found.get(name)) is not None:
                found[name] = replace(late, provenance=worst((late.provenance, Provenance.REPORTED)))
        return Evidence(_known(found), self._remedies(*(row.engine_id for row in rows), *device_ids, *host_ids))

    def _late(self, rows: Iterable[Any]) -> set[str]:
        """Return the rates of which a minute's tokens, counted when a request ends, are partly of minutes before."""
        late = {gap.metric for row in rows for gap in self.missing.get(row.engine_id, ()) if gap.status == "late"}
        return {name for name, metrics in _COUNTED_BY.items() if late & metrics}

    def _histogram(self, rows: Iterable[Any], metric: str) -> Series | None:
        return series.histogram(
            histogram(part for row in rows for part in self.histograms.get((row.epoch_id, metric), ()))
        )

    def _engine_counts(
        self, deployments: Sequence[Deployment], rows: Sequence[Any], minutes: series.Minutes, busy: Provenance
    ) -> dict[str, Series | None]:
        """Return ratios of what the engines count beside tokens, of each minute in which they counted."""
        counts = [self.counts.get(row.epoch_id, {}) for row in rows]
        e = engine_counts
        found = {
            "prefix_hit_rate": series.of_counts(counts, minutes, lambda c, _: e.prefix_hit_rate(c), "prefix_queries"),
            "spec_acceptance_rate": series.of_counts(
                counts, minutes, lambda c, _: e.spec_acceptance_rate(c), "spec_draft_tokens"
            ),
            "spec_acceptance_length": series.of_counts(
                counts, minutes, lambda c, _: e.spec_acceptance_length(c), "spec_drafts"
            ),
        }
        if len(deployments) == 1:  # estimates for one GPU: these do not add up over deployments
            now, accelerator = deployments[0], self.market.accelerator(deployments[0].accelerator)
            estimates = {
                "mfu": series.of_counts(
                    counts, minutes, lambda c, ms: e.mfu(c, ms, now.dp, accelerator, now.weight_dtype), None
                ),
                "mbu": series.of_counts(counts, minutes, lambda c, ms: e.mbu(c, ms, now.dp, accelerator), None),
            }
            # The engine's own estimate over the catalog's peak.
            listed_origin = worst((Provenance.LISTED, busy))
            listed = {name: each and replace(each, provenance=listed_origin) for name, each in estimates.items()}
            found |= listed
        return found

    def _device_evidence(self, device_ids: Sequence[int]) -> Evidence:
        observed = [sum(row.observed_ms for row in self._with_holders(each)) / HOUR_MS for each in device_ids]
        hidden = any(gap.metric == "processes" for each in device_ids for gap in self.missing.get(each, ()))
        found = {
            **self._device_series(device_ids),
            # Nobody knows who holds it where processes cannot be read: that none was seen means nothing then.
            "held": None if hidden else self._held(device_ids),
            "observed_h": series.single(min(observed, default=0.0), Provenance.COUNTER),
        }
        return Evidence(_known(found), self._remedies(*device_ids))

    def _held(self, device_ids: Sequence[int]) -> Series | None:
        """Return the share of its observed time that some process held a device, a mean over several."""
        rows = [row for each in device_ids for row in self._with_holders(each) if row.duration_ms]
        return series.weighted(
            [self.held_ns[row.device_id][row.ts] / 1e6 / row.duration_ms for row in rows],
            [row.duration_ms for row in rows],
            Provenance.REPORTED,
        )

    def _with_holders(self, device_id: int) -> list[Any]:
        """Return the minutes of a device since its holders are known: before, no share of it was stored."""
        since = self.holders_known_since.get(device_id)
        return [row for row in self.device_minutes.get(device_id, ()) if since is None or row.ts >= since]

    def _device_series(self, device_ids: Sequence[int]) -> dict[str, Series | None]:
        """Return the series of some devices: activity as a mean over them, power and memory as a sum."""
        minutes = [self.device_minutes.get(each, []) for each in device_ids]

        def of(name: str, scale: float, *, mean: bool = False) -> Series | None:
            def value(row: Any) -> float | None:
                n = getattr(row, f"{name}_n")
                return getattr(row, f"{name}_sum") / n / scale if n else None

            return series.of_devices(minutes, value, mean=mean)

        activity = ("util_1e4", "sm_active_1e4", "tensor_active_1e4", "sm_occupancy_1e4", "dram_active_1e4")
        found = {_SERIES_OF[name]: of(name, 1e4, mean=True) for name in activity}
        return found | {
            "nvlink_bytes_s": series.of_devices(minutes, _nvlink, mean=True),
            "power_w": of("power_mw", 1e3),
            "device_memory": of("memory_used_bytes", 1),
        }

    def _memory_traffic(self, host_ids: Sequence[int]) -> Series | None:
        """Return the memory traffic of the CPUs of all hosts together."""
        return series.rate(series.together([self.host_minutes.get(each, []) for each in host_ids]), _TRAFFIC)

    def _remedies(self, *owner_ids: int) -> dict[str, str]:
        """Return what would switch a missing series on, where the agent stored it."""
        return {
            _SERIES_OF[gap.metric]: f"{gap.reason}. {gap.remedy}" if gap.remedy else gap.reason
            for owner_id in owner_ids
            for gap in self.missing.get(owner_id, ())
            if gap.metric in _SERIES_OF
        }


_COUNTED_BY = {
    "prompt_tok_s": {"prompt_tokens"},
    "computed_tok_s": {"prompt_tokens", "computed_tokens"},
    "generated_tok_s": {"generated_tokens"},
    "busy_generated_tok_s": {"generated_tokens"},
}
"""Rates -> the engine metrics whose late counting makes them late."""
_TRAFFIC = "memory_traffic_bytes"
_SERIES_OF = {
    "processes": "held",
    "busy": "busy",
    "power_mw": "power_w",
    "util_1e4": "device_util",
    "memory_used_bytes": "device_memory",
    "sm_active_1e4": "sm_active",
    "tensor_active_1e4": "tensor_active",
    "sm_occupancy_1e4": "sm_occupancy",
    "dram_active_1e4": "dram_active",
    "nvlink_rx_mib_s": "nvlink_bytes_s",
    _TRAFFIC: "memory_traffic_bytes_s",
}


def _running(epochs: Iterable[Any], hosts: Rows) -> list[Any]:
    """Return the newest epoch of each deployment that still runs, as far as its host knows."""
    newest = {row.host_id: row.newest_ts for row in hosts}
    present = {row.deployment_id: row for row in epochs}
    return [
        row
        for row in present.values()
        if row.newest_ts is None or (newest.get(row.host_id) or 0) - row.newest_ts <= STOPPED_S
    ]


def _nvlink(row: Any) -> float | None:
    """Return bytes/s received and sent together, where a device reported both."""
    if not row.nvlink_rx_mib_s_n or not row.nvlink_tx_mib_s_n:
        return None
    mib_s = row.nvlink_rx_mib_s_sum / row.nvlink_rx_mib_s_n + row.nvlink_tx_mib_s_sum / row.nvlink_tx_mib_s_n
    return float(mib_s * 2**20)


def _by(rows: Rows, key: str) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = defaultdict(list)
    for row in rows:
        found[getattr(row, key)].append(row)
    return found


def _known(series: Mapping[str, Series | None]) -> dict[str, Series]:
    return {name: each for name, each in series.items() if each is not None}
