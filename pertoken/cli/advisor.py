"""`pertoken advisor`: repeated advice and alerts alone, and the same as a service of this host."""

from __future__ import annotations

import os
import time

import click

from pertoken.cli.agent import dry_run_option, install_service, uninstall_service
from pertoken.cli.options import Database, db_option, echo
from pertoken.config import SERVICE_ADVICE, SERVICE_FOLDER, SERVICE_SETTINGS
from pertoken.errors import PertokenError


@click.group(invoke_without_command=True, short_help="Advise and watch alerts, until stopped.")
@db_option
@click.pass_context
def advisor(context: click.Context, database: Database) -> None:
    """Run the rules every advisor.every, watch alerts each minute, and expose dollars, until stopped.

    The first run starts once there is enough telemetry. While another advisor serves the same database, this one waits
    and takes over when it ends. Without --db it serves the database of the credential pertoken.advisor-url where the
    service manager hands one over, else the one of this host's agent. The commands below install it as a service.
    """
    if context.invoked_subcommand:
        return
    from pertoken.cli.advise import serve_advice
    from pertoken.store.connect.location import ADVISOR_CREDENTIAL, credential, locate

    settings = database.settings()
    under_manager = str(SERVICE_FOLDER) if os.environ.get("STATE_DIRECTORY") else None
    where = locate(settings.db or credential(ADVISOR_CREDENTIAL) or under_manager, settings.advice)
    serve_advice(where, settings)


@advisor.command(short_help="Install it as a systemd service.")
@dry_run_option
def install(dry_run: bool) -> None:
    """Install the advisor as a hardened systemd service, with a user of its own that has no right of the agent.

    It keeps advice in /var/lib/pertoken/advice. Members of the group pertoken read it, and those of pertoken-advisor
    decide on it. For the database of a fleet, write the URL of an advisor's login into
    /etc/credstore/pertoken.advisor-url (mode 0600) first. Settings are those of /etc/pertoken/pertoken.toml.
    """
    from pertoken.agent.systemd import ADVISOR

    earlier, file = SERVICE_FOLDER / "advice.db", SERVICE_ADVICE / "advice.db"
    refused = f"{earlier} holds advice of runs without the service: move it to {file}, or delete it"
    if install_service(ADVISOR, dry_run=dry_run, refused=refused if earlier.exists() and not file.exists() else None):
        echo(f"The advisor runs and keeps advice in {SERVICE_ADVICE}; its settings are in {SERVICE_SETTINGS}.")
        echo("To decide on advice: `sudo usermod -aG pertoken,pertoken-advisor $USER`, log in again, `pertoken top`.")


@advisor.command(short_help="Remove the service.")
@click.option("--delete-data", is_flag=True, help="Delete stored advice, decisions and prices too.")
def uninstall(delete_data: bool) -> None:
    """Stop the service and remove what `install` wrote. Advice and settings stay; --delete-data deletes the advice."""
    from pertoken.agent.systemd import ADVISOR

    uninstall_service(ADVISOR, delete_data=delete_data)


@advisor.command(short_help="Show whether it runs.")
@db_option
def status(database: Database) -> None:
    """Show whether the service is installed and runs, when the rules run next, and the state of its jobs.

    Exit 1 if no advisor serves the database.
    """
    from pertoken.advisor.service import first_run
    from pertoken.agent.doctor import running_jobs
    from pertoken.agent.systemd import ADVISOR, manager_state
    from pertoken.schedule.jobs import ADVISOR as ADVISOR_PROGRAM
    from pertoken.store.connect.turn import is_served

    settings, where = database.located()
    service_state = manager_state(ADVISOR)
    echo(f"service   {service_state}")
    if not is_served(where) and settings.db is None and service_state.startswith("active (running)"):
        raise PertokenError(
            f"the service runs and does not serve {where} yet: ask again in some seconds; "
            f"`journalctl -u {ADVISOR.unit}` has the reason if it stays so"
        )
    if not is_served(where):
        raise PertokenError(
            f"no advisor serves {where}: `sudo pertoken advisor install`, or `pertoken advisor` in a terminal"
        )
    if (first := first_run(where, settings.advisor_every)) is not None:
        echo(f"advice    {first.sentence()}")
    now_ts = time.time()
    for program, state in running_jobs(where):
        if program == ADVISOR_PROGRAM:
            echo(f"job       {state.name}: {state.text(now_ts)}")
