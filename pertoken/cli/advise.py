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
    from collections.abc import Callable, Iterator

    from pertoken.advisor.advise import Advice
    from pertoken.advisor.recommendation import Recommendation
    from pertoken.config import Settings
    from pertoken.costs.report.lines import FleetReport
    from pertoken.store.connect.location import StoreLocation

FIRST_TELEMETRY_S = 300.0
"""Telemetry that `up` waits for before its first run, where `advisor.every` is not shorter."""


READING_PHASES = 10
"""Phases before the first rule, on a progress bar."""
WINDOWS = 2
"""Windows of their own that the rules of a run usually look at; each is one more phase."""


@click.group(invoke_without_command=True, short_help="Run the rules and say what would save money, and why not.")
@db_option
@click.option("--since", "advisor_since", metavar="TIME", help="Telemetry to look at, e.g. 24h [default: 7d].")
@click.option("--every", "advisor_every", metavar="TIME", help="Run now and again at this period, e.g. 1h.")
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
    is neither read nor changed. The same database gives the same output at any time; its JSON is without `run`, which
    holds how long the run took.

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
        report, advice, broken = _run(where, settings, rule_files, moment)
        echo(_json(report, advice, dated=moment.dated) if as_json else _text(report, advice.recommendations))
        if broken:
            raise BadInput("; ".join(broken))
        return
    from functools import partial

    from pertoken.advisor.service import serve

    run = partial(_run_and_report, where, settings, rule_files)
    ready = partial(_recorded, where, min(FIRST_TELEMETRY_S, settings.advisor_every)) if with_parent else lambda: True
    serve(where, run, settings.advisor_every, ready=ready, with_parent=with_parent)


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


def _run(
    where: StoreLocation, settings: Settings, rule_files: tuple[Path, ...], moment: AsOf
) -> tuple[FleetReport, Advice, list[str]]:
    """Run every rule and keep the advice, except of a past moment; also return what is broken of the rule files, a
    sentence each.
    """
    import getpass

    from pertoken.advisor.advise import advise as run
    from pertoken.advisor.book import keep
    from pertoken.advisor.rules.found import Permission, find_rules
    from pertoken.advisor.rules.load import source_of, unknown_options
    from pertoken.costs.prices.stored import market_of
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
    market = market_of(store, settings.market_provider, settings.market_region)
    places = find_rules(settings, rule_files)
    for fault in filter(None, (each.fault for each in places)):
        echo(f"pertoken advise: {fault}", err=True)
    sources = [source_of(each, settings) for each in places if each.fault or each.permission is Permission.ALLOWED]
    with _progress(READING_PHASES + 2 * len(sources) + WINDOWS + 1) as progress:
        advice = run(store, sources, market, settings, window_s, moment.ts, progress, dated=moment.dated)
    names = (*(each.name for each in places), *(each.name for each in advice.run.rules))
    for line in unknown_options(names, settings):
        echo(f"pertoken advise: {line}", err=True)
    if not moment.dated:
        keep(AdviceRepository(where), advice, who=f"advisor run by {getpass.getuser()}")
    return fleet_report(store, window_s, moment.ts, dated=moment.dated), advice, _broken(rule_files, advice)


@contextlib.contextmanager
def _progress(phases: int) -> Iterator[Callable[[str, float], None]]:
    """Show a bar on a terminal: each phase (reading, each plugin, each rule, pricing) has an equal part of it."""
    import sys

    seen: dict[str, int] = {}
    bar: Any
    with click.progressbar(
        length=1000,
        label="Advising",
        file=sys.stderr,
        hidden=not sys.stderr.isatty(),
        item_show_func=lambda phase: str(phase or ""),
        show_eta=False,
    ) as bar:

        def show(phase: str, share: float) -> None:
            before = seen.setdefault(phase.partition(":")[0], len(seen))  # without for how long it runs
            # The window of a rule adds phases, and the bar does not go back for them.
            bar.pos = max(bar.pos, min(bar.length, int(bar.length * (before + share) / max(phases, len(seen)))))
            bar.current_item = f"{phase}, {share:.1%}"
            bar.render_progress()

        yield show


def _broken(rule_files: tuple[Path, ...], advice: Advice) -> list[str]:
    """Return which of the rule files did not load or hold a rule that failed, with the error and the next step."""
    files = set(map(str, rule_files))
    return [
        f"--rule {each.origin}: {each.failed.splitlines()[-1]}; mend it"
        for each in advice.run.rules
        if each.failed and each.origin in files
    ]


def _run_and_report(where: StoreLocation, settings: Settings, rule_files: tuple[Path, ...]) -> None:
    """Run every rule, keep the advice, and report on standard error how many pieces stand how."""
    from collections import Counter

    _, advice, broken = _run(where, settings, rule_files, as_of(None))
    for line in broken:
        echo(f"pertoken advise: {line}", err=True)
    counts = Counter(each.state.value.lower() for each in advice.recommendations)
    echo(f"advised: {', '.join(f'{n} {state}' for state, n in sorted(counts.items()))}", err=True)


def _recorded(where: StoreLocation, enough_s: float) -> bool:
    """Return whether this much time is recorded: rules run on less find nothing, and would not run again for long."""
    from pertoken.errors import StoreError
    from pertoken.store.connect.open import open_store
    from pertoken.store.query.read import first_and_last

    with contextlib.suppress(StoreError), open_store(where).read() as connection:
        first_ts, last_ts = first_and_last(connection)
        return first_ts is not None and last_ts is not None and last_ts - first_ts >= enough_s
    return False


def _text(report: FleetReport, found: tuple[Recommendation, ...]) -> str:
    from pertoken.tui.text.summary import summary

    return summary(report, found, text_width())


def _values(each: Recommendation) -> dict[str, Any]:
    from dataclasses import asdict

    from pertoken.advisor.recommendation import full_id

    return {"id": full_id(each), **asdict(each)}


def _json(report: FleetReport, advice: Advice, *, dated: bool) -> str:
    import json
    from dataclasses import asdict

    values = {
        "fleet": asdict(report.whole()),
        "since_s": advice.window_s,
        "recommendations": [_values(each) for each in advice.recommendations],
    }
    if not dated:  # how long a run took is not the same twice
        values["run"] = asdict(advice.run)
    return json.dumps(values, indent=2)
