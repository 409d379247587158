"""Installation and removal of agent and advisor as services of this host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pertoken.cli.options import echo

if TYPE_CHECKING:
    from pertoken.agent.systemd import Service

dry_run_option = click.option("--dry-run", is_flag=True, help="Print what would be written and run; change nothing.")


def install_service(service: Service, *, dry_run: bool, refused: str | None = None) -> bool:
    """Install a service and return True; with `dry_run` print the plan and return False.

    Raises BadInput where the service cannot start this Python, or with the reason `refused`.
    """
    from pertoken.agent.systemd import carry_out, hidden_from_service, install, installation
    from pertoken.errors import BadInput

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


def uninstall_service(service: Service, *, delete_data: bool) -> None:
    """Remove a service and report where its data stay."""
    from pertoken.agent.systemd import carry_out, uninstall

    uninstall(service, carry_out, delete_data)
    echo("The service is gone." if delete_data else f"The service is gone; its data stay in {service.data}.")
