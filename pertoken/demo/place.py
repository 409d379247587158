"""Place of a demo: databases it may replace, its removal, and the folder of its settings.

A demo replaces only an earlier demo. On a server that is the whole content of the schemas `telemetry` and `advice`.
"""

from pathlib import Path

from sqlalchemy import Connection, select
from sqlalchemy.schema import DropSchema

from pertoken.demo.rows import is_demo
from pertoken.errors import BadInput
from pertoken.store.connect.location import GROUPS, StoreLocation, person_folder
from pertoken.store.connect.open import altering, explained, open_store, reading, revision
from pertoken.store.integrity.checksums import high_water_mark_file
from pertoken.store.schema import telemetry as t

FOLDER, SERVER_FOLDER = "demo", "demo-server"
_LEFT_BY_A_DEMO = ("telemetry.db*", high_water_mark_file(Path("telemetry.db")).name, "advice.db*", "pertoken.toml")
"""Files of an earlier demo, which a new one replaces."""


def default_folder() -> Path:
    """Return the default folder of demos: beside the user's own database, never in it."""
    return person_folder() / FOLDER


def settings_folder(location: StoreLocation) -> Path:
    """Return the folder of a demo's settings: that of its database; of a server a folder of the user's own."""
    return location.folder or person_folder() / SERVER_FOLDER


def refuse_real(location: StoreLocation) -> None:
    """Raise BadInput for a database that holds anything but a demo."""
    if location.url is not None:
        _refuse_real_server(location)
        return
    if not location.exists("telemetry"):
        if location.exists("advice"):
            raise BadInput(f"{location}: holds advice on real hosts; give the demo another folder with --db")
        return
    with open_store(location).read() as connection:
        real = _real_hosts(connection)
    if real:
        raise BadInput(
            f"{location}: holds telemetry of real hosts ({', '.join(real[:3])}); give the demo another folder with --db"
        )


def clear(location: StoreLocation) -> None:
    """Remove an earlier demo, which `refuse_real` let pass."""
    if location.folder is not None:
        for pattern in _LEFT_BY_A_DEMO:
            for file in location.folder.glob(pattern):
                file.unlink()
        return
    with explained(location), altering(location, "telemetry").begin() as connection:
        for group in GROUPS:
            connection.execute(DropSchema(group, cascade=True, if_exists=True))


def _refuse_real_server(location: StoreLocation) -> None:
    engine = reading(location, "telemetry")
    with explained(location):
        revisions = {group: revision(engine, group) for group in (*GROUPS, "fleet")}
        with engine.connect() as connection:
            foreign = [group for group in GROUPS if revisions[group] is None and _has_tables(connection, group)]
            hosts = 0 if revisions["telemetry"] is None else len(connection.execute(select(t.host.c.name)).all())
            real = _real_hosts(connection) if hosts else []
    if foreign:
        problem = f"its schema {foreign[0]} has tables that are not pertoken's"
    elif real:
        problem = f"holds telemetry of real hosts ({', '.join(real[:3])})"
    elif any(revisions.values()) and (not hosts or revisions["fleet"] is not None):
        problem = "is set up for real hosts"
    else:
        return
    raise BadInput(f"{location}: {problem}; give the demo an empty database with --db")


def _has_tables(connection: Connection, schema: str) -> bool:
    return bool(connection.dialect.get_table_names(connection, schema=schema))


def _real_hosts(connection: Connection) -> list[str]:
    hosts = connection.execute(select(t.host.c.name, t.host.c.machine_id)).all()
    return [row.name for row in hosts if not is_demo(row.machine_id)]
