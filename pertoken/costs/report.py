"""What the fleet costs and does over a window: telemetry and prices put together into plain lines."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from pertoken.catalog.market import load_market
from pertoken.costs import ranks
from pertoken.costs.detected import detected_prices
from pertoken.costs.engine_counts import by_epoch, engine_counts
from pertoken.costs.hints import hints
from pertoken.costs.lines import (
    STALE_TICKS,
    DeploymentLine,
    DeviceLine,
    EventLine,
    FleetReport,
    HostLine,
    MissingMetric,
)
from pertoken.costs.money import allocations
from pertoken.costs.prices import Price, PriceBook, Priced
from pertoken.costs.quantiles import quantile
from pertoken.store import book, read
from pertoken.store.open import Store
from pertoken.store.telemetry import OTHER
from pertoken.units import MTOK, SHARE

NOW_S = 60
"""Live figures are over the newest minute or so: whole minute buckets that end within it."""
_SLICES = (60, 120, 300, 600, 900, 1800, 3600, 10_800, 21_600, 86_400)
_MOST_SLICES = 30


def prices_set(store: Store) -> tuple[Price, ...]:
    """All prices people set; none where there is no advice yet."""
    if store.advice is None:
        return ()
    with store.read("advice") as connection:
        return tuple(
            Price(row.selector, row.nano_usd_per_device_hour, row.from_ts, row.set_ts, row.set_by, row.note)
            for row in book.prices(connection)
        )


def price_book(store: Store, now_ts: int) -> PriceBook:
    """All prices people set, and list prices of detected instances for devices without one."""
    with store.read() as connection:
        devices = read.devices(connection, 0)
    today = datetime.fromtimestamp(now_ts, UTC).date()
    return PriceBook(prices_set(store), detected_prices(devices, load_market(), today))


def fleet_report(store: Store, window_s: int, now_ts: int) -> FleetReport:
    """Everything the fleet screen and the summary show of the last `window_s` seconds.

    Raises StoreError if the database cannot be read.
    """
    prices = price_book(store, now_ts)
    with store.read() as connection:
        return _Reporter(connection, str(store.place), prices, window_s, now_ts).report()


class _Reporter:
    """One report: what was read once, and the lines made of it."""

    def __init__(self, connection: Connection, source: str, prices: PriceBook, window_s: int, now_ts: int) -> None:
        self.source, self.prices, self.window_s, self.now = source, prices, window_s, now_ts
        start = now_ts - window_s
        self.hosts = read.hosts(connection)
        self.devices = read.devices(connection, start)
        self.priced = {row.device_id: Priced(row.kind, row.name, row.uuid, row.parent_id) for row in self.devices}
        self.device_names = {row.device_id: _device_name(row) for row in self.devices}
        self.epochs = read.epochs(connection, start)
        self.led = ranks.heads(self.epochs)
        """Epochs of ranks that follow -> the deployment that leads them."""
        self.of_epoch = {row.epoch_id: row.deployment_id for row in self.epochs if row.epoch_id not in self.led}
        self.current = {row.deployment_id: row for row in self.epochs if row.epoch_id in self.of_epoch}
        self.epoch_devices = ranks.devices(read.epoch_devices(connection), self.epochs, self.led)
        self.segments = read.segments(start, now_ts, prices.changes())
        self.money = allocations(connection, self.segments, self.priced, prices, self.led, self.of_epoch)
        self.newest = read.newest(connection)
        last = max(self.newest.values(), default=now_ts)
        recent = (last - 1) // 60 * 60 + 60 - 2 * NOW_S, last + 1
        self.recent_devices = {row.device_id: row for row in read.device_totals(connection, *recent)}
        self.recent_hosts = {row.host_id: row for row in read.host_totals(connection, *recent)}
        self.recent = self._by_deployment(read.deployment_totals(connection, read.Segment(60, *recent)))
        self.recent_shares = read.share_buckets(connection, read.Segment(60, *recent))
        totals = [row for each in self.segments for row in read.deployment_totals(connection, each)]
        self.totals = self._by_deployment(totals)
        self.busy_ms = {
            epoch: sum(row.busy_ms or 0 for row in totals if row.epoch_id == epoch) for epoch in self.of_epoch
        }
        self.histograms: dict[tuple[int, str], dict[tuple[float, ...], list[int]]] = defaultdict(dict)
        for each in self.segments:
            self._add_histograms(read.histograms(connection, each))
        self.counts = by_epoch(connection, self.segments)
        self.slice_s = next((s for s in _SLICES if window_s <= s * _MOST_SLICES), _SLICES[-1])
        self.slices = read.generated_by_slice(connection, start // self.slice_s * self.slice_s, now_ts, self.slice_s)
        self.agents = {row.host_id: read.newest_agent_sample(connection, row.host_id) for row in self.hosts}
        self.gaps = read.missing(connection)
        self.lost = {gap.owner_id: gap.since_ts for gap in self.gaps if gap.metric == "device"}
        """Devices that answer nothing -> since when."""
        self.hidden = {gap.owner_id for gap in self.gaps if gap.metric == "processes"}
        """Devices of which nobody can say who holds them."""
        self.events = read.events(connection, start)

    def report(self) -> FleetReport:
        deployments = tuple(self._deployment(row) for row in self.current.values())
        devices = tuple(self._device(row) for row in self.devices)
        hosts = tuple(self._host(row) for row in self.hosts)
        resolved = {row.engine_id for row in self.epochs if row.epoch_id in self.led}
        told = [row for row in self.gaps if (row.metric, row.owner_id in resolved) != ("rendezvous", True)]
        missing = tuple(self._missing(row) for row in told if row.status != "late")
        # A host that stopped reporting has no "now": its lines keep their last figures, with their age.
        fresh = {line.name for line in hosts if line.age_s is not None and line.age_s <= STALE_TICKS * line.interval_s}
        rates = [each.generated_tok_s_now for each in deployments if each.host in fresh]
        watts = [each.power_w for each in devices if each.host in fresh]
        unpriced = tuple(self.device_names[each] for each in sorted(self.money.unpriced_devices))
        return FleetReport(
            now_ts=self.now,
            window_s=self.window_s,
            source=self.source,
            hosts=hosts,
            devices=devices,
            deployments=deployments,
            bill=self.money.bill(),
            unpriced_devices=unpriced,
            nano_usd_per_mtok=per_mtok_together(deployments),
            generated_tok_s_now=_total(rates),
            power_w=_total(watts),
            missing=missing,
            events=tuple(EventLine(row.last_ts, row.kind, row.message, row.count) for row in self.events),
            hints=hints(hosts, devices, deployments, missing),
        )

    def _by_deployment(self, rows: read.Rows) -> dict[int, dict[str, Any]]:
        """Sums over the epochs of each deployment; a column that is NULL in all of them stays None."""
        found: dict[int, dict[str, Any]] = defaultdict(dict)
        for row in rows:
            deployment = self.of_epoch.get(row.epoch_id)
            if deployment is None:
                continue
            sums = found[deployment]
            for name, value in row._mapping.items():
                if name not in ("epoch_id", "ts") and value is not None:
                    sums[name] = sums.get(name, 0) + value
        return found

    def _add_histograms(self, rows: read.Rows) -> None:
        for row in rows:
            deployment = self.of_epoch.get(row.epoch_id)
            if deployment is None:
                continue
            bounds = tuple(float(bound) for bound in row.upper_bounds.split(",") if bound)
            counts = self.histograms[deployment, row.metric].setdefault(bounds, [0] * (len(bounds) + 1))
            counts[row.bucket] += row.total

    def _host(self, row: Any) -> HostLine:
        recent = self.recent_hosts.get(row.host_id)
        agent = self.agents[row.host_id]
        return HostLine(
            host_id=row.host_id,
            name=row.name,
            cpu_util=_mean(recent, "cpu_util_1e4", 1e4),
            load=_mean(recent, "load_1e2", 1e2),
            memory_used_bytes=_whole(_mean(recent, "memory_used_bytes", 1)),
            memory_bytes=row.memory_bytes,
            agent_cpu_share=agent.cpu_ms / agent.duration_ms
            if agent and agent.cpu_ms is not None and agent.duration_ms
            else None,
            agent_rss_bytes=agent.rss_bytes if agent else None,
            age_s=self._age(row.host_id),
            interval_s=row.interval_s,
            memory_traffic_bytes_s=_rate(recent._mapping, "memory_traffic_bytes") if recent else None,
        )

    def _device(self, row: Any) -> DeviceLine:
        recent = self.recent_devices.get(row.device_id)
        # A MIG device costs its part of what its GPU costs.
        payer = self.priced.get(row.device_id if row.parent_id is None else row.parent_id)
        part_1e6 = SHARE if row.parent_id is None else row.part_1e6
        price = self.prices.at(payer, self.now) if payer and part_1e6 is not None else None
        held_by = {share.epoch_id for share in self.recent_shares if share.device_id == row.device_id}
        holders = [self.of_epoch.get(each, self.led.get(each)) for each in sorted(held_by)]
        names = [self.current[each].served_model for each in holders if each in self.current]
        return DeviceLine(
            device_id=row.device_id,
            host=row.host_name,
            kind=row.kind,
            name=row.name,
            slot=row.slot,
            util=_mean(recent, "util_1e4", 1e4),
            power_w=_mean(recent, "power_mw", 1e3),
            memory_used_bytes=_whole(_mean(recent, "memory_used_bytes", 1)),
            memory_bytes=row.memory_bytes,
            nano_usd_per_hour=price.nano_usd_per_device_hour * part_1e6 // SHARE if price else None,
            listed_price=price.note if price and price.listed else None,
            held_by=None
            if row.device_id in self.hidden and not held_by
            else tuple([*dict.fromkeys(names), *(["other processes"] if OTHER in held_by else [])]),
            age_s=self.now - self.lost.get(row.device_id, row.newest_ts),
            sm_active=_mean(recent, "sm_active_1e4", 1e4),
            sm_occupancy=_mean(recent, "sm_occupancy_1e4", 1e4),
            tensor_active=_mean(recent, "tensor_active_1e4", 1e4),
            dram_active=_mean(recent, "dram_active_1e4", 1e4),
            nvlink_rx_bytes_s=_mean(recent, "nvlink_rx_mib_s", 2**-20),
            nvlink_tx_bytes_s=_mean(recent, "nvlink_tx_mib_s", 2**-20),
            sm_clock_mhz=_mean(recent, "sm_clock_mhz", 1),
            temperature_c=_mean(recent, "temperature_c", 1),
            power_source=row.power_source,
            part_of=self.device_names.get(row.parent_id) if row.parent_id is not None else None,
        )

    def _deployment(self, row: Any) -> DeploymentLine:
        totals, recent = self.totals.get(row.deployment_id, {}), self.recent.get(row.deployment_id, {})
        own = [epoch for epoch, deployment in self.of_epoch.items() if deployment == row.deployment_id]
        holding = [*own, *(epoch for epoch, head in self.led.items() if head == row.deployment_id)]
        held = self.epoch_devices.get(row.epoch_id, ())
        nano = None
        if any(each in self.money.by_epoch for each in holding) and not self.money.unpriced_epochs.intersection(
            holding
        ):
            nano = sum(self.money.by_epoch.get(epoch, 0) for epoch in holding)
        prompt, generated = totals.get("prompt_tokens"), totals.get("generated_tokens")
        tokens = prompt + generated if prompt is not None and generated is not None else None
        observed = totals.get("observed_ms", 0)
        since = max(self.now - self.window_s, min(e.start_ts for e in self.epochs if e.epoch_id in own))
        of_engine = [gap for gap in self.gaps if gap.owner_id == row.engine_id]
        fault = next((gap for gap in of_engine if gap.metric in ("metrics_page", "rendezvous")), None)
        return DeploymentLine(
            deployment_id=row.deployment_id,
            model=row.served_model,
            engine=row.engine_kind,
            host=row.host_name,
            devices=tuple(name for each, name in self.device_names.items() if each in held),
            generated_tok_s_now=_rate(recent, "generated_tokens"),
            prompt_tok_s_now=_rate(recent, "prompt_tokens"),
            running_now=_ratio(recent.get("running_1e2_sum"), recent.get("running_1e2_n"), 1e2),
            waiting_now=_ratio(recent.get("waiting_1e2_sum"), recent.get("waiting_1e2_n"), 1e2),
            generated_tokens=generated,
            prompt_tokens=prompt,
            cached_tokens=totals.get("cached_tokens"),
            busy=_ratio(totals.get("busy_ms"), totals.get("observed_ms"), 1),
            power_w=self._power(holding),
            nano_usd=nano,
            nano_usd_per_mtok=_per_mtok(nano, tokens),
            nano_usd_per_generated_mtok=_per_mtok(nano, generated),
            nano_usd_per_hour=self._per_hour(holding),
            ttft_p95_s=self._quantile(row.deployment_id, "ttft_s", 0.95),
            tpot_p50_s=self._quantile(row.deployment_id, "tpot_s", 0.5),
            spark=self._spark(own),
            incomplete=bool(totals.get("incomplete_n")),
            coverage=min(1.0, observed / 1000 / max(1, self.now - since)),
            age_s=self.now - row.newest_ts,
            fault=". ".join(filter(None, (fault.reason, fault.remedy))) if fault else None,
            late=tuple(gap.metric for gap in of_engine if gap.status == "late"),
            counts=engine_counts(
                [self.counts.get(each, {}) for each in own],
                totals.get("preemptions"),
                self.counts.get(row.epoch_id, {}),
                self.busy_ms.get(row.epoch_id),
                json.loads(row.knobs),
                [each.name for each in self.devices if each.device_id in held and each.parent_id is None],
            ),
        )

    def _power(self, epochs: list[int]) -> float | None:
        """Watts of its devices now, by its share of them; None unless all of them are read."""
        watts = 0.0
        held = self._held(epochs)
        for device_id, share in held.items():
            power = _mean(self.recent_devices.get(device_id), "power_mw", 1e3)
            if power is None:
                return None
            watts += power * share
        return watts if held else None

    def _per_hour(self, epochs: list[int]) -> int | None:
        held = self._held(epochs)
        nano = 0.0
        for device_id, share in held.items():
            price = self.prices.at(self.priced[device_id], self.now)
            if price is None:
                return None
            nano += price.nano_usd_per_device_hour * share
        return round(nano) if held else None

    def _held(self, epochs: list[int]) -> dict[int, float]:
        """Its share of each device it held lately, 0 to 1; of a GPU, by the MIG devices it held."""
        held: dict[int, float] = defaultdict(float)
        for share in self.recent_shares:
            device = self.recent_devices.get(share.device_id)
            sliced = self.priced[share.device_id].parent_id is not None if share.device_id in self.priced else True
            if share.epoch_id in epochs and device is not None and device.duration_ms and not sliced:
                held[share.device_id] += share.held_ns / 1e6 / device.duration_ms
        return held

    def _quantile(self, deployment_id: int, metric: str, q: float) -> float | None:
        return quantile(self.histograms.get((deployment_id, metric), {}), q)

    def _spark(self, epochs: list[int]) -> tuple[float | None, ...]:
        first = (self.now - self.window_s) // self.slice_s * self.slice_s
        n = -(-(self.now - first) // self.slice_s)
        tokens: list[int | None] = [None] * n
        time = [0] * n
        for row in self.slices:
            i = (row.slice_ts - first) // self.slice_s
            if row.epoch_id in epochs and 0 <= i < n and row.generated_tokens is not None:
                tokens[i] = (tokens[i] or 0) + row.generated_tokens
                time[i] += row.duration_ms
        return tuple(
            count * 1000 / ms if count is not None and ms else None for count, ms in zip(tokens, time, strict=True)
        )

    def _missing(self, row: Any) -> MissingMetric:
        owner = self.device_names.get(row.owner_id)
        owner = owner or next((h.name for h in self.hosts if h.host_id == row.owner_id), None)
        owner = owner or next((e.base_url for e in self.epochs if e.engine_id == row.owner_id), "engine")
        return MissingMetric(owner, row.metric, row.status, row.reason or "", row.remedy, row.owner_id)

    def _age(self, host_id: int) -> int | None:
        ts = self.newest.get(host_id)
        return None if ts is None else self.now - ts


def _device_name(row: Any) -> str:
    return f"{row.name} #{row.slot}" if row.slot is not None else str(row.name)


def _mean(row: Any | None, name: str, scale: float) -> float | None:
    if row is None:
        return None
    return _ratio(getattr(row, f"{name}_sum"), getattr(row, f"{name}_n"), scale)


def _ratio(numerator: int | None, denominator: int | None, scale: float) -> float | None:
    return numerator / denominator / scale if numerator is not None and denominator else None


def _rate(sums: Mapping[str, Any], name: str) -> float | None:
    return sums[name] * 1000 / sums["duration_ms"] if sums.get(name) is not None and sums.get("duration_ms") else None


def _per_mtok(nano_usd: int | None, tokens: int | None) -> int | None:
    return round(nano_usd * MTOK / tokens) if nano_usd is not None and tokens else None


def per_mtok_together(lines: Sequence[DeploymentLine]) -> int | None:
    """Nano-USD per Mtok of several deployments: all their dollars over all their tokens.

    One whose dollars or tokens are not known is left out with both; None if none is left, or none served a token.
    """
    nano_usd = tokens = 0
    for line in lines:
        if line.nano_usd is not None and line.prompt_tokens is not None and line.generated_tokens is not None:
            nano_usd += line.nano_usd
            tokens += line.prompt_tokens + line.generated_tokens
    return _per_mtok(nano_usd, tokens)


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
