"""Measurements by `pertoken probe` as advice uses them. Front door: `keep`, `probed_deployment`."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date
from ipaddress import ip_address
from urllib.parse import urlsplit

from pertoken.catalog.market import CPU_ARCH, ROWS_OF_TILE, Accelerator, MeasuredRates
from pertoken.costs.bill import bill
from pertoken.evidence import OperatingPoint
from pertoken.forecast.formats import cpu_kernels, stored_format, weight_format
from pertoken.state.deployment import Model
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store
from pertoken.store.repository import AdviceRepository
from pertoken.window.inventory import Inventory

MIN_CONTEXTS_APART = 128
"""Tokens between two contexts from which their steps differ by more than their noise: a judgement."""
MIN_SHARE = 0.1
"""Minimum share of a step assumed for reading weights, and for the products of one sequence, where the other seems to
take all of it."""
MAX_REQUEST_S = 0.1
"""Most that a request takes beside its products and a step: more is noise of the slope. A judgement."""


def measured_rates(
    model: Model, engine: str, weight_dtype: str, points: Sequence[OperatingPoint]
) -> MeasuredRates | None:
    """Return the memory bandwidth and the rate of matrix products that points of a probe show.

    The rate is 2 FLOPs for each active parameter and token over the slope of the time to first token. The rest of a
    prompt's time counts only between 0 and a step plus `MAX_REQUEST_S`. The bandwidth is the bytes of active weights
    over the rest of a step of one request. None where the points or the model show neither.
    The rate of attention is known where steps of one request were measured at a short and a long context. The rates of
    rows and tiles of a step are known where batches were measured: the constant part of a step is reading then.
    """
    form = weight_format(stored_format(engine, weight_dtype))
    prompts = sorted((point.prompt_len, point.ttft_s) for point in points if point.ttft_s is not None)
    alone = [(point, point.token_s) for point in points if point.token_s is not None and point.running == 1]
    steps = [step_s for _, step_s in alone]
    if form is None or model.params_active is None or len(prompts) < 2 or not steps:
        return None
    (few, fast_s), (many, slow_s) = prompts[0], prompts[-1]
    if many <= few or slow_s <= fast_s:
        return None
    step_s = min(steps)
    beside_s = fast_s - few * (slow_s - fast_s) / (many - few)
    flops = 2 * model.params_active * many / (slow_s - min(max(beside_s, 0.0), step_s + MAX_REQUEST_S))
    row_s, tile_s = _batches_s(points, step_s)
    one_s = 2 * model.params_active / flops if row_s is None else row_s
    reading_s = max(step_s - one_s, MIN_SHARE * step_s)
    contexts = [(point.prompt_len + point.generated_len / 2, step_s) for point, step_s in alone]
    attention = _attention_flops(model, min(contexts), max(contexts))
    return MeasuredRates(
        model.params_active * form.bits / 8 / reading_s,
        flops,
        attention,
        None if row_s is None else 2 * model.params_active / row_s,
        None if tile_s is None else 2 * model.params_active * ROWS_OF_TILE / tile_s,
    )


def _batches_s(points: Sequence[OperatingPoint], step_s: float) -> tuple[float | None, float | None]:
    """Return the seconds that a second sequence, and four together, add to a step; None where not measured.

    `step_s`: a step of one sequence. Points at the shortest context count.
    """
    shortest = min(point.prompt_len for point in points if point.token_s is not None)
    batches = {
        point.running: point.token_s
        for point in points
        if point.token_s and point.prompt_len < shortest + MIN_CONTEXTS_APART
    }
    rows = [(token_s - step_s) / (n - 1) for n, token_s in batches.items() if 1 < n < ROWS_OF_TILE]
    if not rows:
        return None, None
    row_s = min(max(statistics.median(rows), MIN_SHARE * step_s), (1 - MIN_SHARE) * step_s)
    tiles = [
        (token_s - (step_s - row_s)) / (n // ROWS_OF_TILE) for n, token_s in batches.items() if n % ROWS_OF_TILE == 0
    ]
    return row_s, min(max(statistics.fmean(tiles), row_s), ROWS_OF_TILE * row_s) if tiles else None


def _attention_flops(model: Model, short: tuple[float, float], long: tuple[float, float]) -> float | None:
    """Return the rate of one query's products with the cache, from two (context, seconds of a step); None if unknown.

    They are 4 FLOPs for each layer, cached token and value of the hidden size.
    """
    tokens, longer_s = long[0] - short[0], long[1] - short[1]
    if model.n_layers is None or model.params_active is None or tokens < MIN_CONTEXTS_APART or longer_s <= 0:
        return None
    hidden_size = math.sqrt(model.params_active / (12 * model.n_layers))
    return 4 * model.n_layers * hidden_size * tokens / longer_s


def cpu_accelerator(
    name: str, rates: Mapping[tuple[str, str], MeasuredRates], memory_bytes: int, as_of: date
) -> Accelerator:
    """Return CPUs of this name as hardware, with at least one measured rate by engine and weight dtype."""
    flops = max(rate.flops for rate in rates.values())
    return Accelerator(
        name=name,
        reported_names=(),
        vendor="",
        arch=CPU_ARCH,
        compute_capability=None,
        memory_bytes=memory_bytes,
        memory_bytes_per_s=max(rate.memory_bytes_per_s for rate in rates.values()),
        fp16_flops=flops,
        fp8_flops=None,
        int8_flops=flops,
        fp4_flops=None,
        tdp_w=None,
        interconnect="",
        interconnect_bytes_per_s=None,
        source="measured on the host by a probe",
        as_of=as_of,
        confidence="measured",
        measured={(cpu_kernels(engine), dtype): measured_rates for (engine, dtype), measured_rates in rates.items()},
    )


LOOKED_BACK_S = 3600
"""Only deployments that served within this time can be probed."""
_FIELDS = {field.name for field in fields(OperatingPoint)}


@dataclass(frozen=True, slots=True)
class Probed:
    """The recorded deployment at an endpoint."""

    deployment_id: int
    name: str
    nano_usd_per_hour: int | None
    """Price of all its devices; None if one has no price."""


def probed_deployment(store: Store, endpoint: str, host_name: str, now_ts: int) -> Probed | None:
    """Return the recorded deployment at an endpoint; None if there is none, or several match.

    A loopback address belongs to the host `host_name`. Raises StoreError.
    """
    with bill(store, now_ts - LOOKED_BACK_S, now_ts) as priced:
        inventory, prices = priced.inventory, priced.prices
    address = _address(endpoint)
    local = address is not None and address[0] == LOCAL
    matches = [
        row
        for row in inventory.running.values()
        if _address(row.base_url) == address and (row.host_name == host_name or not local)
    ]
    if len(matches) != 1:
        return None
    (row,) = matches
    rates = prices.rates(inventory.held(row.epoch_id), now_ts)
    known_rates = [rate for rate in rates if rate is not None]
    total_rate = sum(known_rates) if known_rates and len(known_rates) == len(rates) else None
    return Probed(row.deployment_id, row.served_model, total_rate)


LOCAL = "loopback"


def _address(url: str) -> tuple[str, int] | None:
    """Return host and port of a URL, with `LOCAL` for all loopback addresses; None for any other than an HTTP URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.hostname is None:
        return None
    return LOCAL if _is_loopback(parts.hostname) else parts.hostname, parts.port or (
        443 if parts.scheme == "https" else 80
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def keep(
    where: StoreLocation,
    deployment_id: int,
    started_ts: int,
    ended_ts: int,
    endpoint: str,
    who: str,
    points: Sequence[OperatingPoint],
    more: Mapping[str, object],
) -> None:
    """Store the points that a probe measured, with further facts, in the advice database. Raises StoreError."""
    with AdviceRepository(where).writing() as connection:
        repository.add_probe(
            connection,
            deployment_id=deployment_id,
            started_ts=started_ts,
            ended_ts=ended_ts,
            endpoint=endpoint,
            who=who,
            body=json.dumps({**more, "points": [asdict(point) for point in points]}),
        )


def probe_points(store: Store, inventory: Inventory, now_ts: int) -> Mapping[int, tuple[OperatingPoint, ...]]:
    """Return the points that probes measured in the present epoch of each deployment, by deployment id.

    A change of engine, version, driver, model or knob ends the epoch and invalidates its measurements.
    """
    if store.advice is None:
        return {}
    with store.read("advice") as connection:
        rows = repository.probes(connection)
    by_deployment: dict[int, list[OperatingPoint]] = defaultdict(list)
    for row in rows:
        epoch = inventory.running.get(row.deployment_id)
        if epoch is not None and epoch.start_ts <= row.started_ts and row.ended_ts <= now_ts:
            by_deployment[row.deployment_id] += _points(row.body)
    return {deployment_id: tuple(points) for deployment_id, points in by_deployment.items()}


def _points(body: str) -> list[OperatingPoint]:
    points = json.loads(body)["points"]
    return [OperatingPoint(**{name: value for name, value in point.items() if name in _FIELDS}) for point in points]
