"""Options that several commands share."""

import sys
from collections.abc import Callable
from typing import Any

import click

from pertoken.config import Settings
from pertoken.printable import literal_lines

Command = Callable[..., Any]


def config_option(command: Command) -> Command:
    """`--config FILE`."""
    return click.option(
        "--config",
        "config_file",
        metavar="FILE",
        help="Settings file [default: the platform's].",
    )(command)


def db_option(command: Command) -> Command:
    """`--db DIR|URL`, with `--config`."""
    return click.option(
        "--db",
        metavar="DIR|URL",
        help="Database: a folder, or a postgresql:// URL [default: the service's folder, else your own].",
    )(config_option(command))


def json_option(command: Command) -> Command:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(command)


def parent_option(command: Command) -> Command:
    """Hidden: end when standard input does, however the parent ends."""
    return click.option("--with-parent", is_flag=True, hidden=True)(command)


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text in which names that others chose act on nothing: every line literal. JSON stays JSON."""
    # JSON escapes all that acts but DEL, for which it has no \\x7f.
    lines = literal_lines(str(text).replace("\x7f", "\\u007f"))
    click.echo("\n".join(lines), err=err, nl=nl)


def text_width() -> int | None:
    """Return how many cells a table may take: None where output goes to a file or a pipe, so that nothing is cut."""
    from pertoken.tui.text.summary import WIDTH

    return WIDTH if sys.stdout.isatty() else None


def settings_of(config_file: str | None, **options: Any) -> Settings:
    """Settings from file, environment and these options. Raises BadInput."""
    from pertoken.config import load

    return load(config_file, **options)
