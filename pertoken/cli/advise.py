"""`pertoken advise`: run the rules, print and keep what they say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pertoken.cli.options import db_option, json_option, parent_option, settings_of

if TYPE_CHECKING:
    from pertoken.advisor.recommendation import Recommendation
    from pertoken.config import Settings
    from pertoken.costs.report.lines import FleetReport
    from pertoken.store.connect.location import StoreLocation


@click.command(short_help="Run the rules and say what would save money, and why not.")
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
@json_option
@parent_option
def advise(
    config_file: str | None,
    db: str | None,
    advisor_since: str | None,
    advisor_every: str | None,
    rule_files: tuple[Path, ...],
    as_json: bool,
    with_parent: bool,
) -> None:
    """Run every rule over recorded telemetry: what would save money, what was refused and why.

    Bankable dollars fall off the bill while demand stays as it is; capacity dollars let the same bill serve more. They
    are never added together. What is found is kept for the screens.
    """
    from pertoken.store.connect.location import locate

    settings = settings_of(config_file, db=db, advisor_since=advisor_since, advisor_every=advisor_every)
    where = locate(settings.db, settings.advice)
    if advisor_every is None:
        report, found = _run(where, settings, rule_files)
        click.echo(_json(report, found, settings) if as_json else _text(report, found))
        return
    _repeat(where, settings, rule_files, with_parent)


def _run(
    where: StoreLocation, settings: Settings, rule_files: tuple[Path, ...]
) -> tuple[FleetReport, tuple[Recommendation, ...]]:
    import getpass
    import sys
    import time

    from pertoken.advisor.advise import advise as run
    from pertoken.advisor.book import keep
    from pertoken.advisor.rules import load_rules
    from pertoken.catalog.market import load_market
    from pertoken.costs.report.fleet_report import fleet_report
    from pertoken.migrations import upgrade
    from pertoken.store.connect.open import open_store
    from pertoken.store.repository import AdviceRepository

    store = open_store(where)
    if store.advice is None:
        upgrade(where, "advice")
        store = open_store(where)
    now_ts, window_s = int(time.time()), int(settings.advisor_since)
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
            store, loaded, market, settings, window_s, now_ts, progress=lambda step: bar.update(1, current_item=step)
        )
    keep(AdviceRepository(where), advice, who=f"advisor run by {getpass.getuser()}")
    return fleet_report(store, window_s, now_ts), advice.recommendations


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
            _, found = _run(where, settings, rule_files)
        except PertokenError as error:
            click.echo(f"pertoken advise: {error}", err=True)
        else:
            counts: dict[str, int] = {}
            for each in found:
                counts[each.state.value] = counts.get(each.state.value, 0) + 1
            click.echo(f"advised: {', '.join(f'{n} {state.lower()}' for state, n in sorted(counts.items()))}", err=True)
        stop.wait(settings.advisor_every)


def _text(report: FleetReport, found: tuple[Recommendation, ...]) -> str:
    from pertoken.tui.text.summary import summary

    return summary(report, found)


def _json(report: FleetReport, found: tuple[Recommendation, ...], settings: Settings) -> str:
    import json
    from dataclasses import asdict

    advice = [asdict(each) for each in found]
    return json.dumps(
        {"fleet": asdict(report.whole()), "since_s": settings.advisor_since, "recommendations": advice}, indent=2
    )
