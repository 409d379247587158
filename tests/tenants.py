"""A seeded database in which a gateway counted tokens of tenants, too."""

import json
from collections.abc import Mapping
from dataclasses import replace

from pertoken.store.connect.location import StoreLocation
from pertoken.store.schema.rows import (
    DeploymentRow,
    EngineCounterSample,
    EngineRow,
    EpochRow,
    Tick,
)
from pertoken.store.schema.shared import GATEWAY, stable_id
from pertoken.store.write.writer import Writer
from tests.values import host_row


def metric(word: str, **labels: str) -> str:
    """Return the stored metric of a tenant's tokens."""
    pairs = ",".join(f"{name}={json.dumps(value)}" for name, value in sorted(labels.items()))
    return f"tenant_{word}_tokens{{{pairs}}}"


def count(
    where: StoreLocation,
    ts: int,
    counts: Mapping[str, int],
    host: str = "",
    url: str = "http://gw:4000",
    life: int | None = None,
) -> None:
    """Store what a gateway, read on a host, counted by `ts`. `life`: id of its process."""
    row = host_row(60)
    if host:
        row = replace(row, host_id=stable_id("host", host), name=host, machine_id=host)
    engine, deployment, epoch = (stable_id(group, "gateway", host, url) for group in ("engine", "deployment", "epoch"))
    tick = Tick(
        ts,
        row,
        engines=(EngineRow(engine, row.host_id, "litellm", url, None, None, None, None, GATEWAY, life),),
        deployments=(DeploymentRow(deployment, engine, row.host_id, "litellm"),),
        epochs=(EpochRow(epoch, deployment, ts, None, None, "{}", ()),),
        samples=tuple(EngineCounterSample(epoch, name, ts, delta) for name, delta in counts.items()),
    )
    with Writer(where) as writer:
        writer.commit(tick)
        writer.roll_up()
