"""The command line. A command is imported when it is named, and loads what it needs when it runs."""

import os
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module

import click

from pertoken import __version__
from pertoken.errors import BadInput, ImpossibleValues, PertokenError, limit_reached, system_error, too_little_memory
from pertoken.printable import acts, literal
from pertoken.text import amounts


def _report(error: PertokenError) -> None:
    click.echo(f"pertoken: {' '.join(map(literal, str(error).splitlines()))}", err=True)


class _Loaded(MutableMapping[str, click.Command]):
    """Commands by name, imported at first use: the agent, which runs for months, loads no other command."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules
        self._known: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._known:
            module = import_module(f"pertoken.cli.{self._modules[name]}")
            self._known[name] = getattr(module, _ATTRIBUTES.get(name, name))
        return self._known[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._known[name] = command

    def __delitem__(self, name: str) -> None:
        raise TypeError("commands cannot be deleted")

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


_ATTRIBUTES = {"import": "imports"}
"""Attribute of a command in its module, where the command's name is a Python keyword."""


class _Commands(click.Group):
    """The group of all commands: prints an error as one line, and lists commands by section."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for argument in args:
            if any(map(acts, argument)):
                what = f"argument {literal(argument)}: is not UTF-8 text without control characters"
                _report(BadInput(f"{what}; write it otherwise, or rename the file"))
                ctx.exit(BadInput.exit_code)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        # numpy's linear algebra reserves memory for each of its threads, and ends the process where it gets none. The
        # arrays here are small: handing a part of them to a thread costs more CPU than it saves.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        try:
            if (limit := too_little_memory()) is not None:
                raise limit
            try:
                return self._answered(ctx)
            finally:
                if (line := amounts.note_once()) is not None:
                    click.echo(literal(line))
                amounts.reset()
        except (PertokenError, OSError, MemoryError, RuntimeError, ImportError, SystemError) as error:
            if isinstance(error, click.exceptions.Exit | click.exceptions.Abort):
                raise  # they are RuntimeErrors
            pertoken_error = error if isinstance(error, PertokenError) else None
            reported = limit_reached(error) or pertoken_error or system_error(error)
            if reported is None:
                raise
            _report(reported)
            ctx.exit(reported.exit_code)

    def _answered(self, ctx: click.Context) -> object:
        """Run the command; if rows with impossible values end it, run it again without them."""
        words = list(ctx._protected_args), list(ctx.args)
        try:
            return super().invoke(ctx)
        except (ImpossibleValues, ArithmeticError, LookupError, ValueError):
            from pertoken.store.connect.open import without_impossible_rows

            with without_impossible_rows() as is_repeated:
                if not is_repeated:
                    raise
                ctx._protected_args, ctx.args = words
                return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in _SECTIONS.items():
            rows = [(name, self.commands[name].get_short_help_str(limit=formatter.width)) for name in commands]
            with formatter.section(title):
                formatter.write_dl(rows)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="pertoken")
def main() -> None:
    """Show what your own LLM tokens cost, and what would make them cheaper.

    Start with `pertoken up` on a host that serves a model: it measures, advises and shows both.
    """


_SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Measure and look": {
        "up": "screens.up",
        "agent": "agent",
        "advisor": "advisor",
        "top": "screens.top",
        "doctor": "doctor",
        "probe": "probe",
        "check": "check",
        "demo": "demo",
    },
    "Save": {
        "advise": "advise",
        "plan": "plan",
        "size": "money.size",
        "claims": "money.claims",
        "rules": "rules",
    },
    "Decide on a recommendation": {
        "accept": "decide",
        "snooze": "decide",
        "dismiss": "decide",
        "reopen": "decide",
        "trial": "trial",
        "applied": "decide",
        "undo": "decide",
        "receipt": "money.receipt",
    },
    "Count the money": {
        "costs": "costs",
        "budget": "money.budget",
        "reconcile": "money.reconcile",
        "prices": "money.prices",
        "report": "report",
        "alerts": "alerts",
        "mcp": "mcp",
    },
    "Keep": {
        "db": "db",
        "export": "export",
        "import": "imports",
        "record": "screens.record",
        "replay": "screens.record",
        "lake": "lake",
        "config": "config",
    },
}
"""Section of the help → command → module, in the order of the help."""
main.commands = _Loaded({name: module for section in _SECTIONS.values() for name, module in section.items()})
