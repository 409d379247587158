"""Whether a database is a demo: all of its hosts were generated, which their machine ids record."""

from pathlib import Path

from sqlalchemy import select

from pertoken.errors import BadInput
from pertoken.store.connect.location import StoreLocation, person_folder
from pertoken.store.connect.open import open_store
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import DEMO_MACHINE


def machine_id(host: str) -> str:
    """Return the machine id of a generated host."""
    return DEMO_MACHINE + host


def default_folder() -> Path:
    """Return where a demo lies that names no place: beside this person's own database, never in it."""
    return person_folder() / "demo"


def refuse_real(place: StoreLocation) -> None:
    """Raise BadInput where a database holds telemetry of real hosts."""
    if place.folder is not None and not place.exists("telemetry"):
        if place.exists("advice"):
            raise BadInput(f"{place}: holds advice on real hosts; name a folder of its own for the demo by --db")
        return
    with open_store(place).read() as connection:
        known = connection.execute(select(t.host.c.name, t.host.c.machine_id)).all()
    real = [row.name for row in known if not (row.machine_id or "").startswith(DEMO_MACHINE)]
    if real:
        raise BadInput(
            f"{place}: holds telemetry of real hosts ({', '.join(real[:3])}); name a folder of its own by --db"
        )
