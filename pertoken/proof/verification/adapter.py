"""Questions from two windows of telemetry: hours of a deployment and its siblings, and other changes."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from pertoken.evidence import Comparison
from pertoken.proof.verification.question import (
    WEEK_OF_HOURS,
    Covariate,
    Cycle,
    Event,
    EventKind,
    Outputs,
    Promise,
    Question,
    Signal,
)
from pertoken.proof.verification.windows import Refused, washout_s
from pertoken.state.deployment import knobs
from pertoken.store.schema.shared import CONNECTOR, DRIVER
from pertoken.units import format_utc
from pertoken.window.epochs import in_turn, joined, together
from pertoken.window.inventory import KnownEpoch
from pertoken.window.like_for_like import HourlyOutcomes
from pertoken.window.reading import Window

HALVES = frozenset({"prefill", "decode"})
"""Roles of servers that share each request with another one."""
HeldEpoch = tuple[KnownEpoch, Sequence[int]]
"""An epoch and the devices that it held."""
CACHE_KNOBS = frozenset({"enable_prefix_caching", "kv_offload_bytes", "kv_dtype", "gpu_memory_utilization"})
"""Knobs that save by changing the number of prompt tokens found in the cache."""


def acts_through(changed_knobs: Iterable[str]) -> frozenset[Covariate]:
    """Return the covariates that a change of these knobs is meant to alter. Hours are not matched in them."""
    return frozenset({Covariate.CACHE} if CACHE_KNOBS.intersection(changed_knobs) else ())


DRAFT_KNOBS = frozenset({"num_speculative_tokens", "speculative_method", "speculative_model"})


def meant(changed_knobs: Iterable[str]) -> frozenset[Signal]:
    """Return the signals of outputs that a change of these knobs is meant to alter."""
    return frozenset({Signal.ACCEPTED} if DRAFT_KNOBS.intersection(changed_knobs) else ())


def question(
    window_before: Window,
    window_after: Window,
    deployment_id: int,
    changed_at: int,
    *,
    siblings: Iterable[int] = (),
    promise: Promise | None = None,
    price_changes: Iterable[int] = (),
    through: frozenset[Covariate] = frozenset(),
    cycle: Cycle = WEEK_OF_HOURS,
    meant: frozenset[Signal] = frozenset(),
    checked: bool = False,
    halves: Sequence[int] = (),
) -> Question | Refused:
    """Return the question about a change at `changed_at`, or the reason why its hours cannot be used.

    `window_before` ends and `window_after` begins at the change or within its hour. Siblings that changed since the
    start of the baseline, or without usable hours, are left out. `price_changes`: times of price changes.
    `through`: see `acts_through`. `cycle`: length of a bucket and of a week. `meant` and `checked`: of its `Outputs`.
    `halves`: deployments that share its requests, see `halves_of`. Their hours count together, and their changes
    within the washout belong to this change.
    """
    windows, served_by = (window_before, window_after), (deployment_id, *halves)
    hours = _hours(windows, served_by, cycle)
    if isinstance(hours, Refused):
        return hours
    events = [event for event in _changes(windows, deployment_id) if event.ts != changed_at]
    for half in halves:
        events += [event for event in _changes(windows, half) if abs(event.ts - changed_at) > washout_s(cycle)]
    others = _siblings(windows, (key for key in siblings if key not in served_by), events, changed_at, cycle)
    events += [
        Event(ts, EventKind.PRICE, f"its price changed at {format_utc(ts)}")
        for ts in price_changes
        if window_before.start <= ts < window_after.end
    ]
    counts = joined(
        *(together([window.outputs(half, cycle.bucket_s) for half in served_by]) for window in windows),
    )
    return Question(
        hours,
        changed_at,
        window_after.end,
        siblings=others,
        promise=promise,
        events=tuple(sorted(events, key=lambda event: event.ts)),
        acts_through=through,
        cycle=cycle,
        outputs=Outputs(counts, meant, checked),
    )


def prospect(
    window: Window,
    deployment_id: int,
    *,
    siblings: Iterable[int] = (),
    promise: Promise | None = None,
    through: frozenset[Covariate] = frozenset(),
    cycle: Cycle = WEEK_OF_HOURS,
) -> Question | Refused:
    """Return the question about a change at the end of a window, or the reason why its hours cannot be used."""
    hours = _hours((window,), (deployment_id,), cycle)
    if isinstance(hours, Refused):
        return hours
    events = _changes((window,), deployment_id)
    siblings = (key for key in siblings if key != deployment_id)
    return Question(
        hours,
        window.end,
        window.end,
        siblings=_siblings((window,), siblings, events, window.end, cycle),
        promise=promise,
        events=tuple(events),
        acts_through=through,
        cycle=cycle,
    )


def _siblings(
    windows: Sequence[Window], siblings: Iterable[int], events: Iterable[Event], changed_at: int, cycle: Cycle
) -> tuple[HourlyOutcomes, ...]:
    """Return the usable hours of siblings that did not change since the last other change and its washout."""
    start = max([windows[0].start, *(event.ts for event in events if event.ts < changed_at)]) + washout_s(cycle)
    unchanged = [key for key in siblings if all(event.ts <= start for event in _changes(windows, key))]
    hours = [_hours(windows, (key,), cycle) for key in unchanged]
    return tuple(used for used in hours if isinstance(used, HourlyOutcomes))


def halves_of(windows: Iterable[Window], deployment_id: int) -> tuple[int, ...]:
    """Return the other deployments that share requests with one, as prefill and decode servers do; mostly none.

    They serve the same model, and each has such a role or a connector to other servers in one of the windows.
    """
    models: dict[int, str] = {}
    halves: set[int] = set()
    for window in windows:
        models.update({key: row.served_model for key, row in window.inventory.newest.items()})
        for key, rows in window.inventory.epochs_of.items():
            halves.update(key for row in rows if _is_half(json.loads(row.knobs)))
    if deployment_id not in halves:
        return ()
    return tuple(sorted(key for key in halves - {deployment_id} if models.get(key) == models.get(deployment_id)))


def _is_half(epoch_knobs: Mapping[str, object]) -> bool:
    return epoch_knobs.get("role") in HALVES or epoch_knobs.get(CONNECTOR) is not None


def _hours(windows: Sequence[Window], deployment_ids: Sequence[int], cycle: Cycle) -> HourlyOutcomes | Refused:
    used = []
    for window in windows:
        hours = (
            window.outcomes(deployment_ids[0], cycle.bucket_s)
            if len(deployment_ids) == 1
            else window.outcomes_together(deployment_ids, cycle.bucket_s)
        )
        if isinstance(hours, Comparison):
            return Refused(hours.code or "not-measured", hours.reason or "its hours are not measured")
        used.append(hours)
    return in_turn(used)


def _changes(windows: Sequence[Window], deployment_id: int) -> list[Event]:
    """Return the changes of a deployment within the windows: one event per epoch after the first."""
    epochs: dict[int, HeldEpoch] = {}
    for window in windows:
        for row in window.inventory.epochs_of.get(deployment_id, ()):
            epochs[row.epoch_id] = row, window.inventory.epoch_devices.get(row.epoch_id, ())
    ordered = sorted(epochs.values(), key=lambda held: held[0].start_ts)
    return [
        Event(later[0].start_ts, *_change(earlier, later))
        for earlier, later in pairwise(ordered)
        if later[0].start_ts < windows[-1].end
    ]


def _change(earlier: HeldEpoch, later: HeldEpoch) -> tuple[EventKind, str]:
    """Return the kind of the most important difference between two epochs, and a text of all differences."""
    differences = list(_differences(earlier, later))
    if not differences:
        return EventKind.KNOBS, "restarted as it was, or with settings that are not read"
    return differences[0][0], "; ".join(text for _, text in differences)


def _differences(earlier: HeldEpoch, later: HeldEpoch) -> Iterator[tuple[EventKind, str]]:
    (row, devices), (new, new_devices) = earlier, later
    old_knobs, new_knobs = json.loads(row.knobs), json.loads(new.knobs)
    if row.engine_version != new.engine_version:
        yield EventKind.ENGINE, f"engine {_known(row.engine_version)} → {_known(new.engine_version)}"
    if old_knobs.get(DRIVER) != new_knobs.get(DRIVER):
        yield EventKind.DRIVER, f"driver {_known(old_knobs.get(DRIVER))} → {_known(new_knobs.get(DRIVER))}"
    if set(devices) != set(new_devices):
        yield EventKind.DEVICES, f"devices {len(devices)} → {len(new_devices)}"
    for name in knobs():
        if old_knobs.get(name) != new_knobs.get(name):
            yield EventKind.KNOBS, f"{name} {_known(old_knobs.get(name))} → {_known(new_knobs.get(name))}"


def _known(value: object) -> str:
    return "unknown" if value is None else str(value)
