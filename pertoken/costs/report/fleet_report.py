"""Report of the fleet over a window: one line per host, device and deployment, with telemetry and dollars."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial

from pertoken.catalog.market import Market, load_market
from pertoken.costs.bill import Bill, bill
from pertoken.costs.ledger import ServedCost, together
from pertoken.costs.prices.book import formerly
from pertoken.costs.report.lines import (
    DeploymentLine,
    DeviceLine,
    EventLine,
    FleetReport,
    GoodShare,
    HostLine,
    HostUse,
    Lines,
    LostPrice,
    MissingMetric,
    good_share,
)
from pertoken.metrics import RollUp, label_of, rolled
from pertoken.printable import natural_key
from pertoken.provenance import Provenance
from pertoken.state.service import Slo
from pertoken.store.connect.open import Store
from pertoken.store.schema.shared import DEMO_MACHINE, IMPORTED_MACHINE, OTHER
from pertoken.store.schema.telemetry import HOUR, MINUTE
from pertoken.units import SHARE, format_duration
from pertoken.window.figures import engine_counts, mean, newest, observed_share, per_mtok, rate, ratio, total, whole
from pertoken.window.inventory import Inventory, KnownDevice, KnownEpoch, KnownHost, fault_sentences, shown_place
from pertoken.window.totals import UnreadableMetric

SloOf = Callable[[str], Slo]
"""Return the latency objectives of a served model name."""


def fleet_report(
    store: Store, window_s: int, now_ts: int, *, dated: bool = False, slo_of: SloOf | None = None
) -> FleetReport:
    """Return the report of the last `window_s` seconds for the fleet screen and the summary.

    `dated`: `now_ts`, a whole minute, is in the past, and everything is as of then. With `slo_of`, lines also have
    the share of requests within the SLO. Raises StoreError if the database cannot be read.
    """
    with bill(store, now_ts - window_s, now_ts, dated=dated) as priced, priced.pipelined():
        current = _current(priced.inventory)
        priced.fetch_details()
        return _report(priced, current, shown_place(store.location, priced.inventory), slo_of)


def _current(inventory: Inventory) -> tuple[KnownEpoch, ...]:
    """Return the newest epoch of each deployment, in natural order of model, then host."""
    host_names = {row.host_id: row.name for row in inventory.hosts}
    return tuple(
        sorted(
            inventory.newest.values(),
            key=lambda row: (natural_key(row.served_model), natural_key(host_names.get(row.host_id, ""))),
        )
    )


def _report(priced: Bill, current: Sequence[KnownEpoch], source: str, slo_of: SloOf | None) -> FleetReport:
    inventory = priced.inventory
    hosts = tuple(host_line(priced, row) for row in inventory.hosts)
    # A host that stopped reporting has no "now": its lines keep their last figures, with their age.
    reporting = inventory.reporting
    reporting_devices = [
        priced.recent.devices.get(device_id) for device_id, row in inventory.devices.items() if row.host_id in reporting
    ]
    reporting_epochs = [row for row in current if row.host_id in reporting]
    rates = [rate(priced.recent.of(row.deployment_id), "generated_tokens") for row in reporting_epochs]
    served_costs = [served(priced, row.deployment_id, slo_of) for row in current]
    all_served = together(served_costs)
    observed_ms = [
        priced.observed(row.deployment_id) for row, cost in zip(current, served_costs, strict=True) if cost.counted
    ]
    incomplete_flags = [bool(priced.totals.of(row.deployment_id).get("incomplete_n")) for row in current]
    resolved_workers = {row.engine_id for row in inventory.epochs if row.epoch_id in inventory.heads}
    gaps = [
        row
        for row in priced.recent.gaps
        if row.status != "late" and not (row.metric == "rendezvous" and row.owner_id in resolved_workers)
    ]
    gaps = _gaps_shown(gaps, inventory)
    missing = Lines(gaps, _Owners(priced).missing)
    price_of_reporting = {
        device_id: price
        for device_id, price in priced.price_of.items()
        if inventory.devices[device_id].host_id in reporting
    }
    per_hour = [price.nano_usd_per_device_hour for price in price_of_reporting.values() if price is not None]
    rates_now = [nano for nano in per_hour if nano is not None]
    serving = {device for row in current for device in inventory.epoch_devices.get(row.epoch_id, ())}
    unpriced = [device_id for device_id, price in price_of_reporting.items() if price is None]
    return FleetReport(
        now_ts=priced.window.end,
        window_s=priced.window.end - priced.window.start,
        source=source,
        hosts=hosts,
        devices=Lines(tuple(inventory.devices.values()), partial(device_line, priced)),
        deployments=Lines(tuple(current), partial(deployment_line, priced, load_market(), slo_of)),
        bill=priced.money.bill(),
        nano_usd_per_hour=sum(rates_now) if rates_now else None,
        unpriced_n=sum(inventory.devices[device_id].kind != "cpu" or device_id in serving for device_id in unpriced),
        unpriced_devices=tuple(
            inventory.device_names[device_id] for device_id in sorted(priced.money.unpriced_devices)
        ),
        nano_usd_per_mtok=all_served.price("blended"),
        served=all_served,
        generated_tok_s_now=total(rates),
        power_w=total([newest(row, "power_w") for row in reporting_devices]),
        incomplete=any(
            is_incomplete and together([cost]).price("blended")
            for is_incomplete, cost in zip(incomplete_flags, served_costs, strict=True)
        ),
        missing=missing,
        events=tuple(EventLine(row.last_ts, row.kind, row.message, row.count) for row in priced.recent.events),
        bill_observed=priced.bill_observed(),
        coverage=observed_share(sum(min(counts) for counts in observed_ms), sum(ms for _, ms in observed_ms)),
        estimated=priced.money.estimated,
        lost_prices=_lost_prices(priced, [inventory.devices[device_id] for device_id in unpriced]),
        uses=Lines(hosts, HostUses(priced, current, reporting, slo_of).use),
        hints=hints(
            hosts,
            _one_device_of_each_kind(priced, serving),
            [(row.served_model, fault(priced, row.engine_id)) for row in current],
            [missing[i] for i, gap in enumerate(gaps) if worth_a_hint(gap)],
            _lost_selectors(priced),
            fault_sentences(inventory),
        ),
    )


def served(priced: Bill, deployment_id: int, slo_of: SloOf | None = None) -> ServedCost:
    """Return dollars and tokens of a deployment; with `slo_of`, also its share of good requests."""
    totals = priced.totals.of(deployment_id)
    return ServedCost(
        _nano_usd(priced, epochs_with_workers(priced, deployment_id)),
        totals.get("prompt_tokens"),
        totals.get("generated_tokens"),
        totals.get("requests_finished"),
        None if slo_of is None else good_share_of(priced, deployment_id, slo_of).low,
    )


def good_share_of(priced: Bill, deployment_id: int, slo_of: SloOf) -> GoodShare:
    """Return the share of the requests of a deployment within the objectives of its model."""
    row = priced.inventory.newest[deployment_id]
    ttft, tpot = (priced.details.histogram(deployment_id, name) for name in ("ttft_s", "tpot_s"))
    return good_share(slo_of(row.served_model), ttft, tpot, row.engine_kind)


def fault(priced: Bill, engine_id: int) -> str | None:
    """Return why an engine cannot be read now, with the remedy; None if it can."""
    gaps = priced.recent.gaps_of.get(engine_id, ())
    gap = next((gap for gap in gaps if gap.metric in ("metrics_page", "rendezvous")), None)
    return ". ".join(filter(None, (gap.reason, gap.remedy))) if gap else None


def deployment_line(priced: Bill, market: Market, slo_of: SloOf | None, row: KnownEpoch) -> DeploymentLine:
    """Return the line of a deployment from its present epoch."""
    totals, recent = priced.totals.of(row.deployment_id), priced.recent.of(row.deployment_id)
    epoch_ids = [epoch.epoch_id for epoch in priced.inventory.epochs_of[row.deployment_id]]
    epochs = epochs_with_workers(priced, row.deployment_id)
    device_ids = [
        device for device in priced.inventory.epoch_devices.get(row.epoch_id, ()) if device in priced.inventory.devices
    ]
    device_ids.sort(key=priced.inventory.order.__getitem__)
    cost = served(priced, row.deployment_id, slo_of)
    nano, prompt, generated = cost.nano_usd, cost.prompt_tokens, cost.generated_tokens
    tokens = prompt + generated if prompt is not None and generated is not None else None
    recent_shares = _recent_device_shares(priced, epochs)
    return DeploymentLine(
        deployment_id=row.deployment_id,
        model=row.served_model,
        engine=row.engine_kind,
        host=row.host_name,
        devices=tuple(priced.inventory.device_names[device_id] for device_id in device_ids),
        generated_tok_s_now=rate(recent, "generated_tokens"),
        prompt_tok_s_now=rate(recent, "prompt_tokens"),
        running_now=newest(recent, "running"),
        waiting_now=newest(recent, "waiting"),
        generated_tokens=generated,
        prompt_tokens=prompt,
        cached_tokens=totals.get("cached_tokens"),
        busy=ratio(totals.get("busy_ms"), totals.get("observed_ms"), 1),
        power_w=_power_w(priced, recent_shares),
        nano_usd=nano,
        pooling=cost.pooling,
        nano_usd_per_mtok=per_mtok(nano, tokens),
        nano_usd_per_generated_mtok=per_mtok(nano, generated),
        nano_usd_per_hour=_per_hour(priced, recent_shares),
        ttft_p95_s=priced.details.latency(row.deployment_id, "ttft_s", 0.95),
        ttft_p50_s=priced.details.latency(row.deployment_id, "ttft_s", 0.5),
        tpot_p95_s=priced.details.latency(row.deployment_id, "tpot_s", 0.95),
        tpot_p50_s=priced.details.latency(row.deployment_id, "tpot_s", 0.5),
        spark=spark(priced, epoch_ids),
        silent_s=_silent_s(priced, epoch_ids),
        incomplete=bool(totals.get("incomplete_n")),
        coverage=observed_share(*priced.observed(row.deployment_id)) or 0.0,
        age_s=priced.window.end - row.newest_ts,
        fault=fault(priced, row.engine_id),
        late=tuple(gap.metric for gap in priced.recent.gaps_of.get(row.engine_id, ()) if gap.status == "late"),
        counts=engine_counts(
            [priced.details.counts.get(epoch_id, {}) for epoch_id in epoch_ids],
            totals.get("preemptions"),
            priced.details.counts.get(row.epoch_id, {}),
            priced.totals.busy_ms(row.epoch_id),
            json.loads(row.knobs),
            [
                priced.inventory.devices[device_id].name
                for device_id in device_ids
                if priced.inventory.devices[device_id].parent_id is None
            ],
            market,
        ),
        busy_provenance=Provenance.of_stored(totals.get("busy_provenance") or 0).label
        if totals.get("busy_ms") is not None
        else None,
        idle_nano_usd=None if nano is None else sum(priced.money.idle_by_epoch.get(epoch, 0) for epoch in epochs),
        requests=cost.requests,
        good_share=cost.good_share,
        kinds=None if nano is None else priced.kinds.get(row.deployment_id),
        ended=row.end_ts is not None or row.deployment_id not in priced.inventory.running,
    )


def epochs_with_workers(priced: Bill, deployment_id: int) -> list[int]:
    """Return the epochs that hold the devices of a deployment: its own and its worker ranks' epochs."""
    return [
        *(row.epoch_id for row in priced.inventory.epochs_of[deployment_id]),
        *priced.inventory.workers_of.get(deployment_id, ()),
    ]


