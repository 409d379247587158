"""`pertoken agent`: the daemon alone."""

import click

from pertoken.cli.agent_release import release
from pertoken.cli.options import db_option, json_option, parent_option, settings_of


@click.group(short_help="Measure this host and record it, until stopped.", invoke_without_command=True)
@db_option
@click.option("--interval", "agent_interval", metavar="TIME", help="Time between ticks, e.g. 1s or 10s [default: 10s].")
@click.option(
    "--engine",
    "agent_engines",
    metavar="URL",
    multiple=True,
    help="Base URL of an inference server to read besides those found here (repeatable); its kind is detected.",
)
@click.option("--once", is_flag=True, help="Measure now, print, store nothing.")
@json_option
@parent_option
@click.pass_context
def agent(
    context: click.Context,
    config_file: str | None,
    db: str | None,
    agent_interval: str | None,
    agent_engines: tuple[str, ...],
    once: bool,
    as_json: bool,
    with_parent: bool,
) -> None:
    """Measure devices, host and inference servers, and record them in a folder.

    SIGTERM or ctrl+c ends it with the last tick stored; SIGHUP rereads the settings.
    """
    if context.invoked_subcommand is not None:
        return
    from pertoken.errors import BadInput

    options = {"db": db, "agent_interval": agent_interval, "agent_engines": list(agent_engines) or None}
    if as_json and not once:
        raise BadInput("--json goes with --once: the daemon prints nothing but its log")
    if once:
        from pertoken.agent.once import measure, show

        reading = measure(settings_of(config_file, **options))
        click.echo(show(reading, as_json))
        return
    from pertoken.agent.daemon import run

    run(lambda: settings_of(config_file, **options), with_parent=with_parent)


agent.add_command(release)
