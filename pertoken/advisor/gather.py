"""Evidence for rules: what was measured on each deployment and device over the window, from roll-ups."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from pertoken.catalog.market import Market
from pertoken.costs import engine_counts, ranks
from pertoken.costs.prices import PriceBook, Priced
from pertoken.costs.quantiles import histogram, quantile
from pertoken.costs.report import price_book
from pertoken.deployment import KNOBS, Deployment, Fleet, FleetDevice, FleetPart, Model
from pertoken.evidence import SERIES, Evidence, Series
from pertoken.provenance import Provenance, worst
from pertoken.store import read, sums
from pertoken.store.answers import Rows
from pertoken.store.open import Store
from pertoken.store.segments import Segment, segments
from pertoken.units import HOUR_MS, SHARE


@dataclass(frozen=True, slots=True)
class Gathered:
    """Everything one advice run looks at."""

    fleet: Fleet
    seen: Mapping[int, Evidence]
    """By deployment id."""
    price_nano_usd_per_hour: Mapping[int, int | None]
    """By device id, in force now."""
    names: Mapping[int, str]
    """Devices and deployments as people call them."""


def gather(store: Store, market: Market, window_s: int, now_ts: int) -> Gathered:
    """Read the last `window_s` seconds. Evidence is of each deployment's present epoch only.

    Raises StoreError if the database cannot be read.
    """
    prices = price_book(store, now_ts)
    with store.read() as connection:
        return _Gatherer(connection, market, prices, now_ts - window_s, now_ts).gathered()


class _Gatherer:
    """One reading of the window."""

    def __init__(self, connection: Connection, market: Market, prices: PriceBook, start: int, now_ts: int) -> None:
        self.market, self.prices, self.now = market, prices, now_ts
        minutes = Segment(60, start // 60 * 60, now_ts + 60)
        self.devices = read.devices(connection, start)
        self.rows = {row.device_id: row for row in self.devices}
        epochs = read.epochs(connection, start)
        led = ranks.heads(epochs)
        self.epochs = {row.deployment_id: row for row in epochs if row.epoch_id not in led}
        self.epoch_devices = ranks.devices(read.by_epoch(read.epoch_devices(connection, start)), epochs, led)
        self.device_minutes = _by(read.device_buckets(connection, minutes), "device_id")
        self.host_minutes = _by(read.host_buckets(connection, minutes), "host_id")
        self.share_minutes = read.share_buckets(connection, minutes)
        self.minutes = _by(read.deployment_buckets(connection, minutes), "epoch_id")
        self.counts: dict[int, dict[int, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
        """Epoch -> minute -> growth by metric."""
        for row in read.engine_counter_buckets(connection, minutes):
            self.counts[row.epoch_id][row.ts][row.metric] = row.delta
        self.histograms: dict[tuple[int, str], list[tuple[str, str]]] = defaultdict(list)
        for epoch_id, metric, upper_bounds, counts in sums.histograms(connection, segments(start, now_ts)):
            self.histograms[epoch_id, metric].append((upper_bounds, counts))
        self.missing = read.missing(connection)
        self.holders_known_since = read.holders_known_since(connection)

    def gathered(self) -> Gathered:
        replicas = Counter(row.served_model for row in self.epochs.values())
        price = {row.device_id: self._price(row) for row in self.devices}
        deployments = [self._deployment(row, replicas, price) for row in self.epochs.values()]
        seen = {row.deployment_id: self._evidence(row) for row in self.epochs.values()}
        names = {row.device_id: f"{row.name} #{row.slot}" if row.slot is not None else row.name for row in self.devices}
        names |= {each.deployment_id: each.served_model for each in deployments}
        # A MIG device cannot be given back or moved on its own: its GPU can.
        whole = {row.device_id: self._device(row) for row in self.devices if row.parent_id is None}
        parts = tuple(
            FleetPart(row.device_id, names[row.device_id], whole[row.parent_id], row.part_1e6)
            for row in self.devices
            if row.parent_id in whole
        )
        return Gathered(Fleet(tuple(deployments), tuple(whole.values()), parts=parts), seen, price, names)

    def _price(self, row: Any) -> int | None:
        """Of a part of a device its share of that device's price."""
        payer = row if row.parent_id is None else self.rows.get(row.parent_id)
        per_hour = self.prices.rate(Priced(payer.kind, payer.name, payer.uuid), self.now) if payer else None
        share_1e6 = SHARE if row.parent_id is None else row.part_1e6
        return None if per_hour is None or share_1e6 is None else per_hour * share_1e6 // SHARE

    def _deployment(self, row: Any, replicas: Mapping[str, int], price: Mapping[int, int | None]) -> Deployment:
        knobs = {name: value for name, value in json.loads(row.knobs).items() if name in KNOBS}
        device_ids = self.epoch_devices.get(row.epoch_id, ())
        # What is known of an accelerator does not hold for a slice of one.
        held = [device for device in self.devices if device.device_id in device_ids]
        names = {device.name for device in held if device.parent_id is None}
        accelerator = self.market.accelerator(names.pop()) if len(names) == 1 else None
        costs = [price.get(each) for each in device_ids]
        return Deployment(
            model=self._model(row),
            engine=row.engine_kind,
            accelerator=accelerator.name if accelerator else None,
            **knobs,
            deployment_id=row.deployment_id,
            epoch_id=row.epoch_id,
            host=row.host_name,
            served_model=row.served_model,
            engine_version=row.engine_version,
            replicas=replicas[row.served_model],
            device_ids=device_ids,
            usd_per_hour_nano=sum(each for each in costs if each is not None) if costs and None not in costs else None,
        )

    def _model(self, row: Any) -> Model:
        """Its shape by its own files and engine, completed by what the catalog knows of its name."""
        found = self.market.model(row.model_path or "") or self.market.model(row.served_model)
        facts = json.loads(row.model_facts) if row.model_facts else {}
        model = found or Model(row.served_model)
        return replace(model, **{name: value for name, value in facts.items() if hasattr(model, name)})

    def _device(self, row: Any) -> FleetDevice:
        minutes = self.device_minutes.get(row.device_id, [])
        # Before that no share of it was stored, whoever held it.
        known = [m for m in minutes if m.ts >= self.holders_known_since.get(row.device_id, m.ts)]
        held: dict[int, int] = defaultdict(int)
        for share in self.share_minutes:
            if share.device_id == row.device_id:
                held[share.ts] += share.held_ns
        series = {
            "held": _series(
                [held[m.ts] / 1e6 / m.duration_ms for m in known if m.duration_ms],
                [m.duration_ms for m in known if m.duration_ms],
                Provenance.REPORTED,
            )
            if not self._hides_processes(row.device_id)
            else None,
            "device_util": _gauge(minutes, "util_1e4", 1e4),
            "sm_active": _gauge(minutes, "sm_active_1e4", 1e4),
            "sm_occupancy": _gauge(minutes, "sm_occupancy_1e4", 1e4),
            "tensor_active": _gauge(minutes, "tensor_active_1e4", 1e4),
            "dram_active": _gauge(minutes, "dram_active_1e4", 1e4),
            "power_w": _gauge(minutes, "power_mw", 1e3),
            "device_memory": _gauge(minutes, "memory_used_bytes", 1),
            "observed_h": _single(sum(m.observed_ms for m in known) / HOUR_MS, Provenance.COUNTER),
        }
        accelerator = self.market.accelerator(row.name)
        return FleetDevice(
            device_id=row.device_id,
            name=f"{row.name} #{row.slot}" if row.slot is not None else row.name,
            host=row.host_name,
            accelerator=accelerator.name if accelerator else None,
            seen=Evidence(_known(series), self._remedies(row.device_id)),
            deployment_ids=tuple(
                each.deployment_id
                for each in self.epochs.values()
                if row.device_id in self._whole(self.epoch_devices.get(each.epoch_id, ()))
            ),
        )

    def _hides_processes(self, device_id: int) -> bool:
        """Whether nobody can say who holds it: that none was seen means nothing then."""
        return any(gap.owner_id == device_id and gap.metric == "processes" for gap in self.missing)

    def _whole(self, device_ids: Sequence[int]) -> set[int]:
        """These devices, and for parts what they are parts of."""
        return {self.rows[each].parent_id or each for each in device_ids if each in self.rows}

    def _evidence(self, row: Any) -> Evidence:
        minutes = _with_busy([m for m in self.minutes.get(row.epoch_id, []) if m.observed_ms])
        busy = [m for m in minutes if m.busy_ms]
        origin = Provenance(max((m.busy_provenance or 0 for m in minutes), default=0))
        devices = self.epoch_devices.get(row.epoch_id, ())
        series = {
            "prompt_tok_s": _rate(minutes, "prompt_tokens", "duration_ms"),
            "computed_tok_s": _rate(minutes, "computed_tokens", "duration_ms"),
            "generated_tok_s": _rate(minutes, "generated_tokens", "duration_ms"),
            "busy_generated_tok_s": _quotients(busy, "generated_tokens", "busy_ms", 1000, origin),
            "cached_share": _ratio(minutes, "cached_tokens", "prompt_tokens", Provenance.COUNTER),
            "requests_s": _rate(minutes, "requests_finished", "duration_ms"),
            "busy": _ratio(minutes, "busy_ms", "observed_ms", origin),
            "running": _while_busy(minutes, "running_1e2", 1e2),
            "waiting": _gauge(minutes, "waiting_1e2", 1e2),
            "kv_use": _while_busy(minutes, "kv_use_1e4", 1e4, most=1.0),
            "preemptions": _rate(minutes, "preemptions", "duration_ms", per_ms=HOUR_MS),
            "device_util": self._devices(devices, "util_1e4", 1e4, mean=True),
            "sm_active": self._devices(devices, "sm_active_1e4", 1e4, mean=True),
            "tensor_active": self._devices(devices, "tensor_active_1e4", 1e4, mean=True),
            "sm_occupancy": self._devices(devices, "sm_occupancy_1e4", 1e4, mean=True),
            "dram_active": self._devices(devices, "dram_active_1e4", 1e4, mean=True),
            "nvlink_bytes_s": self._nvlink(devices),
            "memory_traffic_bytes_s": _rate(
                self.host_minutes.get(row.host_id, []), "memory_traffic_bytes", "duration_ms"
            ),
            "power_w": self._devices(devices, "power_mw", 1e3),
            "device_memory": self._devices(devices, "memory_used_bytes", 1),
            "observed_h": _single(sum(m.observed_ms for m in minutes) / HOUR_MS, Provenance.COUNTER),
        }
        series |= self._engine_counts(row, minutes, origin)
        for metric in ("prompt_len", "generated_len", "ttft_s", "tpot_s", "e2e_s"):
            series[metric] = _histogram(histogram(self.histograms.get((row.epoch_id, metric), ())))
        # A minute's tokens that are counted when a request ends are partly those of minutes before.
        late = {gap.metric for gap in self.missing if gap.owner_id == row.engine_id and gap.status == "late"}
        for name, words in _COUNTED_BY.items():
            found = series[name]
            if found is not None and late & words:
                series[name] = replace(found, provenance=worst((found.provenance, Provenance.REPORTED)))
        if not minutes:
            return Evidence({}, dict.fromkeys(SERIES, "recording has only begun: let the agent run some minutes"))
        return Evidence(_known(series), self._remedies(row.engine_id, *devices))

    def _engine_counts(self, row: Any, minutes: Sequence[Any], origin: Provenance) -> dict[str, Series | None]:
        """Ratios of what its engine counts beside tokens, of each minute in which it counted."""
        now, counts = self._deployment(row, Counter(), {}), self.counts.get(row.epoch_id, {})
        accelerator = self.market.accelerator(now.accelerator)
        busy = {m.ts: m.busy_ms for m in minutes}

        def series(of: Callable[[engine_counts.Counts, int | None], float | None], weight: str | None) -> Series | None:
            found = [
                (value, minute.get(weight, 0) if weight else busy[ts] or 0)
                for ts, minute in counts.items()
                if ts in busy and (value := of(minute, busy[ts])) is not None
            ]
            return _series([value for value, _ in found], [each for _, each in found], Provenance.COUNTER)

        e = engine_counts
        return {
            "prefix_hit_rate": series(lambda counts, _: e.prefix_hit_rate(counts), "prefix_queries"),
            "spec_acceptance_rate": series(lambda counts, _: e.spec_acceptance_rate(counts), "spec_draft_tokens"),
            "spec_acceptance_length": series(lambda counts, _: e.spec_acceptance_length(counts), "spec_drafts"),
            # The engine's own estimate over the catalog's peak.
            "mfu": _listed(
                series(lambda counts, ms: e.mfu(counts, ms, now.dp, accelerator, now.weight_dtype), None), origin
            ),
            "mbu": _listed(series(lambda counts, ms: e.mbu(counts, ms, now.dp, accelerator), None), origin),
        }

    def _devices(self, ids: Sequence[int], name: str, scale: float, *, mean: bool = False) -> Series | None:
        """Sum (or mean) over the deployment's devices of each minute in which all of them were read."""
        values: dict[int, list[float]] = defaultdict(list)
        for device_id in ids:
            for m in self.device_minutes.get(device_id, []):
                if getattr(m, f"{name}_n"):
                    values[m.ts].append(getattr(m, f"{name}_sum") / getattr(m, f"{name}_n") / scale)
        full = [sum(each) / (len(each) if mean else 1) for each in values.values() if len(each) == len(ids)]
        return _series(full, [1] * len(full), Provenance.REPORTED)

    def _nvlink(self, ids: Sequence[int]) -> Series | None:
        """Received and sent together, in each minute in which all devices told both."""
        values: dict[int, list[float]] = defaultdict(list)
        for device_id in ids:
            for m in self.device_minutes.get(device_id, []):
                if m.nvlink_rx_mib_s_n and m.nvlink_tx_mib_s_n:
                    mib_s = m.nvlink_rx_mib_s_sum / m.nvlink_rx_mib_s_n + m.nvlink_tx_mib_s_sum / m.nvlink_tx_mib_s_n
                    values[m.ts].append(mib_s * 2**20)
        full = [sum(each) / len(each) for each in values.values() if len(each) == len(ids)]
        return _series(full, [1] * len(full), Provenance.REPORTED)

    def _remedies(self, *owner_ids: int) -> dict[str, str]:
        """What would switch a missing series on, where the agent noted it."""
        return {
            _SERIES_OF[gap.metric]: f"{gap.reason}. {gap.remedy}" if gap.remedy else gap.reason
            for gap in self.missing
            if gap.owner_id in owner_ids and gap.metric in _SERIES_OF
        }


