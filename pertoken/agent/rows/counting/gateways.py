"""Pages of gateways as rows: what tenants' counters grew by, filed under an epoch of the gateway's own.

A gateway is stored as an engine that serves no model (`found_by` is `gateway`), so that its counters are rolled up,
checked, kept and shipped as those of engines are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pertoken.agent.readings import GatewayReading
from pertoken.agent.rows.counting import life_ids
from pertoken.agent.rows.counting.counters import advance, rebase
from pertoken.agent.rows.epochs import follow
from pertoken.agent.rows.tick_state import Moment, TickState
from pertoken.store.schema.rows import (
    CounterState,
    DeploymentRow,
    EngineCounterSample,
    EngineRow,
    EpochRow,
    Event,
)
from pertoken.store.schema.shared import GATEWAY, stable_id


@dataclass(frozen=True, slots=True)
class GatewayRows:
    """Rows of all gateways that were read for a tick."""

    engines: tuple[EngineRow, ...] = ()
    deployments: tuple[DeploymentRow, ...] = ()
    epochs: Mapping[int, EpochRow] = field(default_factory=dict)
    """By deployment."""
    samples: tuple[EngineCounterSample, ...] = ()
    states: tuple[CounterState, ...] = ()
    forgotten: tuple[tuple[int, str], ...] = ()
    taken: tuple[int, ...] = ()
    """Ids of the gateways whose counters were taken."""
    events: tuple[Event, ...] = ()


def gateway_rows(
    tick_state: TickState, readings: Iterable[GatewayReading], host_id: int, moment: Moment, *, baseline: bool
) -> GatewayRows:
    """Return the rows of these pages. With `baseline`, counters are left for the first real tick to take.

    Counters of the first page are only remembered; a series that appears on a later one counts from 0. What a page
    cannot count for certain is not counted: it stays unattributed.
    """
    rows = GatewayRows()
    for reading in () if baseline else readings:
        rows = _with(rows, tick_state, reading, host_id, moment)
    return rows


def _with(
    rows: GatewayRows, tick_state: TickState, reading: GatewayReading, host_id: int, moment: Moment
) -> GatewayRows:
    engine_id = stable_id("gateway", host_id, reading.base_url)
    deployment_id = stable_id("deployment", engine_id, GATEWAY)
    life = None if reading.life_ms is None else life_ids.page_life(reading.life_ms)
    epoch = follow(
        tick_state.epochs.get(deployment_id),
        deployment_id=deployment_id,
        knobs={},
        engine_version=None,
        device_ids=(),
        restarted=False,
        ts=moment.ts,
    )
    known, since_page_ms = tick_state.counters.get(engine_id, {}), tick_state.since_page_ms(engine_id, moment)
    lives = {state.life for state in known.values()}
    events = rows.events
    if (
        lives
        and life not in lives
        and reading.life_ms is not None
        and reading.life_ms <= moment.wall_ms - since_page_ms
    ):
        # It ran already when another process answered: each counts a part of the requests, and nothing adds them up.
        reason = f"{reading.base_url}: several processes of the gateway answer in turn, so that none is counted"
        events = (*events, Event("gateway_in_turn", f"{reason}; let them share PROMETHEUS_MULTIPROC_DIR", engine_id))
        taken = rebase(known, reading.counters, owner_id=engine_id, life=life, ts=moment.ts, reason=reason)
    else:
        taken = advance(
            known,
            reading.counters,
            owner_id=engine_id,
            life=life,
            ts=moment.ts,
            from_zero=engine_id in tick_state.pages,  # its page was seen before it had counted anything
            elapsed_s=since_page_ms / 1000,
        )
    deltas: dict[str, int] = {}
    for series, delta in taken.deltas.items():
        if delta:
            metric = reading.metric_of[series]
            deltas[metric] = deltas.get(metric, 0) + delta
    return GatewayRows(
        engines=(
            *rows.engines,
            EngineRow(engine_id, host_id, reading.kind, reading.base_url, None, None, None, None, GATEWAY, life),
        ),
        deployments=(*rows.deployments, DeploymentRow(deployment_id, engine_id, host_id, reading.kind)),
        epochs={**rows.epochs, deployment_id: epoch},
        samples=(
            *rows.samples,
            *(EngineCounterSample(epoch.epoch_id, metric, moment.ts, delta) for metric, delta in deltas.items()),
        ),
        states=(*rows.states, *taken.moved),
        forgotten=(*rows.forgotten, *((engine_id, series) for series in taken.forgotten)),
        taken=(*rows.taken, engine_id),
        events=events,
    )
