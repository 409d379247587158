"""`pertoken trial`: try a recommendation on one replica before applying it everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pertoken.cli.options import db_option, echo, json_option, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pertoken.proof.recommendation import Recommendation
    from pertoken.proof.trials.progress import Observed
    from pertoken.proof.trials.trial import Trial

LOOK_S = 10.0
"""Time between two readings of telemetry."""
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


@click.command(short_help="Try a recommendation beside an unchanged replica, or on and off.")
@click.argument("advice_id", metavar="ID")
@click.option("--minutes", type=click.IntRange(60), help="Minutes to compare [default: 120; 30 in each block].")
@click.option("--blocks", type=click.IntRange(6), help="Blocks with and without, with one replica [default: 8].")
@click.option("--once", is_flag=True, help="Look once and end; the trial goes on.")
@click.option("--stop", is_flag=True, help="End the trial without a result.")
@click.option(
    "--without-quality-check",
    "waived",
    is_flag=True,
    help="Try a change that can alter outputs although advisor.quality_check is not set.",
)
@db_option
@json_option
def trial(
    config_file: str | None,
    db: str | None,
    advice_id: str,
    minutes: int | None,
    blocks: int | None,
    once: bool,
    stop: bool,
    waived: bool,
    as_json: bool,
) -> None:
    """Try a recommendation before applying it everywhere. An open one is accepted: its estimate is frozen.

    With two or more equal replicas, you restart one with the change and one without; once both appear in telemetry they
    are compared over the same minutes. With one replica you switch the change on and off in turn. The only command
    that is run is your own quality check (advisor.quality_check), if outputs may change.

    Ctrl-C stops waiting, not the trial: the same command continues it.
    """
    import getpass
    import json
    import time
    from dataclasses import asdict

    from pertoken.costs.prices.stored import market_of
    from pertoken.errors import BadInput
    from pertoken.proof.stored import find, stored
    from pertoken.proof.trials import look
    from pertoken.proof.trials.stored import read_trials, running
    from pertoken.proof.trials.trial import Status
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import open_store
    from pertoken.store.repository import AdviceRepository
    from pertoken.text.advice.trial import instructions, result_lines

    settings = settings_of(config_file, db=db)
    where = locate(settings.db, settings.advice)
    store = open_store(where, keep=True)
    if store.advice is None:
        raise BadInput(f"{where}: holds no advice yet; `pertoken advise` makes some")
    target = AdviceRepository(where)
    with store.read("advice") as connection:
        row = find(stored(connection), advice_id, where)
        trials = read_trials(connection, row.recommendation_id)
    current = next(iter(running(trials)), None)
    if stop:
        if current is None:
            raise BadInput(f"{advice_id}: no trial of it is running")
        current = look.stop(target, current, int(time.time()))
    elif current is None:
        row, current = look.begin(
            store,
            target,
            row,
            settings,
            int(time.time()),
            getpass.getuser(),
            minutes=minutes,
            blocks=blocks,
            quality_waived=waived,
        )
    market = market_of(store, settings.market_provider, settings.market_region)

    def one_look(known: Trial) -> tuple[Trial, Observed]:
        check = look.quality_check(known, settings)
        return look.look(store, target, known, row, market, settings, int(time.time()), check)

    if current.status is Status.RUNNING:
        if not as_json:
            echo("\n".join(instructions(current, row)))
        current = _wait(current, row, one_look, once=once)
    if as_json:
        echo(json.dumps(asdict(current), indent=2))
    elif current.status is not Status.RUNNING:
        echo("\n".join(["", *result_lines(current, row)]))


def _wait(
    current: Trial, row: Recommendation, one_look: Callable[[Trial], tuple[Trial, Observed]], *, once: bool
) -> Trial:
    """Read telemetry until a trial has ended; print to standard error what it waits for whenever that changes."""
    import threading
    import time

    from pertoken.proof.recommendation import short_id
    from pertoken.proof.trials.trial import Status
    from pertoken.text.advice.trial import waiting_for

    shown: str | None = None
    pause = threading.Event()
    try:
        while True:
            current, seen = one_look(current)
            if current.status is not Status.RUNNING:
                return current
            line = waiting_for(current, seen, int(time.time()))
            if line != shown:
                echo(line, err=True)
                shown = line
            if once:
                return current
            pause.wait(LOOK_S)
    except KeyboardInterrupt:
        echo(f"\nThe trial goes on: `pertoken trial {short_id(row)}` waits for it again.", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
