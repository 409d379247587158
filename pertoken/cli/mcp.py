"""`pertoken mcp`: costs, savings, verdicts and refusals for a model's tools."""

from __future__ import annotations

import click

from pertoken.cli.options import Database, db_option, warn_of_other_settings
from pertoken.errors import BadInput


@click.command(short_help="Answer a model's questions over stdio (MCP), read-only.")
@db_option
def mcp(database: Database) -> None:
    """Serve the tools costs, savings, verdicts and refusals by the Model Context Protocol over stdin and stdout.

    Nothing is written, and no network is used. Needs the extra `mcp`.
    """
    from pertoken.reports.mcp_server import Replies
    from pertoken.store.connect.open import open_store

    try:
        from pertoken.reports.mcp_server import server_of
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "mcp":
            raise
        from pertoken.installed import install_command

        raise BadInput(f"the MCP server needs the official SDK: {install_command('mcp')}") from None
    settings, where = database.located()
    open_store(where)  # a wrong --db is reported here, not with the first question
    warn_of_other_settings(where, settings)
    server_of(Replies(where, settings)).run("stdio")
