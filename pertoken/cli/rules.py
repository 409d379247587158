"""`pertoken rules`: start, check, list, explain and switch rules, and their track record."""

from __future__ import annotations

import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import config_option, db_option, echo, json_option, settings_of
from pertoken.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pertoken.advisor.rules.listing import Entry
    from pertoken.proof.judging.record import RuleRecord


@click.group(short_help="Start, check, list, explain and switch rules.")
def rules() -> None:
    """Start a rule of your own, check it, and see which rules run. docs/write-a-rule.md shows how to write one."""


@rules.command("new", short_help="Write a new rule that works, to be changed.")
@click.argument("name")
@click.option("--package", is_flag=True, help="Write a package with a pyproject.toml and a test, not one file.")
def new(name: str, package: bool) -> None:
    """Write NAME as a rule into this folder: one file, or a package to publish. Nothing is overwritten.

    NAME is the id of the rule: lower-case words joined by hyphens, such as lower-clocks.
    """
    from pertoken.advisor.rules.scaffold import new_rule

    first, *files = new_rule(name, Path(), package=package)
    for file in files or [first]:
        echo(f"Wrote {file}.")
    if package:
        echo(f"Next: pip install -e {first}, change the rule, python -m pytest {first}, pertoken rules list.")
    else:
        echo(f"Next: change it, then `pertoken rules check {first}` and `pertoken advise --rule {first}`.")


@rules.command("check", short_help="Check the rules of a file, and show what typical situations get.")
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
def check(path: Path) -> None:
    """Run the rules of a file, or of the files of a folder, over typical situations and through the conformity suite.

    Prints what each situation gets. Exit 1 if a rule does not conform, 2 if a file could not be checked. The rules run
    in a process of their own with limits, as in an advice run.
    """
    from pertoken.advisor.rules.check import check as check_rules
    from pertoken.testing import regimes

    files = check_rules(path)
    for file in files:
        for each in file.rules:
            echo(f"{each.rule_id}: {each.title}")
            width = max(map(len, regimes()))
            for regime, lines in each.got:
                echo("\n".join(f"  {regime if not number else '':{width}} {line}" for number, line in enumerate(lines)))
            for fault in each.faults:
                echo(f"  fault: {fault}")
            verdict = "does not conform" if each.faults else "conforms"
            echo(f"  {verdict}: {len(each.faults)} faults in {len(regimes())} situations\n")
        if file.output:
            echo(f"{file.file} printed:\n{file.output}", err=True)
        if file.failed is not None:
            echo(f"pertoken: {file.file}: {file.failed}", err=True)
    if any(file.failed is not None for file in files):
        raise click.exceptions.Exit(2)
    if any(each.faults for file in files for each in file.rules):
        raise click.exceptions.Exit(1)


@rules.command("list", short_help="List all rules, and why some do not run.")
@config_option
@json_option
def list_rules(config_file: str | None, as_json: bool) -> None:
    """List every rule that was found: its id, whether it is loaded, the window it looks at, and where it is from.

    A rule is loaded, disabled (`pertoken rules disable`), denied (`advisor.allow`, `advisor.deny`, or a file that
    others could have written) or broken. It is confined where the kernel keeps it from the network and from files
    outside a temporary folder.
    """
    import json
    from dataclasses import asdict

    from pertoken.advisor.rules.discovery import DROP_IN
    from pertoken.advisor.rules.listing import entries, listed
    from pertoken.advisor.rules.load import unknown_options

    settings = settings_of(config_file)
    places = listed(settings)
    known = entries(places)
    for line in unknown_options((*(each.plugin.name for each in places), *(each.id for each in known)), settings):
        echo(f"pertoken rules: {line}", err=True)
    if as_json:
        echo(json.dumps([asdict(each) for each in known], indent=2))
        return
    width = terminal_width()
    echo("\n".join(_table(known, settings.folder, width)))
    for label in dict.fromkeys(each.confinement for each in known if each.confinement not in (None, "confined")):
        names = ", ".join(dict.fromkeys(each.id for each in known if each.confinement == label))
        echo("\n".join(_wrapped(f"{label}: {names}", width, "    ")))
    echo(f"Files with rules of your own go into {settings.folder / DROP_IN}.")


