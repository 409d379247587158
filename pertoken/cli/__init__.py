"""The command line. Commands load what they need when they run, so that `pertoken --help` stays light."""

import os
from typing import Any

import click

from pertoken import __version__
from pertoken.cli.advise import advise
from pertoken.cli.agent import agent
from pertoken.cli.config import config
from pertoken.cli.costs import costs
from pertoken.cli.db import db
from pertoken.cli.doctor import doctor
from pertoken.cli.export import export, restore
from pertoken.cli.prices.commands import prices
from pertoken.cli.rules import rules
from pertoken.cli.screens.top import top
from pertoken.cli.screens.up import up
from pertoken.errors import BadInput, PertokenError, limit_reached, system_error
from pertoken.printable import acts, literal


def _report(error: PertokenError) -> None:
    click.echo(f"pertoken: {' '.join(map(literal, str(error).splitlines()))}", err=True)


class _Commands(click.Group):
    """Reports errors in one line, and keeps the commands in the order a newcomer meets them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for argument in args:
            if any(map(acts, argument)):
                what = f"argument {literal(argument)}: is not UTF-8 text without control characters"
                _report(BadInput(f"{what}; write it otherwise, or rename the file"))
                ctx.exit(BadInput.exit_code)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        # numpy's linear algebra reserves memory for each of its threads, and ends the process where it gets none. The
        # arrays here are small: handing a part of them to a thread costs more CPU than it saves.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        try:
            return super().invoke(ctx)
        except (PertokenError, OSError, MemoryError, RuntimeError, ImportError, SystemError) as error:
            if isinstance(error, click.exceptions.Exit | click.exceptions.Abort):
                raise  # they are RuntimeErrors
            own = error if isinstance(error, PertokenError) else None
            reported = limit_reached(error) or own or system_error(error)
            if reported is None:
                raise
            _report(reported)
            ctx.exit(reported.exit_code)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="pertoken")
def main() -> None:
    """What your own LLM tokens cost, and what would make them cheaper.

    Start with `pertoken up` on a host that serves a model: it measures, advises and shows both.
    """


for _command in (up, agent, top, advise, rules, costs, prices, doctor, db, export, restore, config):
    main.add_command(_command)
