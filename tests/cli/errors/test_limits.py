"""Limits of the process and of the disk: one line that names the limit, and no traceback."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from pertoken.errors import LimitReached, StoreError, limit_reached
from pertoken.store.connect.location import AgentLock, locate, trouble
from pertoken.store.connect.open import open_store
from tests.values import new_store


def run(arguments: list[str], limit: int, value: int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pertoken", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(limit, (value, value)),
        env={**os.environ, "PERTOKEN_AGENT_DISCOVER": "false"},
    )


@pytest.mark.parametrize("arguments", [["agent"], ["agent", "--once"]])
def test_a_limit_of_open_files_is_one_line_that_names_it(tmp_path: Path, arguments: list[str]) -> None:
    done = run([*arguments, "--db", str(tmp_path)], resource.RLIMIT_NOFILE, 5)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert all(text in line for text in ("too many open files", "5 open", "ulimit -n"))


@pytest.mark.parametrize("kib", [50_000, 60_000, 90_000])
@pytest.mark.parametrize("arguments", [["agent", "--once"], ["db", "info"]])
def test_too_little_memory_is_enough_or_one_line_that_names_the_limit(
    tmp_path: Path, arguments: list[str], kib: int
) -> None:
    new_store(tmp_path)
    done = run([*arguments, "--db", str(tmp_path)], resource.RLIMIT_AS, kib * 1024)
    assert done.returncode in (0, 2), done.stderr
    if done.returncode:
        (line,) = done.stderr.splitlines()
        assert f"{kib * 1024:,} bytes of address space" in line and "ulimit -v" in line


@pytest.mark.parametrize("kib", [40_000, 47_520, 49_480, 50_040])
def test_less_memory_than_any_command_needs_is_refused_before_modules_are_loaded(tmp_path: Path, kib: int) -> None:
    done = run(["db", "info", "--db", str(tmp_path)], resource.RLIMIT_AS, kib * 1024)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr


def test_an_error_is_about_a_limit_wherever_it_comes_from() -> None:
    try:
        try:
            raise OSError(24, "Too many open files")
        except OSError as error:
            raise RuntimeError("no page") from error
    except RuntimeError as error:
        assert isinstance(limit_reached(error), LimitReached)
    assert "bytes of address space" in str(limit_reached(MemoryError()))
    assert limit_reached(ValueError("x")) is None


def test_a_file_that_cannot_be_opened_is_reported_with_reason_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = new_store(tmp_path / "db")
    file = where.file("telemetry")
    assert trouble(file, writing=True) is None

    whole = os.statvfs(tmp_path)
    for changed, text in (({"f_favail": 0}, "no inodes left"), ({"f_bavail": 0}, "is full")):
        values = {name: getattr(whole, name) for name in dir(whole) if name.startswith("f_")} | changed
        with monkeypatch.context() as patch:
            patch.setattr(os, "statvfs", lambda _, values=values: type("Disk", (), values))
            assert text in str(trouble(file, writing=True))
    with monkeypatch.context() as patch:
        values = {name: getattr(whole, name) for name in dir(whole) if name.startswith("f_")} | {"f_flag": os.ST_RDONLY}
        patch.setattr(os, "statvfs", lambda _: type("Disk", (), values))
        assert "mounted read-only" in str(trouble(file, writing=True))
        assert trouble(file, writing=False) is None

    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: not (Path(path) == file and mode == os.R_OK))
        assert "may not be read by this user" in str(trouble(file, writing=False))

    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "agent.lock").mkdir()
    with pytest.raises(StoreError, match="is a folder; move it away"):
        AgentLock(tmp_path / "taken").acquire()
    (where.folder or tmp_path).joinpath("advice.db").unlink()
    (where.folder or tmp_path).joinpath("advice.db").mkdir()
    open_store(locate(str(where)))  # advice that was never written