def terminal_width() -> int | None:
    """Return the columns of the terminal; None where output goes to a file or a pipe, in which no line is wrapped."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _table(known: Sequence[Entry], folder: Path, width: int | None) -> Iterator[str]:
    """Yield a line for each rule; on a terminal too narrow for the longest, titles and reasons stand below."""
    rows = [
        (
            *(each.id, each.state, "" if each.window_s is None else format_duration(each.window_s)),
            _origin(each, folder),
            _short(each.confinement),
        )
        for each in known
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
    texts = [each.reason or each.title or "" for each in known]
    lines = ["  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)) for row in rows]
    if width is None or all(len(line) + 2 + len(text) <= width for line, text in zip(lines, texts, strict=True)):
        yield from (f"{line}  {text}".rstrip() for line, text in zip(lines, texts, strict=True))
        return
    for line, text in zip(lines, texts, strict=True):
        yield from _wrapped(line.rstrip(), width, "    ")
        yield from _wrapped(f"    {text}".rstrip(), width, "    ")


def _wrapped(text: str, width: int | None, indent: str) -> list[str]:
    """Return a line, in several where it is longer than the terminal is wide."""
    if width is None or len(text) <= width:
        return [text] if text else []
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)


def _origin(entry: Entry, folder: Path) -> str:
    """Return where a rule is from; a file beside the configuration without the folder of both."""
    return f"{entry.origin.removeprefix(f'{folder}/')} {entry.version or ''}".rstrip()


def _short(confinement: str | None) -> str:
    return (confinement or "").partition(" (")[0]


@rules.command("explain", short_help="Show all of one rule: why, when it is wrong, its options.")
@click.argument("name")
@config_option
def explain(config_file: str | None, name: str) -> None:
    """Show the page of the rule with the id NAME: what it does, why, when it is wrong, how to apply it, its options."""
    from pertoken.advisor.rules.discovery import find_rules
    from pertoken.advisor.rules.listing import listed, page, refuse_impossible
    from pertoken.proof.judging.go_back_page import PAGE, RULE

    settings = settings_of(config_file)
    if name == RULE:
        echo(PAGE, nl=False)
        return
    refuse_impossible(name, find_rules(settings))
    echo(page(name, listed(settings)), nl=False)


@rules.command("record", short_help="Show what rules promised against what was realised.")
@db_option
@json_option
def record(config_file: str | None, db: str | None, as_json: bool) -> None:
    """Show of each rule which part of its promised savings was realised, by the receipts of its recommendations.

    The ratio starts at 1 and moves with each receipt by how certain that is; behind ± is its standard deviation.
    """
    import json
    from dataclasses import asdict

    from pertoken.proof.judging.receipts import read_receipts
    from pertoken.proof.judging.record import records
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import open_store

    settings = settings_of(config_file, db=db)
    store = open_store(locate(settings.db, settings.advice))
    found: tuple[RuleRecord, ...] = ()
    if store.advice is not None:
        with store.read("advice") as connection:
            found = records(read_receipts(connection))
    if as_json:
        echo(json.dumps([asdict(each) for each in found], indent=2))
        return
    if not found:
        echo("No receipts of recommendations yet: `pertoken advise` makes one of each change, a week after it.")
        return
    width = max(len("rule"), *(len(each.rule) for each in found))
    echo(f"{'rule':<{width}}  realised / promised  receipts  not counted")
    for each in found:
        ratio = f"{each.record.ratio:.2f} ± {each.record.ratio_sd:.2f}"
        echo(f"{each.rule:<{width}}  {ratio:>19}  {each.record.receipts:>8}  {each.not_counted:>11}")


@rules.command("disable", short_help="Switch a rule off.")
@click.argument("rule_id", metavar="ID")
@config_option
def disable(config_file: str | None, rule_id: str) -> None:
    """Switch the rule ID off for every run with this configuration, `up` and the service included.

    Kept in disabled-rules.txt beside the settings file. The file or entry point of that name is not loaded then.
    """
    from pertoken.advisor.rules import switches
    from pertoken.advisor.rules.discovery import find_rules
    from pertoken.advisor.rules.listing import entries, listed, refuse_impossible, unknown

    settings = settings_of(config_file)
    places = find_rules(settings)
    refuse_impossible(rule_id, places)
    if rule_id not in {each.name for each in places}:
        known = {each.id for each in entries(listed(settings))}
        if rule_id not in known:
            raise unknown(rule_id, known)
    switches.disable(settings.folder, rule_id)
    echo(f"{rule_id} is off from the next run on ({settings.folder / switches.FILE}).")


@rules.command("enable", short_help="Switch a rule on again.")
@click.argument("rule_id", metavar="ID")
@config_option
def enable(config_file: str | None, rule_id: str) -> None:
    """Switch the rule ID on again."""
    from pertoken.advisor.rules import switches
    from pertoken.errors import BadInput

    settings = settings_of(config_file)
    if rule_id not in (off := switches.disabled(settings.folder)):
        raise BadInput(f"{rule_id!r} is not switched off; switched off are: {', '.join(off) or 'none'}")
    switches.enable(settings.folder, rule_id)
    echo(f"{rule_id} runs again from the next run on.")