_COUNTED_BY = {
    "prompt_tok_s": {"prompt_tokens"},
    "computed_tok_s": {"prompt_tokens", "computed_tokens"},
    "generated_tok_s": {"generated_tokens"},
    "busy_generated_tok_s": {"generated_tokens"},
}
"""Rates -> the words whose counting late makes them late."""
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
    "memory_traffic_bytes": "memory_traffic_bytes_s",
}


def _by(rows: Rows, key: str) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = defaultdict(list)
    for row in rows:
        found[getattr(row, key)].append(row)
    return found


def _known(series: Mapping[str, Series | None]) -> dict[str, Series]:
    return {name: each for name, each in series.items() if each is not None}


def _series(values: Sequence[float], weights: Sequence[float], provenance: Provenance) -> Series | None:
    """Weighted mean and weighted quantiles of minutes; None without any."""
    total = sum(weights)
    if not values or total <= 0:
        return None
    ordered = sorted(zip(values, weights, strict=True))
    mean = sum(value * weight for value, weight in ordered) / total

    def at(q: float) -> float:
        reached = 0.0
        for value, weight in ordered:
            reached += weight
            if reached >= q * total:
                return value
        return ordered[-1][0]

    return Series(mean, at(0.5), at(0.95), ordered[-1][0], len(values), provenance)


