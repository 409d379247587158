"""`pertoken doctor`: what can be measured on this host, what not, and how to switch it on."""

import click

from pertoken.cli.options import db_option, echo, json_option, settings_of


@click.command(short_help="Show what can be measured on this host, what not, and how to switch it on.")
@db_option
@json_option
def doctor(config_file: str | None, db: str | None, as_json: bool) -> None:
    """Show what can be measured on this host, what not and why, and how to switch it on. Nothing is stored."""
    from pertoken.agent.doctor import examine, show

    findings = examine(settings_of(config_file, db=db))
    echo(show(findings, as_json))
