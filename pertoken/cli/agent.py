"""`pertoken agent`: the daemon alone, and the same as a service of this host."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import Database, db_option, echo, json_option, parent_option
from pertoken.config import SERVICE_FOLDER, SERVICE_SETTINGS
from pertoken.errors import BadInput, PertokenError
from pertoken.printable import short

if TYPE_CHECKING:
    from pertoken.agent.systemd import SystemdService


dry_run_option = click.option("--dry-run", is_flag=True, help="Print what would be written and run; change nothing.")


def install_service(service: SystemdService, *, dry_run: bool, refused: str | None = None) -> bool:
    """Install a service and return True; with `dry_run` print the plan and return False.

    Raises BadInput where the service cannot start this Python, or with the reason `refused`.
    """
    from pertoken.agent.systemd import carry_out, hidden_from_service, install, installation

    plan, refused = installation(service), hidden_from_service(service) or refused
    if dry_run:
        echo(plan)
        if refused:
            echo(f"It would be refused: {refused}.", err=True)
        return False
    if refused:
        raise BadInput(refused)
    install(plan, carry_out)
    return True


def uninstall_service(service: SystemdService, *, delete_data: bool) -> None:
    """Remove a service and report where its data stay."""
    from pertoken.agent.systemd import carry_out, uninstall

    uninstall(service, carry_out, delete_data)
    echo("The service is gone." if delete_data else f"The service is gone; its data stay in {service.data}.")


RELEASE_S = 30.0
"""Time that the running agent may take to end its tick and release the drivers."""


@click.group(invoke_without_command=True, short_help="Measure this host and record it, until stopped.")
@db_option
@click.option("--interval", "agent_interval", metavar="TIME", help="Time between ticks, e.g. 1s or 10s [default: 10s].")
@click.option(
    "--engine",
    "agent_engines",
    metavar="URL",
    multiple=True,
    help="Base URL of an inference server to read besides those discovered (repeatable); its kind is detected.",
)
@click.option("--hpc", "hpc_folder", metavar="DIR", help="Folder with the batch jobs of each GPU, a file for each.")
@click.option("--once", is_flag=True, help="Measure now, print, store nothing.")
@json_option
@parent_option
@click.pass_context
def agent(
    context: click.Context,
    database: Database,
    agent_interval: str | None,
    agent_engines: tuple[str, ...],
    hpc_folder: str | None,
    once: bool,
    as_json: bool,
    with_parent: bool,
) -> None:
    """Measure devices, host and inference servers, and record them in a folder.

    SIGTERM or ctrl+c ends it with the last tick stored; SIGHUP rereads the settings. The commands below install it as
    a service of this host, and make it release the drivers for a while.
    """
    if context.invoked_subcommand:
        return
    options = {
        "agent_interval": agent_interval,
        "agent_engines": list(agent_engines) or None,
        "agent_hpc_job_mapping_dir": hpc_folder,
    }
    if hpc_folder is not None and not (Path(hpc_folder).is_dir() and os.access(hpc_folder, os.R_OK | os.X_OK)):
        raise BadInput(f"--hpc {short(hpc_folder)}: this is no folder that can be listed")
    if as_json and not once:
        raise BadInput("--json goes with --once: the daemon prints nothing but its log")
    if once:
        from pertoken.agent.doctor import measure, show

        reading = measure(database.settings(**options))
        echo(show(reading, as_json))
        return
    from pertoken.agent.sampler.client import Drivers

    # Started first: the drivers load while the agent's modules are imported.
    drivers = Drivers(database.settings(**options).agent_probes)
    drivers.start()
    try:
        from pertoken.agent.daemon import run

        run(lambda: database.settings(**options), drivers, with_parent=with_parent)
    finally:
        drivers.close()


@agent.command(short_help="Install it as a systemd service.")
@dry_run_option
def install(dry_run: bool) -> None:
    """Install the agent as a hardened systemd service with a user of its own, recording in /var/lib/pertoken.

    Settings go to /etc/pertoken/pertoken.toml. Members of the group pertoken can read what is recorded.
    """
    from pertoken.agent.systemd import AGENT

    if install_service(AGENT, dry_run=dry_run):
        echo(f"The agent runs and records in {SERVICE_FOLDER}; its settings are in {SERVICE_SETTINGS}.")
        echo("To see it: `sudo usermod -aG pertoken $USER`, log in again, `pertoken top`.")
        echo("For advice and alerts: `sudo pertoken advisor install`, here or beside the database of a fleet.")


@agent.command(short_help="Remove the service.")
@click.option("--delete-data", is_flag=True, help="Delete recorded data and settings too.")
def uninstall(delete_data: bool) -> None:
    """Stop the service and remove what `install` wrote. Recorded data and settings stay, unless --delete-data is
    given."""
    from pertoken.agent.systemd import AGENT

    uninstall_service(AGENT, delete_data=delete_data)


@agent.command(short_help="Show whether it runs.")
@db_option
def status(database: Database) -> None:
    """Show whether the service is installed and runs, who records in the database, and the jobs of agent and advisor.

    Exit 1 if no agent records.
    """
    from pertoken.agent.doctor import running_jobs
    from pertoken.agent.systemd import AGENT as AGENT_SERVICE
    from pertoken.agent.systemd import manager_state
    from pertoken.schedule.jobs import AGENT
    from pertoken.store.connect.location import AgentLock

    _, where = database.located()
    echo(f"service   {manager_state(AGENT_SERVICE)}")
    owner = AgentLock(where.folder).owner() if where.folder else None
    if owner is None or where.folder is None:
        raise PertokenError(f"no agent records in {where}: start one with `pertoken agent`, or install the service")
    echo(f"recording pid {owner}, in {where}")
    now_ts = time.time()
    for program, state in running_jobs(where):
        heading = "job" if program == AGENT else program
        echo(f"{heading:<9} {state.name}: {state.text(now_ts)}")


@agent.command(short_help="Release the drivers, so that they can be unloaded.")
@db_option
def release(database: Database) -> None:
    """Make the running agent release the GPU drivers, so that they can be unloaded or a GPU reset.

    Host and engines are recorded meanwhile, devices as missing with the reason, for 10 minutes or until
    `pertoken agent resume`.
    """
    from pertoken.agent.systemd import samplers

    pid = _signal_agent(database, signal.SIGUSR1)
    deadline = time.monotonic() + RELEASE_S
    while samplers(pid):
        if time.monotonic() > deadline:
            raise PertokenError(
                f"the agent (pid {pid}) still holds the drivers after {RELEASE_S:.0f} s: a driver call hangs; "
                "wait until it returns"
            )
        time.sleep(0.1)
    echo(
        f"The agent (pid {pid}) has released the drivers for 10 minutes; "
        "`pertoken agent resume` makes it read them again."
    )


@agent.command(short_help="Read the drivers again.")
@db_option
def resume(database: Database) -> None:
    """Make the running agent reread its settings and read the drivers again."""
    echo(f"The agent (pid {_signal_agent(database, signal.SIGHUP)}) reads the drivers again.")


def _signal_agent(database: Database, number: int) -> int:
    """Send a signal to the agent that records in the database; return its pid. Raises PertokenError."""
    from pertoken.store.connect.location import AgentLock

    _, where = database.located()
    pid = AgentLock(where.folder).owner() if where.folder else None
    if pid is None:
        raise PertokenError(f"no agent records in {where}")
    try:
        os.kill(pid, number)
    except PermissionError:
        raise PertokenError(f"the agent (pid {pid}) is another user's: run it with sudo") from None
    return pid
