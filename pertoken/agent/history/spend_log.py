"""Import of a gateway's spend log into a folder: tokens of tenants beside what agents recorded.

They are stored as counters of the gateway, as its page would be: with the address that [[gateways]] has, so that what
was read from the page and what a log holds of one gateway is counted once (`window.tenants.gateways`).
"""

from dataclasses import dataclass

from pertoken.agent.gateways.adapters import LITELLM
from pertoken.agent.gateways.spend_log import SpendLog
from pertoken.errors import BadInput
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store
from pertoken.store.query.read import gateway_counted_until, newest_host
from pertoken.store.schema.rows import (
    DeploymentRow,
    EngineCounterSample,
    EngineRow,
    EpochRow,
    Tick,
)
from pertoken.store.schema.shared import GATEWAY, stable_id
from pertoken.store.schema.telemetry import MINUTE
from pertoken.store.write.writer import Writer

_LOG = "spend log"
"""Part of the ids of what is imported: a gateway whose page is read, too, has ids of its own."""


@dataclass(frozen=True, slots=True)
class ImportedLog:
    """Rows that an import stored."""

    first_ts: int | None
    last_ts: int | None
    """Minutes that were stored; None for none."""
    tokens: int
    left_out_minutes: int
    """Minutes that are not newer than what was imported before."""


def import_spend_log(log: SpendLog, url: str, store: Store, place: StoreLocation) -> ImportedLog:
    """Store the tokens of a log, from the minute on that the import before it ended with.

    Raises BadInput where no host was recorded, StoreError where the folder cannot be written.
    """
    engine_id = stable_id("gateway", _LOG, url)
    with store.read() as connection:
        host = newest_host(connection)
        until = gateway_counted_until(connection, engine_id)
    if host is None:
        raise BadInput(f"{place}: no host was recorded: tokens of tenants are joined with those of engines")
    deployment_id = stable_id("deployment", engine_id, GATEWAY)
    fresh = {minute: of for minute, of in log.tokens.items() if until is None or minute >= until}
    if not fresh:
        return ImportedLog(None, None, 0, len(log.tokens))
    first, last = min(fresh), max(fresh) + MINUTE
    epoch = EpochRow(stable_id("epoch", deployment_id, first), deployment_id, first, last, None, "{}", ())
    engine = EngineRow(engine_id, host.host_id, LITELLM.kind, url, None, None, None, None, GATEWAY)
    deployment = DeploymentRow(deployment_id, engine_id, host.host_id, LITELLM.kind)
    with Writer(place) as writer:
        for minute, of in fresh.items():
            ts = minute + MINUTE // 2  # inside of the minute, so that no edge moves it to another one
            samples = tuple(EngineCounterSample(epoch.epoch_id, metric, ts, count) for metric, count in of.items())
            writer.commit(Tick(ts, host, (), (engine,), (deployment,), (epoch,), samples))
        writer.roll_up()
    tokens = sum(count for of in fresh.values() for count in of.values())
    return ImportedLog(first, last, tokens, len(log.tokens) - len(fresh))
