"""`pertoken rules`: start, check, list, explain and switch rules, and their track record."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import Database, config_option, db_option, echo, json_option, settings_of, terminal_width
from pertoken.errors import BadInput
from pertoken.printable import hanging_indent
from pertoken.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pertoken.advisor.rules.listing import RuleEntry

MAX_WIDTH = 100


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
    from pertoken.advisor.rules.listing import new_rule

    first, *files = new_rule(name, Path(), package=package)
    for file in files or [first]:
        echo(f"Wrote {file}.")
    if package:
        echo(f"Next: pip install -e {first}, change the rule, python -m pytest {first}, pertoken rules list.")
    else:
        echo(f"Next: change it, then `pertoken rules check {first}` and `pertoken advise --rule {first}`.")


@rules.command("check", short_help="Check the rules of a file, and show their output in typical situations.")
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
def check(path: Path) -> None:
    """Run the rules of a file, or of the files of a folder, over typical situations and through the conformity suite.

    The output for each situation is printed. Exit 1 if a rule does not conform, 2 if a file could not be checked. The
    rules run in a limited child process, as in an advice run.
    """
    from pertoken.advisor.rules.listing import check as check_rules
    from pertoken.testing import regimes

    files = check_rules(path)
    for file in files:
        for rule in file.rules:
            echo(f"{rule.rule_id}: {rule.title}")
            width = max(map(len, regimes()))
            for regime, lines in rule.got:
                echo("\n".join(f"  {regime if not number else '':{width}} {line}" for number, line in enumerate(lines)))
            for fault in rule.faults:
                echo(f"  fault: {fault}")
            verdict = "does not conform" if rule.faults else "conforms"
            echo(f"  {verdict}: {len(rule.faults)} faults in {len(regimes())} situations\n")
        if file.output:
            echo(f"{file.file} printed:\n{file.output}", err=True)
        if file.failed is not None:
            echo(f"pertoken: {file.file}: {file.failed}", err=True)
    if any(file.failed is not None for file in files):
        raise click.exceptions.Exit(2)
    if any(rule.faults for file in files for rule in file.rules):
        raise click.exceptions.Exit(1)


@rules.command("list", short_help="List all rules, and why some do not run.")
@config_option
@json_option
def list_rules(config_file: str | None, as_json: bool) -> None:
    """List every installed rule: its id, its state, the window that it reads, and its origin.

    A rule is loaded, disabled (`pertoken rules disable`), denied (`advisor.allow`, `advisor.deny`, or a file that other
    users may write) or broken. It is confined if the kernel denies it the network and files outside a temporary folder.
    """
    from pertoken.advisor.rules.discovery import DROP_IN, unknown_options
    from pertoken.advisor.rules.listing import entries, listed

    settings = settings_of(config_file)
    plugins = listed(settings)
    rule_entries = entries(plugins)
    names = (*(entry.plugin.name for entry in plugins), *(entry.id for entry in rule_entries))
    for line in unknown_options(names, settings):
        echo(f"pertoken rules: {line}", err=True)
    if as_json:
        echo(json.dumps([asdict(entry) for entry in rule_entries], indent=2))
        return
    width = terminal_width()
    echo("\n".join(_table(rule_entries, settings.folder, width)))
    for label in dict.fromkeys(entry.confinement for entry in rule_entries):
        if label not in (None, "confined"):
            ids = ", ".join(dict.fromkeys(entry.id for entry in rule_entries if entry.confinement == label))
            echo("\n".join(_wrapped(f"{label}: {ids}", width, "    ")))
    echo(f"Files with rules of your own go into {settings.folder / DROP_IN}.")


def _table(rule_entries: Sequence[RuleEntry], folder: Path, width: int | None) -> Iterator[str]:
    """Yield a line for each rule; titles and reasons go to a second line if the terminal is too narrow."""
    rows = []
    for entry in rule_entries:
        window = "" if entry.window_s is None else format_duration(entry.window_s)
        # Of a file in the folder of the settings, the name without that folder.
        origin = f"{entry.origin.removeprefix(f'{folder}/')} {entry.version or ''}".rstrip()
        rows.append((entry.id, entry.state, window, origin, (entry.confinement or "").partition(" (")[0]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
    texts = [entry.reason or entry.title or "" for entry in rule_entries]
    lines = ["  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)) for row in rows]
    if width is None or all(len(line) + 2 + len(text) <= width for line, text in zip(lines, texts, strict=True)):
        yield from (f"{line}  {text}".rstrip() for line, text in zip(lines, texts, strict=True))
        return
    for line, text in zip(lines, texts, strict=True):
        yield from _wrapped(line.rstrip(), width, "    ")
        yield from _wrapped(f"    {text}".rstrip(), width, "    ")


def _wrapped(text: str, width: int | None, indent: str) -> list[str]:
    """Return text as lines of at most `width` columns; None is any width."""
    if width is None or len(text) <= width:
        return [text] if text else []
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)


@rules.command("explain", short_help="Show the page of a rule: why, when it is wrong, its options.")
@click.argument("name")
@config_option
def explain(config_file: str | None, name: str) -> None:
    """Show the page of the rule with the id NAME: what it does, why, when it is wrong, how to apply it, its options."""
    from pertoken.advisor.rules.discovery import find_rules
    from pertoken.advisor.rules.listing import listed, page, refuse_unknown_rule
    from pertoken.proof.recommendation import built_in_page

    settings = settings_of(config_file)
    text = built_in_page(name)
    if text is None:
        refuse_unknown_rule(name, find_rules(settings))
        text = page(name, listed(settings))
    width = terminal_width()
    for line in text.rstrip("\n").split("\n"):
        echo("\n".join(_wrapped(line, width and min(width, MAX_WIDTH), " " * hanging_indent(line))))


@rules.command("record", short_help="Show promised and realised savings by rule.")
@db_option
@json_option
def record(database: Database, as_json: bool) -> None:
    """Show the ratio of realised to promised savings of each rule, from the receipts of its recommendations.

    The ratio starts at 1; each receipt moves it by its certainty. The number after ± is its standard deviation.
    """
    from pertoken.proof.judging.receipts import all_receipts, records

    _, store = database.opened()
    ratios = records(all_receipts(store))
    if as_json:
        echo(json.dumps([asdict(row) for row in ratios], indent=2))
        return
    if not ratios:
        echo("No receipts of recommendations yet: `pertoken advise` makes one for each change, a week after it.")
        return
    width = max(len("rule"), *(len(row.rule) for row in ratios))
    echo(f"{'rule':<{width}}  realised / promised  receipts  not counted")
    for row in ratios:
        ratio = f"{row.record.ratio:.2f} ± {row.record.ratio_sd:.2f}"
        echo(f"{row.rule:<{width}}  {ratio:>19}  {row.record.receipts:>8}  {row.not_counted:>11}")


@rules.command("disable", short_help="Switch a rule off.")
@click.argument("rule_id", metavar="ID")
@config_option
def disable(config_file: str | None, rule_id: str) -> None:
    """Switch the rule ID off for every run with this configuration, `up` and the service included.

    Its ID is stored in disabled-rules.txt beside the settings file; the file or entry point of that name is not loaded.
    """
    from pertoken.advisor.rules import discovery
    from pertoken.advisor.rules.listing import entries, listed, refuse_unknown_rule, unknown

    settings = settings_of(config_file)
    plugins = discovery.find_rules(settings)
    refuse_unknown_rule(rule_id, plugins)
    if rule_id not in {plugin.name for plugin in plugins}:
        rule_ids = {entry.id for entry in entries(listed(settings))}
        if rule_id not in rule_ids:
            raise unknown(rule_id, rule_ids)
    discovery.disable(settings.folder, rule_id)
    echo(f"{rule_id} is off from the next run on ({settings.folder / discovery.SWITCHES}).")


@rules.command("enable", short_help="Switch a rule on again.")
@click.argument("rule_id", metavar="ID")
@config_option
def enable(config_file: str | None, rule_id: str) -> None:
    """Switch the rule ID on again."""
    from pertoken.advisor.rules import discovery

    settings = settings_of(config_file)
    if rule_id not in (off := discovery.disabled(settings.folder)):
        raise BadInput(f"{rule_id!r} is not switched off; switched off are: {', '.join(off) or 'none'}")
    discovery.enable(settings.folder, rule_id)
    echo(f"{rule_id} runs again from the next run on.")