def _listed(series: Series | None, busy: Provenance) -> Series | None:
    return None if series is None else replace(series, provenance=worst((Provenance.LISTED, busy)))


def _single(value: float, provenance: Provenance) -> Series:
    return Series(value, value, value, value, 1, provenance)


def _quotients(minutes: Sequence[Any], above: str, below: str, scale: float, provenance: Provenance) -> Series | None:
    pairs = [
        (getattr(m, above) / getattr(m, below) * scale, getattr(m, below))
        for m in minutes
        if getattr(m, above) is not None and getattr(m, below)
    ]
    return _series([value for value, _ in pairs], [weight for _, weight in pairs], provenance)


def _rate(minutes: Sequence[Any], tokens: str, time: str, per_ms: float = 1000) -> Series | None:
    return _quotients(minutes, tokens, time, per_ms, Provenance.COUNTER)


def _ratio(minutes: Sequence[Any], above: str, below: str, provenance: Provenance) -> Series | None:
    return _quotients(minutes, above, below, 1, provenance)


def _gauge(minutes: Sequence[Any], name: str, scale: float) -> Series | None:
    return _quotients(minutes, f"{name}_sum", f"{name}_n", 1 / scale, Provenance.REPORTED)


def _with_busy(minutes: Sequence[Any]) -> list[Any]:
    """Minutes in which the engine worked but exposes no time, as busy for at most all of them.

    They stay unknown where no minute's busy time is known.
    """
    if all(m.busy_ms is None for m in minutes):
        return list(minutes)
    return [m._replace(busy_ms=m.observed_ms) if m.busy_ms is None and m.busy_provenance else m for m in minutes]


