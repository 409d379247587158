"""Commands for decisions on recommendations: accept, snooze, dismiss, reopen, declare applied, undo."""

from __future__ import annotations

import getpass
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import Command, Database, db_option, echo, json_option, seconds_of
from pertoken.errors import BadInput
from pertoken.units import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pertoken.proof.recommendation import Moved, Recommendation

    Act = Callable[[Recommendation, int], Sequence[Moved]]


def _of_advice(command: Command) -> Command:
    """`ID`, `--why`, `--db` and `--json`."""
    command = click.option("--why", metavar="TEXT", help="Your reason, kept with the recommendation.")(command)
    return click.argument("advice_id", metavar="ID")(db_option(json_option(command)))


_variant_option = click.option(
    "--variant", metavar="KEY", help="An alternative of it, by the first digits of its key [default: the best]."
)


def _until_options(default: str) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        command = click.option("--until", metavar="TIME", help="End, e.g. 2026-12-01 (UTC).")(command)
        return click.option("--for", "duration", metavar="TIME", help=f"Length, e.g. 30d [default: {default}].")(
            command
        )

    return add


@click.command(short_help="Accept a recommendation: its estimate is frozen.")
@_of_advice
@_variant_option
def accept(database: Database, advice_id: str, variant: str | None, why: str | None, as_json: bool) -> None:
    """Accept a recommendation. Its estimate is frozen: what is measured later is compared with what was promised.

    ID is as `pertoken advise` prints it; its first digits are enough if no other ID begins with them. The smallest
    saving that the history of each deployment could prove is printed first, and the days until the promised saving is
    proven. Nothing is executed: the commands to run are printed. When the change appears in telemetry, the
    recommendation becomes applied.
    """
    from pertoken.proof import recommendation

    def act(row: Recommendation, now_ts: int) -> Sequence[Moved]:
        return recommendation.accept(row, now_ts, why, variant)

    _act(act, database, advice_id, as_json, next_step="apply")


@click.command(short_help="Put a recommendation off until a date.")
@_of_advice
@_until_options("14d")
def snooze(
    database: Database, advice_id: str, until: str | None, duration: str | None, why: str | None, as_json: bool
) -> None:
    """Put a recommendation off. Until the date it does not count in totals; the next advice run after it proposes it
    again."""
    from pertoken.proof import recommendation

    def act(row: Recommendation, now_ts: int) -> Sequence[Moved]:
        return recommendation.snooze(row, now_ts, _end(until, duration, recommendation.SNOOZE_S, now_ts), why)

    _act(act, database, advice_id, as_json)


@click.command(short_help="Decline a recommendation; its dollars count as declined.")
@_of_advice
@_until_options("90d")
def dismiss(
    database: Database, advice_id: str, until: str | None, duration: str | None, why: str | None, as_json: bool
) -> None:
    """Decline a recommendation. Until the date its dollars count as declined, not in totals."""
    from pertoken.proof import recommendation

    def act(row: Recommendation, now_ts: int) -> Sequence[Moved]:
        return recommendation.dismiss(row, now_ts, _end(until, duration, recommendation.DISMISS_S, now_ts), why)

    _act(act, database, advice_id, as_json)


@click.command(short_help="End a snooze or dismissal, or withdraw an acceptance.")
@_of_advice
def reopen(database: Database, advice_id: str, why: str | None, as_json: bool) -> None:
    """End a snooze or dismissal, or withdraw an acceptance.

    An accepted recommendation ends with its frozen estimate; its proposal continues as a new one with another ID.
    """
    from pertoken.proof import recommendation

    _act(lambda row, now_ts: recommendation.reopen(row, now_ts, why), database, advice_id, as_json)


@click.command(short_help="Declare that a recommendation was applied.")
@_of_advice
@_variant_option
def applied(database: Database, advice_id: str, variant: str | None, why: str | None, as_json: bool) -> None:
    """Declare that a recommendation was applied, accepted or not.

    Changes of an engine's configuration are detected automatically. Declare what telemetry does not show: prompts,
    contracts, schedules.
    """
    from pertoken.proof import recommendation

    _act(lambda row, now_ts: recommendation.declare(row, now_ts, why, variant), database, advice_id, as_json)


@click.command(short_help="Print the commands that undo an applied recommendation.")
@_of_advice
@click.option("--done", is_flag=True, help="Declare that it was undone; not needed where telemetry shows it.")
def undo(database: Database, advice_id: str, done: bool, why: str | None, as_json: bool) -> None:
    """Print the commands that undo an applied recommendation, and its journal. Nothing is executed."""
    from pertoken.proof import recommendation

    def act(row: Recommendation, now_ts: int) -> Sequence[Moved]:
        return recommendation.roll_back(row, now_ts, why) if done else ()

    _act(act, database, advice_id, as_json, next_step=None if done else "undo")


def _act(act: Act, database: Database, advice_id: str, as_json: bool, next_step: str | None = None) -> None:
    """Store one decision on a recommendation; print its new state and the commands of the next step."""
    from pertoken.cli.advise import values_of
    from pertoken.proof.detection import journal
    from pertoken.proof.judging.verifier import prospects
    from pertoken.proof.recommendation import undo_commands
    from pertoken.proof.stored import find, store_acts, stored
    from pertoken.store.repository import AdviceRepository
    from pertoken.text.lifecycle import acted, applying, journal_lines, prospect_lines, undoing

    _, store = database.opened()
    where = store.location
    if store.advice is None:
        raise BadInput(f"{where}: holds no advice yet; `pertoken advise` makes some")
    with store.read("advice") as connection:
        recommendation = find(stored(connection), advice_id, where)
    undone = undo_commands(recommendation) if next_step == "undo" else None
    now_ts = int(time.time())
    moves = act(recommendation, now_ts)
    chosen = replace(recommendation, estimate=moves[0].recommendation.estimate) if moves else recommendation
    provable = prospects(store, chosen, now_ts) if next_step == "apply" else ()
    if provable and not as_json:
        echo("\n".join([*prospect_lines(provable)[1:], ""]))  # before anything is stored
    rows = store_acts(AdviceRepository(where), recommendation, moves, getpass.getuser()) if moves else (recommendation,)
    with store.read("advice") as connection:
        entries = journal(connection, recommendation.recommendation_id)
    if as_json:
        more = {"provable": [prospect.values() for prospect in provable]} if next_step == "apply" else {}
        values = [{**values_of(row), **more, "journal": [entry.values() for entry in entries]} for row in rows]
        echo(json.dumps(values, indent=2))
        return
    lines = [acted(row) for row in rows] if moves else []
    lines += applying(rows[0]) if next_step == "apply" else []
    lines += [*undoing(undone, entries), *journal_lines(entries)] if undone is not None else []
    echo("\n".join(lines))


def _end(until: str | None, duration: str | None, default_s: int, now_ts: int) -> int:
    """Return the end of a snooze or dismissal, epoch seconds. Raises BadInput."""
    if until is not None and duration is not None:
        raise BadInput("--until and --for both set the end: give only one of them")
    if until is None:
        return now_ts + (default_s if duration is None else int(seconds_of("--for", duration)))
    try:
        return parse_time(until, now_ts)
    except ValueError as error:
        raise BadInput(f"--until: {error}") from None
