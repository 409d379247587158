"""A copy of a host's file without rows of values that nothing can have, or of an owner that is not there.

A fleet's server refuses such rows. A local file may hold them, and one of them takes a sum beyond 64 bits. Readers of
this process then read a copy without these rows, and name the hosts that they are of.
"""

import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import pairwise
from math import isfinite
from pathlib import Path

MAX_VALUE = 2**53
"""Largest value of a row: sums of a thousand rows fit into 64 bits. Memory summed over an hour comes nearest."""
LARGEST = {"bucket": 10_000, "duration_ms": 40 * 86_400_000, "observed_ms": 40 * 86_400_000, "interval_ms": 2**31}
"""Largest values of some columns: a page has hundreds of buckets, and an agent was away for 40 days."""
MAX_TS = 2**40
"""Largest time: beyond it a calendar has no date for it."""

_opened: set[Path] = set()
_copies: dict[Path, Path] = {}
_left_out: dict[Path, Mapping[int, frozenset[str]]] = {}
_HOST_OF = """CREATE TEMP TABLE host_of AS SELECT host_id AS id, host_id FROM host
UNION ALL SELECT device_id, host_id FROM device JOIN host USING (host_id)
UNION ALL SELECT epoch_id, deployment.host_id FROM epoch JOIN deployment USING (deployment_id)
JOIN engine USING (engine_id) JOIN host ON host.host_id = deployment.host_id"""


def readable(file: Path) -> Path:
    """Return the file that a reader of a host's file opens: its copy where there is one."""
    _opened.add(file)
    return _copies.get(file, file)


@contextmanager
def without_impossible_rows() -> Iterator[bool]:
    """Have files that this process has read be read without impossible rows; yield whether any has some.

    A file that cannot be copied is read as it is. Raises OSError.
    """
    with tempfile.TemporaryDirectory(prefix="pertoken-") as folder:
        for number, file in enumerate(path for path in _opened if path.exists()):
            copy = Path(folder) / f"{number}.db"
            with suppress(sqlite3.Error):
                faults, is_changed = _copied(file, copy)
                if is_changed:
                    _copies[file], _left_out[copy] = copy, faults
        try:
            yield bool(_copies)
        finally:
            _opened.clear()
            _copies.clear()
            _left_out.clear()


def left_out(file: Path) -> Mapping[int, frozenset[str]]:
    """Return the tables of which rows were left out in a copy, by host; nothing for any other file."""
    return _left_out.get(file, {})


def _copied(file: Path, copy: Path) -> tuple[Mapping[int, frozenset[str]], bool]:
    """Write a copy of a file without its impossible rows; return the tables by host, and whether it had any."""
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as source:
        source.execute("VACUUM INTO ?", (str(copy),))
    with closing(sqlite3.connect(copy)) as target, target:
        target.execute(_HOST_OF)
        before = target.total_changes
        faults = _deleted(target)
        return faults, target.total_changes > before


def _deleted(copy: sqlite3.Connection) -> Mapping[int, frozenset[str]]:
    tables: dict[int, set[str]] = defaultdict(set)
    for table, owner, impossible in _conditions(copy):
        hosts = f"SELECT DISTINCT h.host_id FROM {table} r JOIN host_of h ON id = r.{owner} WHERE {impossible}"
        for (host_id,) in copy.execute(hosts).fetchall():
            tables[host_id].add(table)
        copy.execute(f"DELETE FROM {table} AS r WHERE {impossible}")
    copy.create_function("is_bounds", 1, _is_bounds)
    copy.execute("DELETE FROM histogram_set WHERE NOT is_bounds(upper_bounds)")
    return {host_id: frozenset(names) for host_id, names in tables.items()}


def _is_bounds(upper_bounds: object) -> bool:
    try:
        bounds = [float(bound) for bound in str(upper_bounds).split(",") if bound]
    except ValueError:
        return False
    return all(map(isfinite, bounds)) and all(low < high for low, high in pairwise(bounds))


def _conditions(copy: sqlite3.Connection) -> Iterator[tuple[str, str, str]]:
    """Yield (table, column of the owner, condition of an impossible row) of each table of rows by time."""
    names = copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in names:
        columns = copy.execute(f"PRAGMA table_info({table})").fetchall()
        keys = [name for _, name, *_, key in sorted(columns, key=lambda column: column[-1]) if key]
        numbers = [name for _, name, kind, *_ in columns if "INT" in kind and name != "ts" and name[-3:] != "_id"]
        if "ts" in keys and keys[0] in ("host_id", "device_id", "epoch_id"):
            bounds = [f"r.ts NOT BETWEEN 0 AND {MAX_TS}"]
            owners = (name for _, name, *_ in columns if name in ("host_id", "device_id", "epoch_id"))
            bounds += [f"r.{name} NOT IN (SELECT id FROM host_of)" for name in owners]
            bounds += [f"r.{name} NOT BETWEEN 0 AND {LARGEST.get(name, MAX_VALUE)}" for name in numbers]
            yield table, keys[0], " OR ".join(bounds)