def _while_busy(minutes: Sequence[Any], name: str, scale: float, most: float = math.inf) -> Series | None:
    """A gauge while the engine works: its mean over each minute in which it did, over the share of them it was busy.

    The share is of all of them, since an engine may count its time later than the gauge shows it.
    """
    active = [m for m in minutes if m.busy_ms or getattr(m, f"{name}_sum")]
    busy_ms = sum(m.busy_ms or 0 for m in active)
    mean = _gauge(active, name, scale)
    if mean is None or not busy_ms:
        return None
    factor = max(1.0, sum(m.observed_ms for m in active) / busy_ms)
    values = {each: min(most, getattr(mean, each) * factor) for each in ("mean", "p50", "p95", "max")}
    return replace(mean, **values)


def _histogram(buckets: Mapping[tuple[float, ...], Sequence[int]]) -> Series | None:
    p50, p95, most = (quantile(buckets, share) for share in (0.5, 0.95, 1.0))
    if p50 is None or p95 is None or most is None:
        return None
    n, total = 0, 0.0
    at: dict[float, float] = defaultdict(float)
    for bounds, counts in buckets.items():
        edges = (0.0, *bounds, math.inf)
        for lower, upper, count in zip(edges, edges[1:], counts, strict=False):
            # The middle of the bucket; the open last one counts as its lower edge.
            middle = lower if upper == math.inf else (lower + upper) / 2
            n, total = n + count, total + count * middle
            at[upper] += count
    return Series(total / n, p50, p95, most, n, Provenance.COUNTER, tuple(sorted(at.items())))