def _nano_usd(priced: Bill, epochs: Sequence[int]) -> int | None:
    """Return the dollars of epochs in the window; None without any, or if a device had no price."""
    if not priced.money.unpriced_epochs.isdisjoint(epochs):
        return None
    epoch_dollars = [priced.money.by_epoch[epoch] for epoch in epochs if epoch in priced.money.by_epoch]
    return sum(epoch_dollars) if epoch_dollars else None


def _recent_device_shares(priced: Bill, epochs: Sequence[int]) -> dict[int, float]:
    """Return the epochs' share of each device they held lately, 0 to 1; of a GPU, by the MIG devices they held."""
    shares: dict[int, float] = defaultdict(float)
    for device_id, held_ns in (
        allocation for epoch in epochs for allocation in priced.recent.allocated.get(epoch, {}).items()
    ):
        device, row = priced.recent.devices.get(device_id), priced.inventory.devices.get(device_id)
        if device is not None and device.duration_ms and row is not None and row.parent_id is None:
            shares[device_id] += held_ns / 1e6 / device.duration_ms
    return shares


def _power_w(priced: Bill, shares: dict[int, float]) -> float | None:
    """Return present watts of devices, each weighted by its share; None if one is not measured."""
    watts = 0.0
    for device_id, share in shares.items():
        power = newest(priced.recent.devices[device_id], "power_w")
        if power is None:
            return None
        watts += power * share
    return watts if shares else None


