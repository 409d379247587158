"""Trouble of a fleet beside one host: a clone of it that ships, a card of it in another host, a lost partition."""

import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import text

from pertoken.errors import StoreError
from pertoken.store.central.server import TIMED
from pertoken.store.connect.location import DatabaseServer, StoreLocation, locate
from pertoken.store.connect.open import reading, writing
from pertoken.store.schema.rows import DeviceRow, DeviceSample, Tick
from pertoken.store.schema.shared import stable_id
from pertoken.store.write.writer import Writer
from tests.chaos.recorder import CARDS, tick_at
from tests.fleet.servers import local_rows, rolled, shipper
from tests.values import host_row, host_sample, new_store

SILENT_S = 400
"""Longer than a server believes that another machine still ships (`fleet.LEASE_S`)."""


def silence(owner: StoreLocation) -> None:
    """Let so much time pass that another machine may ship what one shipped."""
    with writing(owner, "fleet").connect() as connection, connection.begin():
        connection.execute(text("UPDATE fleet.shipped SET shipped_ts = shipped_ts - :s"), {"s": SILENT_S})


def clone_ships(copy: Path, server: DatabaseServer, events: set[str]) -> dict[str, Any] | None:
    """Start a copy of the host's database as another machine, with rows of its own.

    Return what it shipped; None if it was refused.
    """
    clone, messages = locate(str(copy)), list[dict[str, Any]]()
    with Writer(clone) as writer:
        newest = max(writer.restored.newest_ts(host_row().host_id) or 0, 0)
        epoch_id = stable_id("epoch", "clone", newest)
        for n in range(1, 13):
            writer.commit(tick_at(newest + 10 * n, epoch_id, newest, 50 * n))
        writer.roll_up()
    try:
        shipper(clone, server, messages, boot_id="clone").round()
    except StoreError as error:
        assert "a clone needs a machine-id" in str(error), error
        assert "ship_cloned" in {message.get("kind") for message in messages}
        events.add("ship_cloned")
        return None
    events.update(str(message["kind"]) for message in messages if "kind" in message)
    return local_rows(clone)


def card_moves(folder: Path, owner: StoreLocation, server: DatabaseServer) -> None:
    """Let another host, with a login of its own, ship the card that the first host has."""
    host_id = stable_id("host", "other")
    row = replace(host_row(), host_id=host_id, name="gpu-2", machine_id="machine-2")
    card = DeviceRow(CARDS[0].device_id, host_id, "gpu", CARDS[0].uuid, "nvidia", "H100", 0)
    where = new_store(folder) if not folder.exists() else locate(str(folder))
    with Writer(where) as writer:
        writer.ship(True, raw=False)
        newest = writer.restored.newest_ts(host_id) or 1_790_000_000
        for n in range(1, 13):
            ts = newest + 10 * n
            sample = DeviceSample(card.device_id, ts, 10_000, 10_000, util_1e4=7, power_mw=7)
            samples = replace(host_sample(ts), host_id=host_id), sample
            writer.commit(Tick(ts=ts, host=row, devices=(card,), samples=samples))
        writer.roll_up()
    shipper(where, server).round()
    ours = {row[1:] for row in local_rows(where)["device_1m"]}
    with reading(owner, "telemetry").connect() as connection, connection.begin():
        alias = "SELECT stored_id FROM fleet.alias WHERE host_id = :host AND id = :id"
        stored = connection.execute(text(alias), {"host": host_id, "id": card.device_id}).scalar()
        held = rolled(connection, [card.device_id if stored is None else stored])["device_1m"]
    theirs = {rows[1:] for rows in held}
    assert ours and ours <= theirs, "the second host's rows of the card are not all there"


def partition_is_dropped(owner: StoreLocation, draw: random.Random) -> bool:
    """Drop a partition that has rows; return whether there was one."""
    names = [table.name for table in TIMED if not table.name.endswith("_sample")]
    with writing(owner, "fleet").connect() as connection, connection.begin():
        for name in draw.sample(names, len(names)):
            partition = connection.execute(
                text(f"SELECT tableoid::regclass::text FROM telemetry.{name} LIMIT 1")
            ).scalar()
            if partition is not None and not partition.endswith("_rest"):
                connection.execute(text("SET LOCAL lock_timeout = '10s'"))
                connection.execute(text(f"DROP TABLE {partition}"))
                return True
    return False


def copied(data: Path, copy: Path) -> None:
    """Copy the files of something that does not run, in place of what is there."""
    shutil.rmtree(copy, ignore_errors=True)
    subprocess.run(["cp", "-a", str(data), str(copy)], check=True)
