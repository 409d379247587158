"""A value of a file is read again after each change, whatever the clock of its file system misses."""

import os
from itertools import count
from pathlib import Path

from pertoken.store.connect.open import SETTLED_NS, Unchanged

NOW_NS = 1_900_000_000 * 10**9


def at(file: Path, ns: int) -> None:
    os.utime(file, ns=(ns, ns))


def test_a_value_is_read_once_until_the_file_changes(tmp_path: Path) -> None:
    file, reads = tmp_path / "advice.db", count(1)
    file.write_text("one")
    at(file, NOW_NS - 2 * SETTLED_NS)
    values = Unchanged(file, lambda: NOW_NS)
    assert [values.get("n", lambda: next(reads)) for _ in range(3)] == [1, 1, 1]
    at(file, NOW_NS - 2 * SETTLED_NS + 1)
    assert values.get("n", lambda: next(reads)) == 2
    file.write_text("longer")
    at(file, NOW_NS - 2 * SETTLED_NS + 1)
    assert values.get("n", lambda: next(reads)) == 3


def test_a_file_that_changed_just_now_is_read_each_time(tmp_path: Path) -> None:
    file, reads = tmp_path / "advice.db", count(1)
    file.write_text("one")
    at(file, NOW_NS - SETTLED_NS // 2)
    values = Unchanged(file, lambda: NOW_NS)
    assert [values.get("n", lambda: next(reads)) for _ in range(3)] == [1, 2, 3]


def test_a_change_while_it_is_read_is_seen_the_next_time(tmp_path: Path) -> None:
    file = tmp_path / "advice.db"
    file.write_text("old")
    at(file, NOW_NS - 4 * SETTLED_NS)
    values = Unchanged(file, lambda: NOW_NS)

    def read() -> str:
        text = file.read_text()
        file.write_text("new")
        at(file, NOW_NS - 3 * SETTLED_NS)
        return text

    assert values.get("text", read) == "old"
    assert values.get("text", file.read_text) == "new"


def test_a_file_that_is_replaced_or_gone_is_read_again(tmp_path: Path) -> None:
    file, other, reads = tmp_path / "advice.db", tmp_path / "other", count(1)
    for path in (file, other):
        path.write_text("same")
        at(path, NOW_NS - 2 * SETTLED_NS)
    values = Unchanged(file, lambda: NOW_NS)
    assert values.get("n", lambda: next(reads)) == 1
    other.replace(file)
    assert values.get("n", lambda: next(reads)) == 2
    file.unlink()
    assert [values.get("n", lambda: next(reads)) for _ in range(2)] == [3, 4]


def test_values_of_different_functions_are_kept_apart(tmp_path: Path) -> None:
    file = tmp_path / "advice.db"
    file.write_text("one")
    at(file, NOW_NS - 2 * SETTLED_NS)
    values = Unchanged(file, lambda: NOW_NS)
    assert (values.get("a", lambda: 1), values.get("b", lambda: 2), values.get("a", lambda: 3)) == (1, 2, 1)
