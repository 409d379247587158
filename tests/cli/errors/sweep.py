"""Every command and option with many kinds of bad input, in one process: `python -m tests.cli.errors.sweep FOLDER`.

Prints what ended wrongly as JSON: a list of (arguments, exit code, last line). Commands run in a new folder inside
FOLDER, so that what they write is nowhere else.
"""

import json
import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pertoken.cli import main
from tests.one_process import share_a_process
from tests.values import new_store

NUMBERS = ("", " ", "-1", "1e400", "nan", "inf", "0x10", "1,5", "ten", "٣x", "1/0", "$", "--", "9" * 400)
DURATIONS = ("", "5 years", "-1h", "1", "1e9d", "h", "1h30m", "∞", "9" * 400 + "d", "0.0000001s", "nans")
PORTS = ("0", "65536", "-1", "http", "8080/tcp", "80 80", "")
URLS = (
    "",
    "localhost:8000",
    "ftp://h/",
    "http://",
    "http://[::1",
    "http://h:port",
    "http://h:99999",
    "http://user:planted-secret@h/",
    "http://h/?q=1",
    "postgresql://",
    "postgresql://u:planted-secret@h@h/d",
    "postgresql://u:planted-secret@127.0.0.1:1/d",
    "postgresql://u:planted-secret@127.0.0.1:99999/d",
    "mysql://u:planted-secret@h/d",
    "sqlite:///x.db",
)
TEXTS = ("caf\udce9", "\x1b[31mred", "a\nb", "'; DROP TABLE host; --", "x" * 5000, "~no-such-user-here/x", "\u202eabc")
NAMES = {"a\nb", "'; DROP TABLE host; --", "\u202eabc"}
"""Odd names of folders, at which an agent can record."""


def paths(folder: Path) -> Iterator[str]:
    """Yield paths at which there is nothing to use: wrong kinds of files, rights, damaged databases."""
    (folder / "file").write_text("text")
    (folder / "closed").mkdir()
    new_store(folder / "unwritable")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "dangling").symlink_to(folder / "gone")
    for name, content in (("empty", b""), ("noise", os.urandom(8192)), ("text", b"not a database at all\n" * 400)):
        (folder / name).mkdir()
        (folder / name / "telemetry.db").write_bytes(content)
    new_store(folder / "cut")
    with (folder / "cut" / "telemetry.db").open("rb+") as file:
        file.truncate(5000)
    new_store(folder / "newer")
    with sqlite3.connect(folder / "newer" / "telemetry.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    new_store(folder / "unreadable")
    (folder / "unreadable" / "telemetry.db").chmod(0)
    (folder / "as_folder" / "telemetry.db").mkdir(parents=True)
    (folder / "closed").chmod(0)
    (folder / "unwritable").chmod(0o500)
    names = (
        "file",
        "file/below",
        "closed",
        "closed/below",
        "loop",
        "dangling",
        "empty",
        "noise",
        "text",
        "cut",
        "newer",
    )
    yield from (str(folder / name) for name in (*names, "unreadable", "as_folder", "n" * 300))
    yield from ("/dev/null", "/dev/null/x", "/proc/self/mem", "/proc/nothing")


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command by the words that name it."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield (*path, name), command


WITH_THIS_OPTION = Counter(
    (option.opts[-1], str(option.metavar)) for _, command in commands(main) for option in command.params
)
"""How many commands have an option of that name and kind."""


def cases(folder: Path) -> Iterator[tuple[str, ...]]:
    """Yield arguments of which at least one is bad.

    An option that several commands have, such as `--db`, gets a part of its values from each of them: each value from
    at least one command, and from one of eight where many have it.
    """
    bad_paths = tuple(paths(folder))
    repaired = {str(folder / name) for name in ("dangling", "empty", "noise", "text", "cut")}
    fit = {
        "DIR|URL": (*bad_paths, *URLS[9:]),
        "FILE": bad_paths,
        "PATH": bad_paths,
        "TIME": DURATIONS,
        "AGE": DURATIONS,
        "URL": URLS,
        "PORT": PORTS,
    }
    seen: Counter[tuple[str, str]] = Counter()
    for words, command in commands(main):
        if words[0] in ("agent", "advisor") and words[1:2] in (("install",), ("uninstall",)):
            continue  # they change this host
        if words == ("demo",):
            continue  # it takes half a minute wherever it may write; `test_demo` has its bad input
        arguments = [param for param in command.params if isinstance(param, click.Argument)]
        options = [param for param in command.params if isinstance(param, click.Option) and not param.is_flag]
        given = tuple("1" for argument in arguments if argument.required)
        safe = ("--db", str(folder / "nothing")) if any("--db" in option.opts for option in options) else ()
        yield (*words, *given, "--no-such-option")
        for option in options:
            name = option.opts[-1]
            rest = () if name == "--db" else safe
            must = tuple(
                part
                for required in options
                if required.required and required is not option
                for part in (required.opts[-1], "event")
            )
            values = (*fit.get(str(option.metavar), NUMBERS), *TEXTS)
            if words in (("up",), ("agent",)) and name == "--db":
                values = tuple(value for value in values if value not in repaired | NAMES)  # an agent records there
            if words == ("advisor",) and name == "--db":
                waits = {str(folder / name) for name in ("empty", "as_folder")} | NAMES  # for telemetry in these
                values = tuple(value for value in values if value not in waits)
            shared = (name, str(option.metavar))
            step = min(WITH_THIS_OPTION[shared], 8)
            for value in values[seen[shared] % step :: step]:
                yield (*words, *given, *must, name, value, *rest)
            seen[shared] += 1
        for index in range(len(given)):
            for value in (*NUMBERS, *bad_paths, *TEXTS):
                yield (*words, *given[:index], value, *given[index + 1 :], *safe)


def wrong(folder: Path) -> Iterator[tuple[tuple[str, ...], int, str]]:
    """Run every case; yield those that end in a traceback, a wrong exit code, control characters or a secret."""
    for arguments in cases(folder):
        done = CliRunner().invoke(main, arguments)
        lines = done.output.splitlines() or [""]
        error = done.exception if not isinstance(done.exception, SystemExit) else None
        if error is not None:
            yield arguments, done.exit_code, f"{type(error).__name__}: {error}"
        elif done.exit_code not in (0, 1, 2):
            yield arguments, done.exit_code, lines[-1]
        elif "planted-secret" in done.output:
            yield arguments, done.exit_code, "a secret"
        elif any(not (character.isprintable() or character in "\n\xa0") for character in done.output):
            yield arguments, done.exit_code, f"control characters: {done.output!r}"


if __name__ == "__main__":
    share_a_process(pytest.MonkeyPatch())
    cases_folder = Path(sys.argv[1]).absolute() / "cases"
    for path in (cases_folder, cases_folder.with_name("cwd")):
        path.mkdir(parents=True)
    os.chdir(cases_folder.with_name("cwd"))
    sys.stdout.write(
        json.dumps([[list(map(ascii, invocation[0])), *invocation[1:]] for invocation in wrong(cases_folder)])
    )
