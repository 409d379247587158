"""`pertoken rules`: start, check, list, explain and switch rules."""

from __future__ import annotations

from pathlib import Path

import click

from pertoken.cli.options import config_option, echo, json_option, settings_of


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

    Prints what each situation gets. Exit 1 if a rule does not conform. PATH is run with your rights.
    """
    from pertoken.advisor.rules.check import check as check_rules
    from pertoken.testing import regimes

    checked = check_rules(path)
    for each in checked:
        echo(f"{each.rule.rule_id}: {each.rule.title}")
        for regime, lines in each.got:
            echo("\n".join(f"  {regime if not number else '':18} {line}" for number, line in enumerate(lines)))
        for fault in each.faults:
            echo(f"  fault: {fault}")
        verdict = "does not conform" if each.faults else "conforms"
        echo(f"  {verdict}: {len(each.faults)} faults in {len(regimes())} situations\n")
    if any(each.faults for each in checked):
        raise click.exceptions.Exit(1)


@rules.command("list", short_help="List all rules, and why some do not run.")
@config_option
@json_option
def list_rules(config_file: str | None, as_json: bool) -> None:
    """List every rule that was found: its id, where it is from, and whether it is loaded.

    A rule is loaded, disabled (`pertoken rules disable`), denied (`advisor.allow`, `advisor.deny`, or a file that
    others could have written) or broken.
    """
    import json
    from dataclasses import asdict

    from pertoken.advisor.rules.found import DROP_IN
    from pertoken.advisor.rules.listing import entries
    from pertoken.advisor.rules.load import load_rules, names_of, unknown_options

    settings = settings_of(config_file)
    loaded = load_rules(settings)
    known = entries(loaded)
    for line in unknown_options(names_of(loaded), settings):
        echo(f"pertoken rules: {line}", err=True)
    if as_json:
        echo(json.dumps([asdict(each) for each in known], indent=2))
        return
    rows = [(each.id, each.state, f"{each.origin} {each.version or ''}".rstrip()) for each in known]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
    for row, each in zip(rows, known, strict=True):
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        echo(f"{cells}  {each.reason or each.title or ''}".rstrip())
    echo(f"Files with rules of your own go into {settings.folder / DROP_IN}.")


@rules.command("explain", short_help="Show all of one rule: why, when it is wrong, its options.")
@click.argument("name")
@config_option
def explain(config_file: str | None, name: str) -> None:
    """Show the page of the rule with the id NAME: what it does, why, when it is wrong, how to apply it, its options."""
    from pertoken.advisor.rules.listing import page
    from pertoken.advisor.rules.load import load_rules

    echo(page(name, load_rules(settings_of(config_file))), nl=False)


@rules.command("disable", short_help="Switch a rule off.")
@click.argument("rule_id", metavar="ID")
@config_option
def disable(config_file: str | None, rule_id: str) -> None:
    """Switch the rule ID off for every run with this configuration, `up` and the service included.

    Kept in disabled-rules.txt beside the settings file. The file or entry point of that name is not loaded then.
    """
    from pertoken.advisor.rules import switches
    from pertoken.advisor.rules.found import find_rules
    from pertoken.advisor.rules.listing import entries, unknown
    from pertoken.advisor.rules.load import load_rules

    settings = settings_of(config_file)
    if rule_id not in {each.name for each in find_rules(settings)}:
        known = {each.id for each in entries(load_rules(settings))}
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
