"""Record of a run that ended: the truth of its script, and what was seen from outside."""

import sqlite3
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

from tests.adversary.behaviour import Served
from tests.adversary.scene import Exit
from tests.adversary.world import World

LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Look:
    """Contents of the database at a moment. Times are of the machine's monotonic clock, seconds."""

    at_s: float
    host_rows: int


class Watcher:
    """Looks at the database while the agent writes it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._ended = folder, threading.Event()
        self.looks: list[Look] = []
        self._thread = threading.Thread(target=self._run, name="watcher")

    def __enter__(self) -> "Watcher":
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            with suppress(sqlite3.Error):
                connection = sqlite3.connect(f"file:{self._folder}/telemetry.db?mode=ro", uri=True, timeout=0.5)
                try:
                    ((rows,),) = connection.execute("SELECT COUNT(*) FROM host_sample").fetchall()
                    self.looks.append(Look(time.monotonic(), rows))
                finally:
                    connection.close()


@dataclass(frozen=True, slots=True)
class Played:
    """A run, for the judge."""

    world: World
    db: Path
    ports: tuple[int, ...]
    """Of the world's engines: others of this machine may be found, too."""
    served: dict[str, Served]
    """The truth by model, over all processes that served it."""
    looks: tuple[Look, ...]
    exits: tuple[Exit, ...]
    starts_s: tuple[float, ...]
    """When each agent process was started."""
    first_s: tuple[float, ...]
    """When the first row of each was seen."""
    down: tuple[tuple[float, float], ...]
    """From the end of one agent process to the first row of the next."""
    unwritable: tuple[tuple[float, float], ...]
    """While the store could not be written."""
    loaded_s: float
    """When the engines began to serve."""
    ended_s: float
    """When the last agent process ended."""
    offsets: tuple[tuple[float, float], ...]
    """(when, what was added to the wall clock from then on, seconds)."""
    wall_s: float
    """Unix time of the machine at monotonic 0."""
    prices: tuple[tuple[int, str, float], ...]
    """(from when on the stepped clock, selector, dollars an hour)."""
    commands: dict[str, CompletedProcess[str]]
    problems: tuple[str, ...] = ()
    """What the script waited for in vain."""
    llama_busy_s: float | None = None
    """Seconds of computation by the real server's own count."""
