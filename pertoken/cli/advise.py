"""`pertoken advise`: run the rules, print and keep what they say."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pertoken.cli.options import (
    AsOf,
    as_of,
    at_option,
    check_recorded,
    db_option,
    echo,
    json_option,
    parent_option,
    settings_of,
    text_width,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pertoken.advisor.advise import Advice
    from pertoken.advisor.recommendation import Recommendation
    from pertoken.advisor.rules import Loaded
    from pertoken.config import Settings
    from pertoken.costs.report.lines import FleetReport
    from pertoken.store.connect.location import StoreLocation


@click.group(invoke_without_command=True, short_help="Run the rules and say what would save money, and why not.")
@db_option
@click.option("--since", "advisor_since", metavar="TIME", help="Telemetry to look at, e.g. 24h [default: 24h].")
@click.option("--every", "advisor_every", metavar="TIME", help="Run again and again with this pause, e.g. 1h.")
@click.option(
    "--rule",
    "rule_files",
    metavar="PATH",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A file with a rule of your own, run besides the installed ones (repeatable).",
)
@at_option
@json_option
@parent_option
@click.pass_context
def advise(
    context: click.Context,
    config_file: str | None,
    db: str | None,
    advisor_since: str | None,
    advisor_every: str | None,
    rule_files: tuple[Path, ...],
    at: str | None,
    as_json: bool,
    with_parent: bool,
) -> None:
    """Run every rule over recorded telemetry: what would save money, what was refused and why.

    Bankable dollars fall off the bill while demand stays as it is; capacity dollars let the same bill serve more. They
    are never added together. What is found is kept for the screens.

    With --at everything is computed as of then, at the prices in force then, and only printed: the advice that stands
    is neither read nor changed. The same database gives the same output at any time.

    Exit 2 if a rule file given by --rule is broken; the other rules run all the same.
    """
    if context.invoked_subcommand:
        return
    from pertoken.errors import BadInput
    from pertoken.store.connect.location import locate

    settings = settings_of(config_file, db=db, advisor_since=advisor_since, advisor_every=advisor_every)
    where = locate(settings.db, settings.advice)
    if at is not None and advisor_every is not None:
        raise BadInput("--at is one instant, and --every runs again and again: give one of them")
    if advisor_every is None:
        moment = as_of(at)
        with _stdout_to_stderr():
            report, found, broken = _run(where, settings, rule_files, moment)
        echo(_json(report, found, settings) if as_json else _text(report, found))
        if broken:
            raise BadInput("; ".join(broken))
        return
    _repeat(where, settings, rule_files, with_parent)


@advise.command(short_help="Show all of one piece of advice.")
@click.argument("advice_id", metavar="ID")
@db_option
@json_option
def show(config_file: str | None, db: str | None, advice_id: str, as_json: bool) -> None:
    """Show all that is known of one piece of advice: why, how much, how to do and undo it, what speaks against it.

    ID is the one `pertoken advise` prints, or as many of its first digits as name one alone.
    """
    import json
    import time

    from pertoken.advisor.book import standing
    from pertoken.advisor.recommendation import full_id
    from pertoken.errors import BadInput
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import open_store
    from pertoken.tui.text.summary import sheet_text

    settings = settings_of(config_file, db=db)
    where = locate(settings.db, settings.advice)
    wanted = advice_id.lower()
    matches = [each for each in standing(open_store(where)) if wanted and full_id(each).startswith(wanted)]
    if not matches:
        raise BadInput(f"{where}: holds no advice {advice_id!r}; `pertoken advise` lists what there is")
    if len(matches) > 1:
        ids = ", ".join(map(full_id, matches))
        raise BadInput(f"{advice_id!r} names {len(matches)} pieces of advice: {ids}; give more digits")
    (match,) = matches
    echo(json.dumps(_values(match), indent=2) if as_json else sheet_text(match, time.time()), nl=as_json)


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Send what rules and their child processes print to standard error: standard output holds the result alone."""
    import os
    import sys

    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _run(
    where: StoreLocation, settings: Settings, rule_files: tuple[Path, ...], moment: AsOf
) -> tuple[FleetReport, tuple[Recommendation, ...], list[str]]:
    """Run every rule and keep the advice, except of a past moment; also return what is broken of the rule files, a
    sentence each.
    """
    import getpass
    import sys

    from pertoken.advisor.advise import advise as run
    from pertoken.advisor.book import keep
    from pertoken.advisor.rules import load_rules
    from pertoken.catalog.market import load_market
    from pertoken.costs.report.fleet_report import fleet_report
    from pertoken.migrations import upgrade
    from pertoken.store.connect.open import open_store
    from pertoken.store.repository import AdviceRepository

    store = open_store(where)
    check_recorded(moment, store)
    if store.advice is None and not moment.dated:
        upgrade(where, "advice")
        store = open_store(where)
    window_s = int(settings.advisor_since)
    market = load_market(settings.market_provider, settings.market_region)
    loaded = load_rules(rule_files)
    total = sum(len(each.rules) for each in loaded) + 1
    bar: Any
    with click.progressbar(
        length=total,
        label="Advising",
        file=sys.stderr,
        hidden=not sys.stderr.isatty(),
        item_show_func=lambda step: str(step or ""),
        show_eta=False,
    ) as bar:
        advice = run(
            store,
            loaded,
            market,
            settings,
            window_s,
            moment.ts,
            progress=lambda step: bar.update(1, current_item=step),
            dated=moment.dated,
        )
    if not moment.dated:
        keep(AdviceRepository(where), advice, who=f"advisor run by {getpass.getuser()}")
    return (
        fleet_report(store, window_s, moment.ts, dated=moment.dated),
        advice.recommendations,
        _broken(loaded, rule_files, advice),
    )


