"""Single bits flipped in a database and in its write-ahead log: is each flip that changes a read reported and named?

`python -m tests.store.flips --flips 200 --seed 1` prints the count; the tests run fewer.
"""

import argparse
import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pertoken.store.connect.location import locate
from pertoken.store.integrity.verify import StoredDifference, verify
from pertoken.store.write.writer import Writer
from tests.store.filled import everything, fill, filled

WAL_TICKS = 60
"""Few enough that they stay in the log."""


@dataclass(frozen=True, slots=True)
class Flip:
    """One bit of one file, the rows that were then read, and the findings of the check."""

    file: str
    byte: int
    bit: int
    changed: frozenset[str]
    faults: tuple[StoredDifference, ...]

    @property
    def detected(self) -> bool:
        """Whether each change was reported: by its table, by the file, or as the interval that a cut log
        lost."""
        named = {fault.table for fault in self.faults}
        cut = self.file.endswith("-wal") and any("acknowledged and are missing" in fault.text for fault in self.faults)
        return cut or self.changed <= named or "telemetry.db" in named


def flips(folder: Path, n: int, seed: int) -> Iterator[Flip]:
    """`n` flips, half of them in the data file and half in the log, each on a copy of its own."""
    chance = random.Random(seed)
    closed = filled(folder / "closed")
    running = folder / "running"
    shutil.copytree(folder / "closed", running)
    copies = {"telemetry.db": folder / "closed", "telemetry.db-wal": folder / "log"}
    with Writer(locate(str(running))) as writer:
        fill(writer, range(401, 401 + WAL_TICKS))
        # As a kill leaves it: the log is not written back, the index of it is lost with the memory.
        shutil.copytree(running, folder / "log", ignore=shutil.ignore_patterns("*-shm"))
    assert closed.file("telemetry").stat().st_size > 100_000
    pristine = {name: everything(source / "telemetry.db") for name, source in copies.items()}
    for attempt in range(n):
        name = "telemetry.db" if attempt % 2 else "telemetry.db-wal"
        yield _flip(chance, folder, copies[name], name, pristine[name])


def _flip(chance: random.Random, folder: Path, source: Path, name: str, pristine: dict[str, object]) -> Flip:
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy)
    file = copy / name
    content = bytearray(file.read_bytes())
    byte, bit = chance.randrange(len(content)), chance.randrange(8)
    content[byte] ^= 1 << bit
    file.write_bytes(content)
    faults = tuple(fault for fault in verify(locate(str(copy))) if fault is not None)
    try:
        stored = everything(copy / "telemetry.db")
    except Exception as error:
        stored = {"telemetry.db": str(error)}
    changed = frozenset(key for key in pristine if stored.get(key) != pristine[key])
    return Flip(name, byte, bit, changed, faults)


def main() -> None:
    """Flip, and print what came of it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        for flip in flips(Path(folder), options.flips, options.seed):
            what = "changes what is read" if flip.changed else "changes nothing read"
            counts[f"{flip.file}: {what}, {'detected' if flip.faults else 'not detected'}"] += 1
            if flip.changed and not flip.detected:
                missed.append(f"{flip}")
    print(json.dumps({"seed": options.seed, "counts": counts, "missed": missed}, indent=2))


if __name__ == "__main__":
    main()
