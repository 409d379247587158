"""A database that cannot be written for a while, or is held by a reader."""

import sqlite3
from dataclasses import dataclass

from tests.adversary.scene import Scene


@dataclass(frozen=True, slots=True)
class DiskFull:
    """No file may grow: writing fails as on a full disk."""

    seconds: float = 5.0
    max_bytes: int = 4096

    @property
    def touches(self) -> frozenset[str]:
        return frozenset({"store"})

    def begin(self, scene: Scene) -> None:
        scene.limit_files(self.max_bytes)

    def end(self, scene: Scene) -> None:
        scene.limit_files(None)


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody reads in one long transaction: the log cannot be written back."""

    seconds: float = 8.0

    @property
    def touches(self) -> frozenset[str]:
        return frozenset()

    def begin(self, scene: Scene) -> None:
        connection = sqlite3.connect(f"file:{scene.db}/telemetry.db?mode=ro", uri=True, timeout=5)
        connection.execute("BEGIN")
        connection.execute("SELECT COUNT(*) FROM host_sample").fetchall()
        scene.held["reader"] = connection

    def end(self, scene: Scene) -> None:
        connection = scene.held.pop("reader")
        assert isinstance(connection, sqlite3.Connection)
        connection.close()


@dataclass(frozen=True, slots=True)
class ReadOnlyFolder:
    """The folder of the database cannot be written: no file can be made or removed there."""

    seconds: float = 5.0

    @property
    def touches(self) -> frozenset[str]:
        return frozenset({"store"})

    def begin(self, scene: Scene) -> None:
        scene.db.chmod(0o555)

    def end(self, scene: Scene) -> None:
        scene.db.chmod(0o755)
