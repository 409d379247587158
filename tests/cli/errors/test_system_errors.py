"""Errors of the operating system: one line with the next step, exit 2, and no traceback."""

import errno
import json
import os
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pertoken.cli import main
from pertoken.errors import StoreError, system_error
from pertoken.store.connect.open import explained
from tests.cli.errors.sweep import commands
from tests.rights import run_bound_by_modes
from tests.values import new_store

COMMANDS = (
    ["top"],
    ["advise"],
    ["up"],
    ["agent"],
    ["costs"],
    ["db", "info"],
    ["db", "check"],
    ["db", "upgrade"],
    ["prices", "show"],
    ["export", "csv", "--table", "event"],
)


RUN_EACH = """
import json, sys
from click.testing import CliRunner
from pertoken.cli import main
results = [CliRunner().invoke(main, command) for command in json.loads(sys.argv[1])]
json.dump([[each.exit_code, each.output, repr(each.exception)] for each in results], sys.stdout)
"""
"""Prints exit code, output and exception of each command, run one after the other in a process that modes bind."""


def test_a_folder_this_user_may_not_enter_is_one_line_with_the_next_step(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    new_store(closed)
    closed.chmod(0)
    commands = [[*command, "--db", str(closed)] for command in COMMANDS]
    done = run_bound_by_modes("-c", RUN_EACH, json.dumps(commands), PERTOKEN_AGENT_PROBES="")
    closed.chmod(0o700)
    assert done.returncode == 0, done.stderr
    for command, (code, output, exception) in zip(commands, json.loads(done.stdout), strict=True):
        assert code == 2, (command, output, exception)
        (line,) = output.splitlines()[-1:]
        assert "Traceback" not in output and exception == "SystemExit(2)", command
        assert str(closed) in line and "join its group" in line, command


def test_doctor_reports_a_folder_this_user_may_not_enter_beside_its_other_findings(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    done = run_bound_by_modes("-m", "pertoken", "doctor", "--db", str(tmp_path / "db"), PERTOKEN_AGENT_DISCOVER="false")
    tmp_path.chmod(0o700)
    assert done.returncode == 0, done.stderr
    assert "join its group" in done.stdout and "settings" in done.stdout


def test_a_web_port_that_is_taken_is_one_line_that_names_it(tmp_path: Path) -> None:
    new_store(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_bound_by_modes("-m", "pertoken", "top", "--db", str(tmp_path), "--web", str(port))
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert f"--web {port}" in line and "choose another" in line


@pytest.mark.parametrize("command", ["top --db", "up --engine", "export csv --table", "prices set 1 --for", "db"])
def test_an_argument_that_is_not_utf_8_is_one_line_that_names_it(command: str) -> None:
    done = subprocess.run(
        [os.fsencode(sys.executable), b"-m", b"pertoken", *command.encode().split(), b"/tmp/caf\xe9"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.decode().splitlines()
    assert r"caf\xe9" in line and "UTF-8" in line


def test_a_setting_in_the_environment_that_is_not_utf_8_is_one_line_that_names_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pertoken", "top"],
        env={**os.environb, b"PERTOKEN_DB": b"/tmp/caf\xe9"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.decode().splitlines()
    assert "PERTOKEN_DB" in line and "UTF-8" in line


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC, errno.EROFS, errno.EADDRINUSE, errno.EIO, errno.ELOOP])
def test_every_error_of_the_system_names_its_subject_and_a_next_step(number: int) -> None:
    error = system_error(OSError(number, os.strerror(number), "/srv/db"))
    assert error is not None and error.exit_code == 2
    assert "/srv/db" in str(error) and os.strerror(number).lower() in str(error).lower()
    assert ";" in str(error) and "\n" not in str(error)


def test_an_error_of_another_kind_is_no_error_of_the_system() -> None:
    assert system_error(ValueError("x")) is None
    assert system_error(OSError("a library's own text")) is None
    assert system_error(BrokenPipeError(errno.EPIPE, "Broken pipe")) is None


def test_no_bad_input_of_any_command_or_option_ends_in_a_traceback_or_acts_on_a_terminal(tmp_path: Path) -> None:
    done = run_bound_by_modes(
        "-m",
        "tests.cli.errors.sweep",
        str(tmp_path / "sweep"),
        HOME=str(tmp_path),
        PYTHONPATH=str(Path(__file__).parents[3]),
        PERTOKEN_AGENT_DISCOVER="false",
        PERTOKEN_AGENT_PROBES="",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


RUN_PROCESSES = """
import json, os, runpy, sys, tempfile
from pertoken.cli import main
[*main.commands.values()]  # loads their modules once
ended = []
for words in json.loads(sys.argv[1]):
    with tempfile.TemporaryFile() as errors:
        if (pid := os.fork()) == 0:
            os.dup2(errors.fileno(), 2)
            sys.argv = ["pertoken", *words]
            runpy.run_module("pertoken", run_name="__main__")
            sys.exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        errors.seek(0)
        ended.append([words, code, errors.read().decode()])
json.dump(ended, sys.stdout)
"""
"""Runs `python -m pertoken` for each command in a process of its own, without a start of Python; prints its end."""


def test_every_command_as_a_real_process_refuses_an_unknown_option_with_exit_2() -> None:
    known = [[*words, "--no-such-option"] for words, _ in commands(main)]
    done = run_bound_by_modes("-c", RUN_PROCESSES, json.dumps(known))
    ended = json.loads(done.stdout)
    assert [words for words, _, _ in ended] == known, done.stderr
    for words, code, errors in ended:
        assert code == 2 and errors.splitlines()[-1].startswith("Error: "), (words, errors)
        assert "Traceback" not in errors, (words, errors)


@pytest.mark.parametrize("command", ["top", "db info", "costs", "advise"])
def test_a_malformed_database_is_one_line_with_the_next_step(command: str, tmp_path: Path) -> None:
    new_store(tmp_path)
    content = bytearray((tmp_path / "telemetry.db").read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    (tmp_path / "telemetry.db").write_bytes(content)
    done = CliRunner().invoke(main, [*command.split(), "--db", str(tmp_path)])
    assert done.exit_code == 1, done.output
    (line,) = done.stderr.splitlines()
    assert "; put an earlier copy in its place, or start `pertoken agent`" in line


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (sqlite3.SQLITE_READONLY, "make the file and its folder writable"),
        (sqlite3.SQLITE_FULL, "free space on its disk"),
        (sqlite3.SQLITE_BUSY, "try again when that is done"),
        (sqlite3.SQLITE_NOTADB, "put an earlier copy in its place"),
    ],
)
def test_every_refusal_of_sqlite_names_the_next_step(code: int, step: str, tmp_path: Path) -> None:
    where = new_store(tmp_path)
    error = sqlite3.OperationalError("SQLite's own words")
    error.sqlite_errorcode = code
    with pytest.raises(StoreError, match=f"SQLite's own words; .*{step}"), explained(where):
        raise error
