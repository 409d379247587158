"""Recognition of demos: all hosts of a demo have a machine id that marks them as generated."""

from pathlib import Path

from sqlalchemy import select

from pertoken.errors import BadInput
from pertoken.store.connect.location import StoreLocation, person_folder
from pertoken.store.connect.open import open_store
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.words import DEMO_MACHINE


def machine_id(host: str) -> str:
    """Return the machine id of a generated host."""
    return DEMO_MACHINE + host


def default_folder() -> Path:
    """Return the default folder of demos: beside the user's own database, never in it."""
    return person_folder() / "demo"


def refuse_real(location: StoreLocation) -> None:
    """Raise BadInput if a database holds telemetry of real hosts."""
    if location.folder is not None and not location.exists("telemetry"):
        if location.exists("advice"):
            raise BadInput(f"{location}: holds advice on real hosts; give the demo another folder with --db")
        return
    with open_store(location).read() as connection:
        known = connection.execute(select(t.host.c.name, t.host.c.machine_id)).all()
    real = [row.name for row in known if not (row.machine_id or "").startswith(DEMO_MACHINE)]
    if real:
        raise BadInput(
            f"{location}: holds telemetry of real hosts ({', '.join(real[:3])}); give the demo another folder with --db"
        )
