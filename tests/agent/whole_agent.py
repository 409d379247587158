"""A real `pertoken agent` over the stand-in driver as a compiled library, and what it has stored so far."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from pertoken.agent.rows.devices import device_id_of
from pertoken.errors import StoreError
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.store.schema import telemetry as t
from tests.standin_nvml import Gpu, Machine, set_machine
from tests.standin_nvml.shared import compiled

DEADLINE_S = 60.0
MEASURED = (
    "util_1e4",
    "memory_used_bytes",
    "power_mw",
    "energy_counter_mj",
    "energy_integral_mj",
    "sm_clock_mhz",
    "throttle_reasons",
    "sm_active_1e4",
    "tensor_active_1e4",
    "dram_active_1e4",
)
"""What a healthy GPU of the stand-in has in every row."""


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline, f"waited {DEADLINE_S:.0f} s for {what}"
        time.sleep(0.2)


@dataclass(frozen=True)
class Recorded:
    """Records of an agent in `folder`; a file there describes its machine."""

    folder: Path
    process: "subprocess.Popen[bytes]"

    def set_machine(self, gpus: Sequence[Gpu], **others: Any) -> None:
        """Make the machine this one from the next driver call on."""
        set_machine(self.folder / "machine", Machine(gpus=tuple(gpus), **others))

    def ask(self, query: Any) -> list[Any]:
        return ask(self.folder, query)

    def latest(self) -> dict[str, Any]:
        """Return the newest row of each device, by UUID."""
        newest = select(func.max(t.device_sample.c.ts)).scalar_subquery()
        query = select(t.device.c.uuid, t.device_sample).join_from(
            t.device_sample, t.device, t.device.c.device_id == t.device_sample.c.device_id
        )
        return {row.uuid: row for row in self.ask(query.where(t.device_sample.c.ts == newest))}

    def faulty(self, gpus: Sequence[Gpu]) -> dict[str, tuple[str, ...] | None]:
        """By UUID what of `MEASURED` the newest row of each of these does not have (None: no row); nothing of those
        that have all."""
        rows = self.latest()
        pending = {
            gpu.uuid: tuple(name for name in MEASURED if getattr(rows[gpu.uuid], name) is None)
            if gpu.uuid in rows
            else None
            for gpu in gpus
        }
        return {uuid: names for uuid, names in pending.items() if names != ()}

    def reasons(self, uuid: str) -> dict[str, str]:
        """Return why each metric of a device cannot be read now."""
        table = t.capability
        query = select(table).where(table.c.owner_id == device_id_of(uuid), table.c.status != "ok")
        return {row.metric: row.reason for row in self.ask(query)}

    def kinds(self, uuid: str | None = None) -> set[str]:
        """Return the kinds of all events, or of those of one device."""
        query = select(t.event.c.kind)
        if uuid is not None:
            query = query.where(t.event.c.subject_id == device_id_of(uuid))
        return {row.kind for row in self.ask(query)}


@contextmanager
def agent(folder: Path, machine: Machine) -> Iterator[Recorded]:
    """`pertoken agent` on this machine, past its first tick; ended by SIGTERM, and well."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pertoken", "agent", "--db", str(folder / "db"), "--interval", "1s"],
            stderr=log,
            env=compiled(machine, folder) | {"PERTOKEN_AGENT_DISCOVER": "false", "PERTOKEN_AGENT_PROBES": "nvidia"},
        )
        recorded = Recorded(folder, process)
        try:
            until(lambda: process.poll() is not None or recorded.latest(), "the first tick")
            assert process.poll() is None, (folder / "log").read_text()
            yield recorded
            assert process.poll() is None, (folder / "log").read_text()
        finally:
            process.terminate()
            process.wait(DEADLINE_S)
    assert process.returncode == 0, (folder / "log").read_text()


def ask(folder: Path, query: Any) -> list[Any]:
    try:
        with open_store(locate(str(folder / "db"))).read() as connection:
            return list(connection.execute(query).all())
    except StoreError:
        return []