def _broken(loaded: tuple[Loaded, ...], rule_files: tuple[Path, ...], advice: Advice) -> list[str]:
    """Return which of the rule files did not load or hold a rule that failed, with the error and the next step."""
    from pertoken.advisor.recommendation import State

    failed = {each.rule_id: each.reason for each in advice.recommendations if each.state is State.FAILED}
    broken = []
    for each in loaded:
        if each.origin not in map(str, rule_files):
            continue
        ids = [rule.rule_id for rule in each.rules if rule.rule_id in failed]
        reasons = [each.error] if each.error else [failed[rule_id] for rule_id in ids]
        broken += [f"--rule {each.origin}: {(why or 'failed').splitlines()[-1]}; mend it" for why in reasons]
    return broken


def _repeat(where: StoreLocation, settings: Settings, rule_files: tuple[Path, ...], with_parent: bool) -> None:
    """Run until SIGTERM, ctrl+c, or (for `up`) until the parent is gone. A failed run is told and tried again."""
    import signal
    import threading

    from pertoken.errors import PertokenError
    from pertoken.parent import when_parent_ends

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if with_parent:
        when_parent_ends(stop.set)
    while not stop.is_set():
        try:
            _, found, broken = _run(where, settings, rule_files, as_of(None))
        except PertokenError as error:
            echo(f"pertoken advise: {error}", err=True)
        else:
            for line in broken:
                echo(f"pertoken advise: {line}", err=True)
            counts: dict[str, int] = {}
            for each in found:
                counts[each.state.value] = counts.get(each.state.value, 0) + 1
            echo(f"advised: {', '.join(f'{n} {state.lower()}' for state, n in sorted(counts.items()))}", err=True)
        stop.wait(settings.advisor_every)


def _text(report: FleetReport, found: tuple[Recommendation, ...]) -> str:
    from pertoken.tui.text.summary import summary

    return summary(report, found, text_width())


def _values(each: Recommendation) -> dict[str, Any]:
    from dataclasses import asdict

    from pertoken.advisor.recommendation import full_id

    return {"id": full_id(each), **asdict(each)}


def _json(report: FleetReport, found: tuple[Recommendation, ...], settings: Settings) -> str:
    import json
    from dataclasses import asdict

    advice = [_values(each) for each in found]
    return json.dumps(
        {"fleet": asdict(report.whole()), "since_s": settings.advisor_since, "recommendations": advice}, indent=2
    )
