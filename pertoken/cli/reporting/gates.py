"""Option `--fail-on EXPR` of several commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from pertoken.cli.options import AsOf, echo

if TYPE_CHECKING:
    from pertoken.config import Settings
    from pertoken.reports.gates import Gate
    from pertoken.settings.alerts import Comparison
    from pertoken.store.connect.open import Store


def fail_on_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--fail-on EXPR`."""
    return click.option(
        "--fail-on",
        "fail_on",
        metavar="EXPR",
        multiple=True,
        callback=_read,
        help="Exit with 1 if this is true, such as 'usd_per_mtok[service=chat] > 2.5' (repeatable; docs/alerts.md).",
    )(command)


def _read(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[Comparison, ...]:
    if not texts:
        return ()
    from pertoken.reports.gates import read_gates

    return read_gates(texts)


def judged(
    fail_on: Sequence[Comparison], store: Store, settings: Settings, window_s: int, moment: AsOf
) -> tuple[Gate, ...]:
    """Return the gates over the last `window_s` seconds; print those not kept to standard error. Raises StoreError."""
    if not fail_on:
        return ()
    from pertoken.reports.gates import Figures, judge

    figures = Figures(store, settings, window_s, moment.ts, dated=moment.dated)
    gates = judge(fail_on, figures)
    for gate in gates:
        if gate.status != "kept":
            echo(f"pertoken: {gate.line}", err=True)
    return gates


def leave(gates: Sequence[Gate]) -> None:
    """End with the exit status of the gates: 0 kept, 1 broken, 3 not measurable."""
    from pertoken.reports.gates import exit_status

    if gates and (status := exit_status(gates)):
        raise click.exceptions.Exit(status)
