"""`pertoken config`: the settings file."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pertoken.cli.options import config_option, echo, json_option, settings_of
from pertoken.config import Settings, default_file, template
from pertoken.errors import BadInput
from pertoken.settings.values import APP, shown


@click.group(short_help="Write, check and show the settings.")
def config() -> None:
    """Write, check and show the settings. Each is also an environment variable."""


@config.command("init", short_help="Write a settings file with every key explained.")
@config_option
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init(config_file: str | None, force: bool) -> None:
    """Write a settings file in which every key is explained and left at its default."""
    file = Path(config_file) if config_file else default_file()
    if file.exists() and not force:
        raise BadInput(f"{file} exists already; --force overwrites it")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(template())
    except OSError as error:
        raise BadInput(f"{file}: cannot be written: {error.strerror}") from None
    echo(f"Wrote {file}.")


@config.command("check", short_help="Check the settings file and the environment.")
@config_option
def check(config_file: str | None) -> None:
    """Check the settings file and the environment: print one line per mistake, exit 2 if there is one.

    Options of rules are checked where rules are loaded, by `pertoken rules list`. A [rules.ID] without a built-in rule
    of that ID is a mistake if only built-in rules are installed."""
    from pertoken.advisor.rules.discovery import find_rules, unknown_options

    settings = settings_of(config_file)
    plugins = find_rules(settings) if settings.rules else ()
    # A built-in rule has the name of its entry point; a file or another package may hold rules of any id.
    if all(plugin.distribution == APP for plugin in plugins):
        wrong = unknown_options((plugin.name for plugin in plugins), settings)
        if wrong:
            raise BadInput("\n".join(wrong))
    echo(f"{settings.source}: good." if settings.source else "No settings file; the environment is good.")


@config.command("show", short_help="Show every setting and where it comes from.")
@config_option
@json_option
def show(config_file: str | None, as_json: bool) -> None:
    """Show every setting as it is in force, and where it was set. Secrets are masked."""
    settings = settings_of(config_file)
    values = {key.name: shown(key.name, getattr(settings, key.attribute)) for key in Settings.table()}
    set_by = {key.name: settings.set_by[key.attribute] for key in Settings.table() if key.attribute in settings.set_by}
    if as_json:
        echo(json.dumps({"source": str(settings.source or ""), **values, "set_by": set_by}, indent=2))
        return
    echo(f"# settings file: {settings.source or 'none'}")
    for key in Settings.table():
        value = values[key.name]
        origin = f"  # {set_by[key.name]}" if key.name in set_by else ""
        echo(f"{key.name} = {json.dumps(value) if value is not None else '(detected)'}{origin}")
