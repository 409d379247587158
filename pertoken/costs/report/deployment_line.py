"""One deployment's line of a report."""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from pertoken.catalog.market import Market
from pertoken.costs.bill import Bill
from pertoken.costs.report.goodput import GoodShare, good_share
from pertoken.costs.report.lines import DeploymentLine
from pertoken.costs.served import Served
from pertoken.provenance import Provenance
from pertoken.state.service import Slo
from pertoken.store.schema.telemetry import HOUR, MINUTE
from pertoken.window.columns import newest, observed_share, per_mtok, rate, ratio
from pertoken.window.totals import engine_counts

SloOf = Callable[[str], Slo]
"""Objectives of a served model name."""


def served(priced: Bill, deployment_id: int, slo_of: SloOf | None = None) -> Served:
    """Dollars and tokens of a deployment, as its line has them; with `slo_of` its share of good requests, too."""
    totals = priced.totals.of(deployment_id)
    return Served(
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
    """Return why an engine cannot be read now, with what to do."""
    gaps = priced.recent.gaps_of.get(engine_id, ())
    gap = next((gap for gap in gaps if gap.metric in ("metrics_page", "rendezvous")), None)
    return ". ".join(filter(None, (gap.reason, gap.remedy))) if gap else None


def deployment_line(priced: Bill, market: Market, slo_of: SloOf | None, row: Any) -> DeploymentLine:
    """Return the line of a deployment by the row of its present epoch."""
    totals, recent = priced.totals.of(row.deployment_id), priced.recent.of(row.deployment_id)
    own = [epoch.epoch_id for epoch in priced.inventory.epochs_of[row.deployment_id]]
    epochs = epochs_with_workers(priced, row.deployment_id)
    held = [
        device for device in priced.inventory.epoch_devices.get(row.epoch_id, ()) if device in priced.inventory.devices
    ]
    held.sort(key=priced.inventory.order.__getitem__)
    use = served(priced, row.deployment_id, slo_of)
    nano, prompt, generated = use.nano_usd, use.prompt_tokens, use.generated_tokens
    tokens = prompt + generated if prompt is not None and generated is not None else None
    lately = _held_lately(priced, epochs)
    return DeploymentLine(
        deployment_id=row.deployment_id,
        model=row.served_model,
        engine=row.engine_kind,
        host=row.host_name,
        devices=tuple(priced.inventory.device_names[device_id] for device_id in held),
        generated_tok_s_now=rate(recent, "generated_tokens"),
        prompt_tok_s_now=rate(recent, "prompt_tokens"),
        running_now=newest(recent, "running"),
        waiting_now=newest(recent, "waiting"),
        generated_tokens=generated,
        prompt_tokens=prompt,
        cached_tokens=totals.get("cached_tokens"),
        busy=ratio(totals.get("busy_ms"), totals.get("observed_ms"), 1),
        power_w=_power_w(priced, lately),
        nano_usd=nano,
        pooling=use.pooling,
        nano_usd_per_mtok=per_mtok(nano, tokens),
        nano_usd_per_generated_mtok=per_mtok(nano, generated),
        nano_usd_per_hour=_per_hour(priced, lately),
        ttft_p95_s=priced.details.latency(row.deployment_id, "ttft_s", 0.95),
        ttft_p50_s=priced.details.latency(row.deployment_id, "ttft_s", 0.5),
        tpot_p95_s=priced.details.latency(row.deployment_id, "tpot_s", 0.95),
        tpot_p50_s=priced.details.latency(row.deployment_id, "tpot_s", 0.5),
        spark=spark(priced, own),
        silent_s=_silent_s(priced, own),
        incomplete=bool(totals.get("incomplete_n")),
        coverage=observed_share(*priced.observed(row.deployment_id)) or 0.0,
        age_s=priced.window.end - row.newest_ts,
        fault=fault(priced, row.engine_id),
        late=tuple(gap.metric for gap in priced.recent.gaps_of.get(row.engine_id, ()) if gap.status == "late"),
        counts=engine_counts(
            [priced.details.counts.get(counts, {}) for counts in own],
            totals.get("preemptions"),
            priced.details.counts.get(row.epoch_id, {}),
            priced.totals.busy_ms(row.epoch_id),
            json.loads(row.knobs),
            [
                priced.inventory.devices[device_id].name
                for device_id in held
                if priced.inventory.devices[device_id].parent_id is None
            ],
            market,
        ),
        busy_provenance=Provenance.of_stored(totals.get("busy_provenance") or 0).label
        if totals.get("busy_ms") is not None
        else None,
        idle_nano_usd=None if nano is None else sum(priced.money.idle_by_epoch.get(epoch, 0) for epoch in epochs),
        requests=use.requests,
        good_share=use.good_share,
        kinds=None if nano is None else priced.kinds.get(row.deployment_id),
        ended=row.end_ts is not None or row.deployment_id not in priced.inventory.running,
    )


def epochs_with_workers(priced: Bill, deployment_id: int) -> list[int]:
    """Return the epochs that hold the devices of a deployment: its own, and those of its worker ranks."""
    return [
        *(row.epoch_id for row in priced.inventory.epochs_of[deployment_id]),
        *priced.inventory.workers_of.get(deployment_id, ()),
    ]


def _nano_usd(priced: Bill, epochs: Sequence[int]) -> int | None:
    """Dollars of the window; None unless all that it held had a price."""
    if not priced.money.unpriced_epochs.isdisjoint(epochs):
        return None
    known = [priced.money.by_epoch[epoch] for epoch in epochs if epoch in priced.money.by_epoch]
    return sum(known) if known else None


def _held_lately(priced: Bill, epochs: Sequence[int]) -> dict[int, float]:
    """Return the epochs' share of each device they held lately, 0 to 1; of a GPU, by the MIG devices they held."""
    held: dict[int, float] = defaultdict(float)
    for device_id, held_ns in (
        allocation for epoch in epochs for allocation in priced.recent.allocated.get(epoch, {}).items()
    ):
        device, row = priced.recent.devices.get(device_id), priced.inventory.devices.get(device_id)
        if device is not None and device.duration_ms and row is not None and row.parent_id is None:
            held[device_id] += held_ns / 1e6 / device.duration_ms
    return held


def _power_w(priced: Bill, held: dict[int, float]) -> float | None:
    """Watts of its devices now, by its share of them; None unless all of them are read."""
    watts = 0.0
    for device_id, share in held.items():
        power = newest(priced.recent.devices[device_id], "power_w")
        if power is None:
            return None
        watts += power * share
    return watts if held else None


def _per_hour(priced: Bill, held: dict[int, float]) -> int | None:
    nano = 0.0
    for device_id, share in held.items():
        per_hour = priced.prices.rate(priced.inventory.devices[device_id], priced.window.end)
        if per_hour is None:
            return None
        nano += per_hour * share
    return round(nano) if held else None


def _silent_s(priced: Bill, epochs: Sequence[int]) -> int | None:
    """Return the time since the end of the newest row with a generated token, None without one in the window."""
    newest_ts = max((token_ts for epoch in epochs for *_, token_ts in priced.details.slices(epoch)), default=0)
    row_s = HOUR if priced.window.slice_s % HOUR == 0 else MINUTE
    return max(0, priced.window.end - newest_ts - row_s) if newest_ts else None


def spark(priced: Bill, epochs: Sequence[int]) -> tuple[float | None, ...]:
    """Return generated tokens/s of an epoch's slices, oldest first; None where nothing was observed."""
    slice_s = priced.window.slice_s
    first = priced.window.start // slice_s * slice_s
    n = -(-(priced.window.end - first) // slice_s)
    tokens: list[int | None] = [None] * n
    time = [0] * n
    for ts, generated, duration_ms, _ in (instance for epoch in epochs for instance in priced.details.slices(epoch)):
        i = (ts - first) // slice_s
        if 0 <= i < n:
            tokens[i] = (tokens[i] or 0) + generated
            time[i] += duration_ms
    return tuple(
        count * 1000 / ms if count is not None and ms else None for count, ms in zip(tokens, time, strict=True)
    )
