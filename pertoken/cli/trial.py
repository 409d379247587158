"""`pertoken trial`: try a recommendation on one replica before applying it everywhere."""

from __future__ import annotations

import getpass
import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import Database, db_option, echo, json_option
from pertoken.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from pertoken.config import Settings
    from pertoken.proof.recommendation import Recommendation
    from pertoken.proof.trials.endpoint import PromptOutput
    from pertoken.proof.trials.look import Ask, Observed
    from pertoken.proof.trials.trial import Arm, Trial


LOOK_S = 10.0
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
@click.option("--endpoint", metavar="URL", help="Ask the canary here 16 fixed prompts, and compare its outputs.")
@click.option("--control-endpoint", metavar="URL", help="The same of the control, where there are two replicas.")
@db_option
@json_option
def trial(
    database: Database,
    advice_id: str,
    minutes: int | None,
    blocks: int | None,
    once: bool,
    stop: bool,
    waived: bool,
    endpoint: str | None,
    control_endpoint: str | None,
    as_json: bool,
) -> None:
    """Try a recommendation before applying it everywhere. An open one is accepted: its estimate is frozen.

    With two or more equal replicas, you restart one with the change and one without; once both appear in telemetry they
    are compared over the same minutes. With one replica you switch the change on and off in turn. The only command
    that is run is your own quality check (advisor.quality_check), if outputs may change. With --endpoint fixed prompts
    are sent to the engine too: outputs that are degenerate, of another length or all other ones end the trial.

    Ctrl-C stops waiting, not the trial: the same command continues it.
    """
    from pertoken.costs.prices.stored import market_of
    from pertoken.proof.stored import find, stored
    from pertoken.proof.trials import look
    from pertoken.proof.trials.trial import Status, read_trials, running
    from pertoken.store.connect.open import open_store
    from pertoken.store.repository import AdviceRepository
    from pertoken.text.lifecycle import instructions, result_lines

    settings, where = database.located()
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
    ask = _asking(current, settings, endpoint, control_endpoint)
    market = market_of(store, settings.market_provider, settings.market_region)

    def one_look(observed_trial: Trial) -> tuple[Trial, Observed]:
        check = look.quality_check(observed_trial, settings)
        return look.look(store, target, observed_trial, row, market, settings, int(time.time()), check, ask)

    if current.status is Status.RUNNING:
        if not as_json:
            echo("\n".join(instructions(current, row)))
        current = _wait(current, row, one_look, once=once)
    if as_json:
        echo(json.dumps(asdict(current), indent=2))
    elif current.status is not Status.RUNNING:
        echo("\n".join(["", *result_lines(current, row)]))


def _asking(current: Trial, settings: Settings, endpoint: str | None, control_endpoint: str | None) -> Ask | None:
    """Return how the replicas of a trial are asked, None where no endpoint was given. Raises BadInput."""
    import secrets

    from pertoken.agent.load_probe import Client
    from pertoken.cli.check import answers_of
    from pertoken.cli.probe import access_to, base_url, listed_model

    if endpoint is None:
        return None
    if current.control is not None and control_endpoint is None:
        raise BadInput("this trial has two replicas: give --control-endpoint, too")
    urls = {current.canary: base_url(endpoint)}
    if current.control is not None and control_endpoint is not None:
        urls[current.control] = base_url(control_endpoint)

    def ask(arm: Arm) -> tuple[PromptOutput, ...]:
        url = urls[arm]
        return answers_of(Client(url, listed_model(url, settings), access_to(url, settings), secrets.randbits(64)))

    return ask


def _wait(
    current: Trial, row: Recommendation, one_look: Callable[[Trial], tuple[Trial, Observed]], *, once: bool
) -> Trial:
    """Read telemetry until a trial has ended; print its waiting reason to standard error whenever that changes."""
    import threading

    from pertoken.proof.recommendation import short_id
    from pertoken.proof.trials.trial import Status
    from pertoken.text.lifecycle import waiting_for

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
