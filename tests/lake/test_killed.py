"""Chaos while a lake is published: SIGKILL at every step, two publishers of one cell, and errors of a bucket."""

import os
import shutil
import signal
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from random import randrange
from typing import Any

import ibis
import pytest

from pertoken.errors import StoreError
from pertoken.lake import questions
from pertoken.lake.manifest import LakeFiles
from pertoken.lake.questions import LakeSession
from pertoken.lake.reading import Range, all_days, verified
from tests.examples import THOROUGH, examples
from tests.lake.lakes import DAY, END, asked, host, paid, published
from tests.lake.test_s3 import bucket
from tests.values import set_price

__all__ = ["bucket"]
NEW_NANO_USD = 4_000_000_000


def steps(reached: Callable[[], None]) -> None:
    """Call `reached` before every step that publishing takes on a disk."""

    def announced(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any, **more: Any) -> Any:
            reached()
            return function(*values, **more)

        return call

    os.fsync = announced(os.fsync)
    for name in ("mkdir", "open", "replace", "unlink"):
        setattr(Path, name, announced(getattr(Path, name)))


def publish_until(step: int, folder: Path, lake: Path) -> bool:
    """Publish in a process that is killed before its step number `step`; return whether it was."""
    code = os.waitstatus_to_exitcode(os.waitpid(publisher(folder, lake, step), 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


def publisher(folder: Path, lake: Path, killed_before: int = 0) -> int:
    """Start a process that publishes, and that is killed before a step; return its pid."""
    with warnings.catch_warnings():  # of threads in this process: the fork takes no lock of theirs
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            numbers = count(1)
            steps(lambda: os.kill(os.getpid(), signal.SIGKILL) if next(numbers) == killed_before else None)
            published(host(folder), lake)
            os._exit(0)
        finally:
            os._exit(1)
    return pid


STEP = THOROUGH // examples(THOROUGH)
"""Distance of the steps at which a publisher is killed: each one in a thorough run, else every fourth."""
KEY = ("cell", "day", "hour", "device_id", "epoch_id", "use")


def count_lines(tables: Any) -> Any:
    return tables["costs"].group_by(KEY).agg(n=ibis._.count())


def lines(lake: Path | str) -> Counter[tuple[Any, ...]]:
    """Return how often each device, hour and use of a lake is there."""
    return _lines(asked(lake, count_lines))


def _lines(rows: list[Any]) -> Counter[tuple[Any, ...]]:
    return Counter({tuple(row[name] for name in KEY): row["n"] for row in rows})


def hours_and_lines(lake: Path) -> tuple[dict[tuple[object, object], object], Counter[tuple[Any, ...]]]:
    """Return the dollars of each hour of a lake, and its lines as `lines` does."""
    with LakeSession(str(lake), Range(END - 30 * DAY, END), "duckdb") as session:
        rows = session.rows(partial(questions.dollars, by=["day", "hour"]))
        return {(row["day"], row["hour"]): row["nano_usd"] for row in rows}, _lines(session.rows(count_lines))


def test_a_publisher_that_is_killed_at_any_step_leaves_each_hour_once_old_or_new(tmp_path: Path) -> None:
    old_lake, new_lake = tmp_path / "old", tmp_path / "new"
    store = host(tmp_path / "db")
    published(store, old_lake)
    set_price(store.location, "H100", NEW_NANO_USD)
    published(store, new_lake)
    (old, _), (new, expected) = hours_and_lines(old_lake), hours_and_lines(new_lake)
    assert old != new and set(expected.values()) == {1}
    seen, killed = set(), 0
    for step in count(randrange(STEP) + 1, STEP):
        lake = tmp_path / "lake"
        shutil.copytree(old_lake, lake)
        if not publish_until(step, tmp_path / "db", lake):
            break
        killed += 1
        found, found_lines = hours_and_lines(lake)
        for day in {day for day, _ in old}:
            hours = {hour: usd for (of_day, hour), usd in found.items() if of_day == day}
            choices = [{hour: usd for (of_day, hour), usd in side.items() if of_day == day} for side in (old, new)]
            assert hours in choices, f"step {step}, {day}"
            seen.add(choices.index(hours))
        assert found_lines == expected and not verified(all_days(LakeFiles(str(lake)))).faults
        if killed % 9 == 0:  # whoever publishes next completes it, also beside what was left
            published(host(tmp_path / "db"), lake)
            assert hours_and_lines(lake) == (new, expected)
        shutil.rmtree(lake)
    assert killed >= 20 // STEP and seen == {0, 1}


def test_two_publishers_of_one_cell_at_once_of_which_one_is_killed_leave_each_hour_once(tmp_path: Path) -> None:
    store, lake = host(tmp_path / "db"), tmp_path / "lake"
    published(store, tmp_path / "alone")
    expected, usd = lines(tmp_path / "alone"), paid(tmp_path / "alone")
    for step in (3, 9, 17, 10**6):
        other = publisher(tmp_path / "db", lake)
        publish_until(step, tmp_path / "db", lake)
        assert os.waitpid(other, 0)[1] == 0
        assert lines(lake) == expected and paid(lake) == usd
        shutil.rmtree(lake)


@pytest.mark.parametrize("status", ["403 Forbidden", "500 Internal Server Error"])
def test_a_bucket_that_refuses_any_write_keeps_the_old_day_or_has_the_new_one(
    status: str, tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication as Stand

    writes, failing = count(1), [0]
    answer = Stand.__call__

    def refusing(self: Any, environ: dict[str, Any], start: Any) -> Any:
        if environ["REQUEST_METHOD"] in ("PUT", "POST") and next(writes) == failing[0]:
            start(status, [("Content-Type", "application/xml"), ("Content-Length", "0")])
            return [b""]
        return answer(self, environ, start)

    store = host(tmp_path / "db")
    published(store, bucket)
    old = paid(bucket)
    set_price(store.location, "H100", NEW_NANO_USD)
    monkeypatch.setattr(Stand, "__call__", refusing)
    refused = 0
    for n in (1, 2, 3):
        failing[0], writes = n, count(1)
        try:
            published(store, bucket)
        except StoreError as error:
            refused += 1
            assert "secret-of-a-test" not in str(error)
        assert set(lines(bucket).values()) == {1}
        assert old <= paid(bucket) <= 2 * old
    failing[0] = 0
    published(store, bucket)
    assert paid(bucket) == 2 * old
    assert refused or status.startswith("500")  # the client asks again after a 500