def _per_hour(priced: Bill, shares: dict[int, float]) -> int | None:
    nano_usd = 0.0
    for device_id, share in shares.items():
        per_hour = priced.prices.rate(priced.inventory.devices[device_id], priced.window.end)
        if per_hour is None:
            return None
        nano_usd += per_hour * share
    return round(nano_usd) if shares else None


def _silent_s(priced: Bill, epochs: Sequence[int]) -> int | None:
    """Return the time since the end of the newest row with a generated token, None without one in the window."""
    newest_ts = max((token_ts for epoch in epochs for *_, token_ts in priced.details.slices(epoch)), default=0)
    row_s = HOUR if priced.window.slice_s % HOUR == 0 else MINUTE
    return max(0, priced.window.end - newest_ts - row_s) if newest_ts else None


def spark(priced: Bill, epochs: Sequence[int]) -> tuple[float | None, ...]:
    """Return generated tokens/s in each slice of the window, oldest first; None where nothing was observed."""
    slice_s = priced.window.slice_s
    first_start = priced.window.start // slice_s * slice_s
    slice_count = -(-(priced.window.end - first_start) // slice_s)
    tokens: list[int | None] = [None] * slice_count
    observed_ms = [0] * slice_count
    for ts, generated, duration_ms, _ in (row for epoch in epochs for row in priced.details.slices(epoch)):
        index = (ts - first_start) // slice_s
        if 0 <= index < slice_count:
            tokens[index] = (tokens[index] or 0) + generated
            observed_ms[index] += duration_ms
    return tuple(
        count * 1000 / ms if count is not None and ms else None for count, ms in zip(tokens, observed_ms, strict=True)
    )


_GAUGES_WITHOUT_COLUMN = tuple(
    metric for metric in rolled(RollUp.GAUGE) if metric.stored not in ("util_1e4", "power_mw", "memory_used_bytes")
)
"""Gauges without a column of their own in the table of devices."""


def device_line(priced: Bill, row: KnownDevice) -> DeviceLine:
    """Return the line of a device."""
    recent = priced.recent.devices.get(row.device_id)
    # A MIG device costs its fraction of the price of its GPU.
    billed_id = row.device_id if row.parent_id is None else row.parent_id
    fraction_1e6 = SHARE if row.parent_id is None else row.part_1e6
    price = priced.price_of.get(billed_id) if fraction_1e6 is not None else None
    per_hour = price.nano_usd_per_device_hour if price else None
    held_by = priced.recent.held_by.get(row.device_id, {})
    gauges = ((metric.stored, mean(recent, metric.stored, metric.per_unit)) for metric in _GAUGES_WITHOUT_COLUMN)
    inventory = priced.inventory
    deployment_ids = [
        inventory.deployment_of.get(epoch_id, inventory.heads.get(epoch_id, 0)) for epoch_id in sorted(held_by)
    ]
    models = [inventory.newest[key].served_model for key in deployment_ids if key in inventory.newest]
    return DeviceLine(
        device_id=row.device_id,
        host=row.host_name,
        kind=row.kind,
        name=row.name,
        slot=row.slot,
        util=newest(recent, "device_util"),
        power_w=newest(recent, "power_w"),
        memory_used_bytes=whole(mean(recent, "memory_used_bytes", 1)),
        memory_bytes=row.memory_bytes,
        nano_usd_per_hour=None if per_hour is None or fraction_1e6 is None else per_hour * fraction_1e6 // SHARE,
        listed_price=price.note if price and price.listed else None,
        held_by=None
        if row.device_id in priced.recent.hidden and not held_by
        else tuple([*sorted(set(models), key=natural_key), *(["other processes"] if OTHER in held_by else [])]),
        age_s=priced.window.end - priced.recent.lost.get(row.device_id, priced.recent.newest_ts[row.device_id]),
        values={name: value for name, value in gauges if value is not None},
        power_source=row.power_source,
        part_of=priced.inventory.device_names.get(row.parent_id) if row.parent_id is not None else None,
    )


def host_line(priced: Bill, row: KnownHost) -> HostLine:
    """Return the line of a host."""
    recent = priced.recent.hosts.get(row.host_id)
    agent = priced.recent.agents.get(row.host_id)
    return HostLine(
        host_id=row.host_id,
        name=row.name,
        cpu_util=mean(recent, "cpu_util_1e4", 1e4),
        load=mean(recent, "load_1e2", 1e2),
        memory_used_bytes=whole(mean(recent, "memory_used_bytes", 1)),
        memory_bytes=row.memory_bytes,
        agent_cpu_share=agent.cpu_ms / agent.duration_ms
        if agent and agent.cpu_ms is not None and agent.duration_ms
        else None,
        agent_rss_bytes=agent.rss_bytes if agent else None,
        age_s=priced.window.end - row.newest_ts,
        interval_s=priced.inventory.intervals_s[row.host_id],
        memory_traffic_bytes_s=rate(recent._asdict(), "memory_traffic_bytes") if recent else None,
        imported=(row.machine_id or "").startswith(IMPORTED_MACHINE),
        generated=(row.machine_id or "").startswith(DEMO_MACHINE),
    )


class HostUses:
    """Devices and deployments of a priced window by host."""

    def __init__(
        self, priced: Bill, current: Sequence[KnownEpoch], fresh: frozenset[int], slo_of: SloOf | None = None
    ) -> None:
        """`current`: newest epoch of each deployment; `fresh`: ids of hosts that still report."""
        self._priced, self._current, self._fresh, self._slo_of = priced, current, fresh, slo_of

    def use(self, line: HostLine) -> HostUse:
        """Return devices, deployments and dollars of one host."""
        devices, rows = self._devices.get(line.host_id, ()), self._served.get(line.host_id, ())
        recent = self._priced.recent
        gpus = [recent.devices.get(row.device_id) for row in devices if row.kind != "cpu"]
        billed_devices = [row for row in devices if row.parent_id is None]
        money = self._priced.money
        host_bill = money.bill_of([row.device_id for row in billed_devices])
        is_reporting = line.host_id in self._fresh
        host_cost = together([served(self._priced, row.deployment_id, self._slo_of) for row in rows])
        return HostUse(
            host=line,
            accelerators=sum(row.kind != "cpu" for row in billed_devices),
            util=_mean_of_known([newest(row, "device_util") for row in gpus]),
            sm_active=_mean_of_known([newest(row, "sm_active") for row in gpus]),
            dram_active=_mean_of_known([newest(row, "dram_active") for row in gpus]),
            power_w=total([newest(recent.devices.get(row.device_id), "power_w") for row in devices]),
            generated_tok_s_now=total([rate(recent.of(row.deployment_id), "generated_tokens") for row in rows])
            if is_reporting
            else None,
            nano_usd_per_hour=self._per_hour(billed_devices) if is_reporting else None,
            nano_usd_per_mtok=host_cost.price("blended"),
            served=host_cost,
            spark=self._spark(rows),
            bill=host_bill,
            models=tuple(dict.fromkeys(row.served_model for row in rows)),
        )

    def _spark(self, rows: Sequence[KnownEpoch]) -> tuple[float | None, ...]:
        epochs = (self._priced.inventory.epochs_of[row.deployment_id] for row in rows)
        sparks = (spark(self._priced, [epoch.epoch_id for epoch in deployment_epochs]) for deployment_epochs in epochs)
        return tuple(total(values) for values in zip(*sparks, strict=True))

    def _per_hour(self, billed_devices: Sequence[KnownDevice]) -> int | None:
        prices = [self._priced.price_of.get(row.device_id) for row in billed_devices]
        known_prices = [price.nano_usd_per_device_hour for price in prices if price is not None]
        rates = [nano_usd for nano_usd in known_prices if nano_usd is not None]
        return sum(rates) if rates else None

    @cached_property
    def _devices(self) -> Mapping[int, Sequence[KnownDevice]]:
        devices: dict[int, list[KnownDevice]] = defaultdict(list)
        for row in self._priced.inventory.devices.values():
            devices[row.host_id].append(row)
        return devices

    @cached_property
    def _served(self) -> Mapping[int, Sequence[KnownEpoch]]:
        served: dict[int, list[KnownEpoch]] = defaultdict(list)
        for row in self._current:
            served[row.host_id].append(row)
        return served


def _mean_of_known(values: Sequence[float | None]) -> float | None:
    known_values = [value for value in values if value is not None]
    return sum(known_values) / len(known_values) if known_values else None


DEMO_ENDED_S = 120
"""Silence after which a demo has ended: hosts of an open demo write in turns, some seconds apart."""


def hints(
    hosts: Sequence[HostLine],
    devices: Sequence[tuple[DeviceLine, bool]],
    deployments: Sequence[tuple[str, str | None]],
    missing: Sequence[MissingMetric],
    lost: Sequence[tuple[str, Sequence[str]]] = (),
    faults: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return sentences about the next steps for a person; none if there is nothing to do.

    `devices`: one paid device of each kind, and whether it serves. `deployments`: served model, and the reason if it
    cannot be read. `lost`: price selector, and the devices it no longer matches. `faults`: sentences about hosts with
    invalid rows.
    """
    lines: list[str] = [*faults]
    if not hosts:
        lines.append("Nothing was recorded yet: the agent's first row comes within one interval of its start.")
    lines += _generated_hints([host for host in hosts if host.generated])
    lines += _stale_hints([host for host in hosts if host.stale and not host.imported and not host.generated])
    lines += _imported_hints([host for host in hosts if host.stale and host.imported])
    if hosts and not deployments:
        lines.append(
            "No inference server was found on this host. Start one (vLLM, or llama-server with --metrics), or name "
            "one that runs elsewhere: `pertoken agent --engine http://HOST:PORT`."
        )
    lines += [f"{model} cannot be read: {fault}" for model, fault in deployments if fault]
    for selector, names in lost:
        lines.append(
            f"The price for '{selector}' is no longer one for {_listed(names)}, since names match by whole words: set "
            f'it for the whole name with --from ever, and take this one back with `pertoken prices unset "{selector}"`.'
        )
    for device, serves in devices:
        if device.nano_usd_per_hour is None and (device.kind == "gpu" or serves):
            selector = "cpu" if device.kind == "cpu" else f'"{device.name}"'
            lines.append(
                f"No price is known for {device.name}: set what an hour of it costs you, in dollars, with "
                f"`pertoken prices set DOLLARS --for {selector}`."
            )
        if device.listed_price:
            lines.append(
                f"Nobody set a price for {device.name}: dollars are by the {device.listed_price}. What you really pay: "
                f'`pertoken prices set DOLLARS --for "{device.name}"`.'
            )
    lines += _gap_hints(any(device.kind == "gpu" for device, _ in devices), bool(deployments), missing)
    return tuple(dict.fromkeys(lines))


def _generated_hints(generated: Sequence[HostLine]) -> list[str]:
    """Return a sentence about a demo that has ended; a demo runs while its screens are open."""
    silent_s = min((host.age_s or 0 for host in generated), default=0)
    if silent_s < DEMO_ENDED_S:
        return []
    ended = format_duration(silent_s)
    return [f"This is a generated demo, which ended {ended} ago: `pertoken demo` makes another one, which goes on."]


def _imported_hints(imported: Sequence[HostLine]) -> list[str]:
    """Return one sentence for all hosts with imported telemetry that has ended."""
    if not imported:
        return []
    names = _first_two([host.name for host in imported])
    ended = format_duration(min(host.age_s or 0 for host in imported))
    return [
        f"Telemetry of {names} was imported and ends {ended} ago: `pertoken import prometheus` goes on from there, and "
        "`pertoken agent install` on a host records it from now on."
    ]


def _stale_hints(stale: Sequence[HostLine]) -> list[str]:
    """Return a sentence for hosts with a stopped agent, and one for hosts without any stored telemetry."""
    lines = []
    for silent in ([host for host in stale if host.age_s is not None], [host for host in stale if host.age_s is None]):
        if not silent:
            continue
        ages = [host.age_s for host in silent if host.age_s is not None]
        since = f"nothing for {format_duration(min(ages))}" if ages else "nothing yet"
        names = _first_two([host.name for host in silent])
        if len(silent) == 1:
            lines.append(f"The agent on {names} has stored {since}: is it running? Start it with `pertoken agent`.")
        else:
            least = " or longer" if ages else ""
            lines.append(
                f"The agents on {names} have stored {since}{least}: are they running? Start each with `pertoken agent`."
            )
    return lines


def worth_a_hint(gap: MissingMetric | UnreadableMetric) -> bool:
    """Return whether a missing metric deserves a hint: a person could switch it on, or a whole driver is missing."""
    return gap.metric in (*_VENDORS, _PROCESSES) or (
        gap.status in ("denied", "missing", "failing") and bool(gap.remedy)
    )


def _gap_hints(gpus: bool, serving: bool, missing: Sequence[MissingMetric]) -> list[str]:
    """Return one sentence for each reason that hides a metric and that a person could remove."""
    metrics: dict[tuple[str, str, str], dict[str, None]] = {}
    unknown_owners: dict[tuple[str, str | None], list[str]] = {}
    drivers: list[str] = []
    for gap in missing:
        if gap.metric == "engines" and serving:
            continue  # some were found; what else may be hidden is for `doctor`
        if gap.remedy == "wait":
            continue
        if gap.metric in _VENDORS:
            drivers.append(gap.reason)
        elif gap.metric == _PROCESSES:
            unknown_owners.setdefault((gap.reason, gap.remedy), []).append(gap.owner)
        elif worth_a_hint(gap) and gap.remedy and gap.metric != "metrics_page":
            metrics.setdefault((gap.owner, gap.reason, gap.remedy), {})[label_of(gap.metric)] = None
    # What several owners lack for one reason is one sentence.
    owners_of: dict[tuple[str, str, str], list[str]] = {}
    for (owner, reason, remedy), names in metrics.items():
        owners_of.setdefault((_listed(list(names)), reason, remedy), []).append(owner)
    lines = [
        f"{_first_two(owners)}: {names} cannot be read: {reason}. To switch it on: {remedy}."
        for (names, reason, remedy), owners in owners_of.items()
    ]
    lines += [
        f"Who holds {owners[0]}{f' and {len(owners) - 1} more' if len(owners) > 1 else ''} is not known: {reason}. "
        f"The cost of time without a known holder is shown as unallocated."
        f"{f' To switch it on: {remedy}.' if remedy else ''}"
        for (reason, remedy), owners in unknown_owners.items()
    ]
    if drivers and not gpus:
        lines.append(f"No GPU can be read here ({'; '.join(drivers)}). `pertoken doctor` shows how to switch one on.")
    return lines


_PROCESSES = "processes"
_VENDORS = ("nvidia", "amd", "gaudi")


def _first_two(names: Sequence[str]) -> str:
    """Return the first two names and the number of the others."""
    return _listed(names if len(names) <= 2 else [*names[:2], f"{len(names) - 2} more"])


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


MAX_MISSING = 150
"""Missing metrics of one host that a report lists: one of each MIG instance of the largest host."""


def _gaps_shown(gaps: Sequence[UnreadableMetric], inventory: Inventory) -> list[UnreadableMetric]:
    """Return at most `MAX_MISSING` missing metrics of each host; owners without a host count as one host."""
    host_of = {row.engine_id: row.host_id for row in inventory.epochs}
    host_of |= {device_id: row.host_id for device_id, row in inventory.devices.items()}
    host_of |= {host_id: host_id for host_id in inventory.host}
    by_host: dict[int | None, int] = defaultdict(int)
    shown = []
    for gap in gaps:
        host_id = host_of.get(gap.owner_id)
        by_host[host_id] += 1
        if by_host[host_id] <= MAX_MISSING:
            shown.append(gap)
    return shown


def _one_device_of_each_kind(priced: Bill, serving: Collection[int]) -> list[tuple[DeviceLine, bool]]:
    """Return one device for each kind, name, price state and whether it serves; its hint is for all of them."""
    kinds: dict[tuple[str, str, bool, str | None, bool], int] = {}
    for device_id, price in priced.price_of.items():
        row = priced.inventory.devices[device_id]
        listed = price.note if price and price.listed else None
        kinds.setdefault((row.kind, row.name, price is None, listed, device_id in serving), device_id)
    return [(device_line(priced, priced.inventory.devices[key]), key in serving) for key in kinds.values()]


def _lost_selectors(priced: Bill) -> list[tuple[str, tuple[str, ...]]]:
    """Return selectors of present prices that no longer match devices, with the names of those devices."""
    price_by_selector = {price.selector: price for price in priced.prices.prices}
    devices_by_id = priced.inventory.devices
    devices = (
        {devices_by_id[device_id].name: devices_by_id[device_id] for device_id in priced.price_of}
        if price_by_selector
        else {}
    )
    lost_names = (
        (selector, tuple(name for name, row in devices.items() if formerly(selector, row)))
        for selector, price in price_by_selector.items()
        if price.nano_usd_per_device_hour is not None
    )
    return [(selector, names) for selector, names in lost_names if names]


_LOST_AGES_S = (3600, *(day * 86_400 for day in range(1, 8)))
"""Ages at which a former price of a device is looked up, seconds."""


def _lost_prices(priced: Bill, unpriced: Sequence[KnownDevice]) -> tuple[LostPrice, ...]:
    """Return names, counts and former rates of devices that lost their price in the last week."""
    earlier = [priced.window.end - age_s for age_s in _LOST_AGES_S]
    rates: dict[str, list[int]] = defaultdict(list)
    for row in unpriced:
        last_rate = next((price for ts in earlier if (price := priced.prices.rate(row, ts)) is not None), None)
        if last_rate is not None:
            rates[row.name].append(last_rate)
    return tuple(LostPrice(name, len(rates[name]), sum(rates[name])) for name in sorted(rates))


class _Owners:
    """Names of the owners of missing metrics."""

    def __init__(self, priced: Bill) -> None:
        inventory = priced.inventory
        self._names = {row.engine_id: row.base_url for row in inventory.epochs}
        self._names |= {row.host_id: row.name for row in inventory.hosts}
        self._names.update(inventory.device_names)

    def missing(self, row: UnreadableMetric) -> MissingMetric:
        """Return the line of a metric that is missing."""
        owner = self._names.get(row.owner_id, "engine")
        return MissingMetric(owner, row.metric, row.status, row.reason or "", row.remedy, row.owner_id)
