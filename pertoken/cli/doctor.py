"""`pertoken doctor`: what can be measured here, what not, and how to switch it on."""

import click

from pertoken.cli.options import db_option, echo, json_option, settings_of


@click.command(short_help="Say what can be measured here, what not, and how to switch it on.")
@db_option
@json_option
def doctor(config_file: str | None, db: str | None, as_json: bool) -> None:
    """Say what can be measured on this host, what not and why, and how to switch it on. Stores nothing."""
    from pertoken.agent.doctor import examine, show

    findings = examine(settings_of(config_file, db=db))
    echo(show(findings, as_json))
