"""Epochs: an interval in which a deployment's knobs, model, engine version and devices stay the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from urllib.parse import urlsplit

from pertoken.agent.readings import Endpoint
from pertoken.settings.owners import JOB, SLICE
from pertoken.state.deployment import WORKLOAD, changed_owner, is_owner_knob, owner_of
from pertoken.store.schema.rows import EpochRow
from pertoken.store.schema.shared import DRIVER, stable_id

KEPT_UP_TO_DATE = frozenset({"lora_adapters"})
"""Knobs that begin no epoch. Clients load adapters as often as they like: an epoch for each would leave rules nothing
but minutes to look at."""


def follow(
    previous: EpochRow | None,
    *,
    deployment_id: int,
    knobs: Mapping[str, object],
    engine_version: str | None,
    device_ids: tuple[int, ...],
    restarted: bool,
    ts: int,
    driver_version: str | None = None,
) -> EpochRow:
    """Return the epoch a deployment is in at `ts`: the one before, or a new one if something known changed.

    A value that becomes known completes the epoch, as does a knob of `KEPT_UP_TO_DATE`. A restart alone begins none;
    after one, a knob that is no longer set has changed, while before one it may merely not have answered. The driver of
    its devices and its owner are stored among the knobs; one that was not read this time has not changed. Another owner
    begins an epoch, so that each pays for its own time.
    """
    knobs = knobs if driver_version is None else {**knobs, DRIVER: driver_version}
    if previous is None:
        return _begin(deployment_id, knobs, engine_version, device_ids, ts)
    stored, reported = json.loads(previous.knobs), {name: knob for name, knob in knobs.items() if knob is not None}
    owners = {name for name in stored.keys() | knobs.keys() if is_owner_knob(name)}
    lost = stored.keys() - knobs.keys() - KEPT_UP_TO_DATE - {DRIVER}
    changed = (
        any(stored[name] != knobs[name] for name in (stored.keys() & knobs.keys()) - KEPT_UP_TO_DATE - owners)
        or changed_owner(stored, knobs)
        or (restarted and bool(lost - owners | lost & {JOB, SLICE}))
        or (previous.engine_version and engine_version and previous.engine_version != engine_version)
        or (previous.device_ids and device_ids and previous.device_ids != device_ids)
    )
    if changed:
        return _begin(deployment_id, knobs, engine_version, device_ids, ts)
    version, devices = previous.engine_version or engine_version, previous.device_ids or device_ids
    if WORKLOAD in stored and owner_of(knobs, "workload") is None:
        reported.pop(WORKLOAD, None)  # less of it can be read now
    merged = {**stored, **reported}
    if merged != stored or (version, devices) != (previous.engine_version, previous.device_ids):
        return replace(previous, knobs=canonical(merged), engine_version=version, device_ids=devices)
    return previous


def _begin(
    deployment_id: int, knobs: Mapping[str, object], version: str | None, device_ids: tuple[int, ...], ts: int
) -> EpochRow:
    text = canonical(knobs)
    return EpochRow(
        epoch_id=stable_id("epoch", deployment_id, ts, text, version or "", *device_ids),
        deployment_id=deployment_id,
        start_ts=ts,
        end_ts=None,
        engine_version=version,
        knobs=text,
        device_ids=device_ids,
    )


def canonical(knobs: Mapping[str, object]) -> str:
    """Return knobs as JSON with sorted keys, unknown ones left out."""
    return json.dumps({name: value for name, value in sorted(knobs.items()) if value is not None})


def engine_id_of(host_id: int, endpoint: Endpoint, stored: Mapping[int, str]) -> int:
    """Return the id of an engine: of its host, its kind and its address.

    `stored`: base URLs of this host's engines in the database, by engine id, as this agent found them at its start.

    One address is one engine, whichever process answers there. An engine keeps its id when it or the agent is
    restarted, and when it is found by its process after it was named by its URL. 127.0.0.1, `localhost` and a socket
    bound to every address are the same address; one process found at several addresses is read at one (`Watch`). Two
    addresses with the same port (two network cards, IPv4 and IPv6, an alias) are two engines.

    Ids used to be of the port alone. That id still names the engine at 127.0.0.1, or the one address it is stored
    with, so that databases go on; every other address has an id of its own. An engine whose page counts for several
    models has an id for each of them.
    """
    which = () if endpoint.model is None else (endpoint.model,)
    if endpoint.port is not None:
        by_port = stable_id("engine", host_id, endpoint.kind, endpoint.port, *which)
        if _host_and_path(endpoint.base_url) == _host_and_path(stored.get(by_port, "http://127.0.0.1")):
            return by_port
    return stable_id("engine", host_id, endpoint.kind, endpoint.base_url, *which)


@lru_cache(256)
def _host_and_path(base_url: str) -> tuple[str, str]:
    """Return host and path of a URL: the difference between two engines on one port."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    return "127.0.0.1" if host == "localhost" else host, parts.path.rstrip("/")


@cache
def bucket_set_id(bounds: tuple[float, ...]) -> int:
    """Return the id of a set of upper bounds."""
    return stable_id("buckets", *map(repr, bounds))
