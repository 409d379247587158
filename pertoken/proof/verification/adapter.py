"""Verification questions made from telemetry: hours of a deployment and its siblings, and other changes."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from pertoken.evidence import Comparison
from pertoken.proof.verification.question import (
    WEEK_OF_HOURS,
    Covariate,
    Cycle,
    EventKind,
    OtherChange,
    Outputs,
    Promise,
    Question,
    Signal,
)
from pertoken.proof.verification.windows import NotEstimable, washout_s
from pertoken.state.deployment import knobs
from pertoken.store.schema.shared import CONNECTOR, DRIVER
from pertoken.units import format_utc
from pertoken.window.epochs import hours_in_turn, joined, together
from pertoken.window.inventory import KnownEpoch
from pertoken.window.like_for_like import HourlyOutcomes
from pertoken.window.reading import Window

SPLIT_ROLES = frozenset({"prefill", "decode"})
"""Roles of servers that each compute one phase of a request."""
CACHE_KNOBS = frozenset({"enable_prefix_caching", "kv_offload_bytes", "kv_dtype", "gpu_memory_utilization"})
"""Knobs that save by changing the number of prompt tokens found in the cache."""
DRAFT_KNOBS = frozenset({"num_speculative_tokens", "speculative_method", "speculative_model"})
"""Knobs of speculative decoding, which change the share of accepted draft tokens."""
EpochDevices = tuple[KnownEpoch, Sequence[int]]
"""An epoch and the ids of its devices."""


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
) -> Question | NotEstimable:
    """Return the question about a change at `changed_at`, or the reason why its hours cannot be used.

    `window_before` ends and `window_after` begins at the change or within its hour. Siblings without usable hours, or
    changed since the start of the baseline, are left out. `price_changes`: their times, epoch seconds.
    `through`: covariates of `acts_through`. `meant` and `checked`: fields of `Outputs`. `halves`: deployments of
    `halves_of`; their hours are added, and their changes within the washout belong to this change.
    """
    windows, deployment_ids = (window_before, window_after), (deployment_id, *halves)
    hours = _hours(windows, deployment_ids, cycle)
    if isinstance(hours, NotEstimable):
        return hours
    events = [event for event in _changes(windows, deployment_id) if event.ts != changed_at]
    for half in halves:
        events += [event for event in _changes(windows, half) if abs(event.ts - changed_at) > washout_s(cycle)]
    others = (sibling for sibling in siblings if sibling not in deployment_ids)
    sibling_hours = _sibling_hours(windows, others, events, changed_at, cycle)
    events += [
        OtherChange(ts, EventKind.PRICE, f"its price changed at {format_utc(ts)}")
        for ts in price_changes
        if window_before.start <= ts < window_after.end
    ]
    counts = joined(*(together([window.outputs(key, cycle.bucket_s) for key in deployment_ids]) for window in windows))
    return Question(
        hours,
        changed_at,
        window_after.end,
        siblings=sibling_hours,
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
) -> Question | NotEstimable:
    """Return the question about a future change, at the end of a window, or why its hours cannot be used."""
    hours = _hours((window,), (deployment_id,), cycle)
    if isinstance(hours, NotEstimable):
        return hours
    events = _changes((window,), deployment_id)
    others = (sibling for sibling in siblings if sibling != deployment_id)
    return Question(
        hours,
        window.end,
        window.end,
        siblings=_sibling_hours((window,), others, events, window.end, cycle),
        promise=promise,
        events=tuple(events),
        acts_through=through,
        cycle=cycle,
    )


def halves_of(windows: Iterable[Window], deployment_id: int) -> tuple[int, ...]:
    """Return the other deployments that share requests with one, as prefill and decode servers do; mostly none.

    All serve the same model, and each has one of `SPLIT_ROLES` or a KV connector in one of the windows.
    """
    model_by_id: dict[int, str] = {}
    halves: set[int] = set()
    for window in windows:
        model_by_id.update({key: row.served_model for key, row in window.inventory.newest.items()})
        for key, rows in window.inventory.epochs_of.items():
            halves.update(key for row in rows if _is_half(json.loads(row.knobs)))
    if deployment_id not in halves:
        return ()
    return tuple(
        sorted(key for key in halves - {deployment_id} if model_by_id.get(key) == model_by_id.get(deployment_id))
    )


def acts_through(changed_knobs: Iterable[str]) -> frozenset[Covariate]:
    """Return the covariates that a change of these knobs alters on purpose: hours are not matched by them."""
    return frozenset({Covariate.CACHE} if CACHE_KNOBS.intersection(changed_knobs) else ())


def meant(changed_knobs: Iterable[str]) -> frozenset[Signal]:
    """Return the output signals that a change of these knobs alters on purpose: the guard does not compare them."""
    return frozenset({Signal.ACCEPTED} if DRAFT_KNOBS.intersection(changed_knobs) else ())


def _sibling_hours(
    windows: Sequence[Window], siblings: Iterable[int], events: Iterable[OtherChange], changed_at: int, cycle: Cycle
) -> tuple[HourlyOutcomes, ...]:
    """Return the usable hours of siblings that did not change after the last other change and its washout."""
    earlier_changes = (event.ts for event in events if event.ts < changed_at)
    usable_from = max([windows[0].start, *earlier_changes]) + washout_s(cycle)
    unchanged = [key for key in siblings if all(event.ts <= usable_from for event in _changes(windows, key))]
    outcomes = [_hours(windows, (key,), cycle) for key in unchanged]
    return tuple(hours for hours in outcomes if isinstance(hours, HourlyOutcomes))


def _is_half(epoch_knobs: Mapping[str, object]) -> bool:
    return epoch_knobs.get("role") in SPLIT_ROLES or epoch_knobs.get(CONNECTOR) is not None


def _hours(windows: Sequence[Window], deployment_ids: Sequence[int], cycle: Cycle) -> HourlyOutcomes | NotEstimable:
    hours_by_window = []
    for window in windows:
        hours = (
            window.outcomes(deployment_ids[0], cycle.bucket_s)
            if len(deployment_ids) == 1
            else window.outcomes_together(deployment_ids, cycle.bucket_s)
        )
        if isinstance(hours, Comparison):
            return NotEstimable(hours.code or "not-measured", hours.reason or "its hours are not measured")
        hours_by_window.append(hours)
    return hours_in_turn(hours_by_window)


def _changes(windows: Sequence[Window], deployment_id: int) -> list[OtherChange]:
    """Return the changes of a deployment within the windows: one event per epoch after the first."""
    epochs: dict[int, EpochDevices] = {}
    for window in windows:
        for row in window.inventory.epochs_of.get(deployment_id, ()):
            epochs[row.epoch_id] = row, window.inventory.epoch_devices.get(row.epoch_id, ())
    in_order = sorted(epochs.values(), key=lambda epoch: epoch[0].start_ts)
    return [
        OtherChange(later[0].start_ts, *_change(earlier, later))
        for earlier, later in pairwise(in_order)
        if later[0].start_ts < windows[-1].end
    ]


def _change(earlier: EpochDevices, later: EpochDevices) -> tuple[EventKind, str]:
    """Return the kind of the most important difference between two epochs, and all differences as text."""
    differences = list(_differences(earlier, later))
    if not differences:
        return EventKind.KNOBS, "restarted as it was, or with settings that are not read"
    return differences[0][0], "; ".join(text for _, text in differences)


def _differences(earlier: EpochDevices, later: EpochDevices) -> Iterator[tuple[EventKind, str]]:
    """Yield the differences between two epochs, the most important first."""
    (old, old_devices), (new, new_devices) = earlier, later
    old_knobs, new_knobs = json.loads(old.knobs), json.loads(new.knobs)
    if old.engine_version != new.engine_version:
        yield EventKind.ENGINE, f"engine {_text(old.engine_version)} → {_text(new.engine_version)}"
    if old_knobs.get(DRIVER) != new_knobs.get(DRIVER):
        yield EventKind.DRIVER, f"driver {_text(old_knobs.get(DRIVER))} → {_text(new_knobs.get(DRIVER))}"
    if set(old_devices) != set(new_devices):
        yield EventKind.DEVICES, f"devices {len(old_devices)} → {len(new_devices)}"
    for name in knobs():
        if old_knobs.get(name) != new_knobs.get(name):
            yield EventKind.KNOBS, f"{name} {_text(old_knobs.get(name))} → {_text(new_knobs.get(name))}"


def _text(value: object) -> str:
    return "unknown" if value is None else str(value)
