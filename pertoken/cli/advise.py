"""`pertoken advise`: run the rules, then print and store their proposals."""

from __future__ import annotations

import contextlib
import getpass
import time
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from pertoken.cli.options import (
    AsOf,
    Database,
    as_of,
    at_option,
    check_recorded,
    db_option,
    echo,
    echo_json,
    fail_on_option,
    json_option,
    judged,
    leave,
    parent_option,
    progress_bar,
    text_width,
)
from pertoken.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pertoken.advisor.run import Advice
    from pertoken.config import Settings
    from pertoken.costs.report.lines import FleetReport
    from pertoken.proof.recommendation import Recommendation
    from pertoken.proof.verdicts import Verdict
    from pertoken.reports.gates import Gate
    from pertoken.schedule.jobs import Job
    from pertoken.settings.alerts import FigureLimit
    from pertoken.store.connect.location import StoreLocation


MAX_WITHOUT_PROPOSAL = 4
"""Maximum results without a proposal of one rule in JSON, unless --all is given."""
READING_PHASES = 10
"""Phases of a progress bar before the first rule."""
USUAL_EXTRA_WINDOWS = 2
"""Usual number of windows that rules read besides the window of the run; each is one phase of a progress bar."""


@click.group(invoke_without_command=True, short_help="Run the rules: what would save money, and what was refused.")
@db_option
@click.option("--since", "advisor_since", metavar="TIME", help="Telemetry to look at, e.g. 24h [default: 7d].")
@click.option("--every", "advisor_every", metavar="TIME", help="Run now and again at this period, e.g. 1h.")
@click.option(
    "--rule",
    "rule_files",
    metavar="PATH",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A file with a rule of your own, run in addition to the installed ones (repeatable).",
)
@click.option(
    "--adopt-config",
    is_flag=True,
    help="Replace stored advice that belongs to another configuration; it belongs to this run's from then on.",
)
@click.option("--all", "list_all", is_flag=True, help="List every row: folded ones, other variants, and refusals.")
@fail_on_option
@at_option
@json_option
@parent_option
@click.pass_context
def advise(
    context: click.Context,
    database: Database,
    advisor_since: str | None,
    advisor_every: str | None,
    rule_files: tuple[Path, ...],
    adopt_config: bool,
    list_all: bool,
    fail_on: tuple[FigureLimit, ...],
    moment: AsOf,
    as_json: bool,
    with_parent: bool,
) -> None:
    """Run every rule over recorded telemetry: what would save money, what was refused and why.

    What is wrong now comes first, then the savings by their low end, of which one that a forecast stands behind counts
    half. A row with a loss as its low end is marked "may rise" and comes after those. Rows without a figure are folded
    into one line a rule; --all lists them, every other variant, and every refusal with its reason.

    JSON has every proposal, and of each rule the first 4 targets without one; `repeated` counts the others, which
    --all has too.

    Bankable dollars fall off the bill while demand stays as it is; capacity dollars let the same bill serve more. They
    are never added together. Recommendations are stored for the screens.

    Stored advice belongs to the settings file of the run that stored it, with the environment variables that change
    advice. A run with another file and other settings is refused unless --adopt-config is given. An edit of the same
    file is followed.

    With --at, everything is computed as of that time, at the prices in force then, and only printed: stored advice is
    neither read nor changed. The same database always gives the same output; the JSON then has no `run`, the duration
    of the run.

    Exit 2 if a rule file given by --rule is broken; the other rules still run. Each --fail-on is a gate over the
    same telemetry: exit 1 if one is true, 3 if one cannot be measured. JSON then has `gates`.
    """
    if context.invoked_subcommand:
        return
    from pertoken.advisor.configuration import check, configuration_of

    settings, where = database.located(advisor_since=advisor_since, advisor_every=advisor_every)
    if moment.dated and advisor_every is not None:
        raise BadInput("--at is one instant and --every repeats the run: give only one of them")
    if fail_on and advisor_every is not None:
        raise BadInput("--fail-on judges one run and --every repeats it: give only one of them")
    if adopt_config and moment.dated:
        raise BadInput("--at stores nothing, so that there is nothing to adopt: leave out one of them")
    if not moment.dated and not adopt_config:
        check(where, configuration_of(settings))
    if advisor_every is None:
        report, advice, verdicts, gates, broken = _run(where, settings, rule_files, moment, fail_on, adopt=adopt_config)
        if as_json:
            rows = tuple(advice.recommendations) if list_all else unrepeated(advice.recommendations)
            echo_json(_json_values(report, advice, rows, verdicts, gates if fail_on else None, dated=moment.dated))
        else:
            from pertoken.text.summary import advice_summary

            text = advice_summary(
                report,
                advice.recommendations,
                text_width(),
                verdicts,
                everything=list_all,
                hour_rate=settings.advisor_hour_rate,
            )
            echo("\n\n".join([*_outdated_prices(where, settings.market_provider, moment.ts), text]))
        if broken:
            raise BadInput("; ".join(broken))
        leave(gates)
        return
    serve_advice(where, settings, rule_files, adopt=adopt_config, with_parent=with_parent, at_once=not with_parent)


@advise.command(short_help="Show one recommendation in full.")
@click.argument("advice_id", metavar="ID")
@db_option
@json_option
def show(database: Database, advice_id: str, as_json: bool) -> None:
    """Show one recommendation in full: why, how much, how to apply and undo it, what speaks against it, and which
    saving its history could prove.

    ID is as `pertoken advise` prints it; its first digits are enough if no other ID begins with them.
    """
    from pertoken.proof.detection import journal
    from pertoken.proof.judging.receipts import read_receipts
    from pertoken.proof.judging.verifier import prospects
    from pertoken.proof.recommendation import beside_accepted
    from pertoken.proof.stored import find, standing
    from pertoken.text.lifecycle import journal_lines, prospect_lines, receipt_lines
    from pertoken.text.summary import sheet_text

    _, store = database.opened()
    where = store.location
    stored = standing(store)
    match = find(stored, advice_id, where)
    with store.read("advice") as connection:
        entries = journal(connection, match.recommendation_id)
        receipts = read_receipts(connection, match.recommendation_id)
    provable = prospects(store, match, int(time.time()))
    if as_json:
        values = {
            **values_of(match, match in beside_accepted(stored)),
            "journal": [entry.values() for entry in entries],
            "receipts": [receipt.values() for receipt in receipts],
            "provable": [prospect.values() for prospect in provable],
        }
        echo_json(values)
        return
    lines = [*journal_lines(entries)[1:], *prospect_lines(provable), *receipt_lines(receipts)]
    echo(sheet_text(match, time.time(), stored) + "\n".join(lines))


@advise.command(short_help="Write one recommendation as a file for a pull request.")
@click.argument("advice_id", metavar="ID")
@click.option(
    "--as",
    "form",
    type=click.Choice(["kustomize", "helm", "keda", "hpa", "issue"]),
    help="kustomize: patches; helm: values of the vLLM Production Stack; keda, hpa: an autoscaler; issue: Markdown.",
)
@db_option
def export(database: Database, advice_id: str, form: str | None) -> None:
    """Print one recommendation as a file for a pull request or an issue, with what each number of replicas costs.

    Nothing is applied. Names that pertoken cannot read are written in capitals and explained at the head of the file.
    """
    from pertoken.costs.fleet import service_name
    from pertoken.costs.report.fleet_report import fleet_report
    from pertoken.proof.stored import find, standing
    from pertoken.text.export import FileFormat, ServiceCost, file_of

    if form is None:
        raise click.UsageError("--as is missing: choose kustomize, helm, keda, hpa or issue")
    now_ts = int(time.time())
    settings, store = database.opened()
    row = find(standing(store), advice_id, store.location)
    lines = fleet_report(store, int(settings.advisor_since), now_ts).deployments
    services = {service_name(line.model, settings) for line in lines if str(line.deployment_id) == row.target_key}
    service = row.target_key if row.target_kind == "service" else next(iter(services), None)
    members = [line for line in lines if not line.ended and service_name(line.model, settings) == service]
    rates = [line.nano_usd_per_hour for line in members if line.nano_usd_per_hour is not None]
    models = tuple(sorted({line.model for line in members}))
    cost = ServiceCost(models, len(members), sum(rates) if len(rates) == len(members) else None)
    echo(file_of(row, FileFormat(form), cost, now_ts), nl=False)


def serve_advice(
    where: StoreLocation,
    settings: Settings,
    rule_files: tuple[Path, ...] = (),
    *,
    adopt: bool = False,
    with_parent: bool = False,
    at_once: bool = False,
) -> None:
    """Run the rules periodically, and alerts and exports, until stopped. `at_once`: do not wait for telemetry."""
    from pertoken.advisor.configuration import check, configuration_of
    from pertoken.advisor.service import may_start, reason_to_wait, serve

    if not adopt:
        check(where, configuration_of(settings))
    if where.folder is not None and (reason := reason_to_wait(where)) is not None and not with_parent:
        echo(f"pertoken advisor: waits until there is telemetry: {reason}", err=True)
    run = partial(_run_and_report, where, settings, rule_files, adopt=adopt)
    ready = (lambda: True) if at_once else partial(may_start, where, settings.advisor_every)
    with exports(where, settings) as pushes, team_pages(where, settings):
        background_jobs = [*pushes, *alert_jobs(where, settings), *lake_jobs(where, settings)]
        serve(where, run, settings.advisor_every, ready=ready, with_parent=with_parent, beside=background_jobs)


def run_quietly(where: StoreLocation, settings: Settings) -> None:
    """Run every rule once and store the advice, with a progress bar and nothing printed."""
    _run(where, settings, (), as_of())


class AdviseRun(NamedTuple):
    """Results of an advice run, and the costs read after it in one snapshot."""

    report: FleetReport
    advice: Advice
    verdicts: tuple[Verdict, ...]
    gates: tuple[Gate, ...]
    broken: list[str]
    """A sentence for each broken rule file."""


def _run(
    where: StoreLocation,
    settings: Settings,
    rule_files: tuple[Path, ...],
    moment: AsOf,
    fail_on: tuple[FigureLimit, ...] = (),
    *,
    adopt: bool = False,
) -> AdviseRun:
    """Run every rule; store the advice unless the moment is past. Raises BadInput for another configuration."""
    from pertoken.advisor.rules.discovery import faults_of, find_rules, sources_of, unknown_options
    from pertoken.advisor.run import advise as run
    from pertoken.advisor.run import keep_advice
    from pertoken.costs.fleet import objectives
    from pertoken.costs.prices.stored import market_of
    from pertoken.costs.report.fleet_report import fleet_report
    from pertoken.proof.troubles import with_troubles
    from pertoken.proof.verdicts import standing_verdicts
    from pertoken.store.connect.open import open_store
    from pertoken.store.repository import AdviceRepository

    store = open_store(where)
    check_recorded(moment, store)
    if store.advice is None and not moment.dated:
        from pertoken.migrations import upgrade  # imports Alembic, which takes as long as reading a small fleet

        upgrade(where, "advice")
        store = open_store(where)
    window_s = int(settings.advisor_since)
    plugins = find_rules(settings, rule_files)
    for fault in faults_of(plugins):
        echo(f"pertoken advise: {fault}", err=True)
    sources = sources_of(plugins, settings)
    with store.hold("advice") as held_store:
        market = market_of(held_store, settings.market_provider, settings.market_region)
    # Each source loads and runs; pricing is last.
    with _progress(READING_PHASES + USUAL_EXTRA_WINDOWS + 2 * len(sources) + 1) as progress:
        advice = run(store, sources, market, settings, window_s, moment.ts, progress, dated=moment.dated)
    rule_names = (*(rule.name for rule in plugins), *(rule.name for rule in advice.run.rules))
    for warning in unknown_options(rule_names, settings):
        echo(f"pertoken advise: {warning}", err=True)
    if not moment.dated:
        who = f"advisor run by {getpass.getuser()}"
        advice, changed = keep_advice(store, AdviceRepository(where), advice, market, settings, who, adopt=adopt)
        if changed:
            echo(f"pertoken advise: {changed}", err=True)
    slo_of = partial(objectives, settings=settings)
    headline_slo_of = slo_of if settings.headline == "good" else None
    with store.hold("telemetry", "advice") as held_store:
        report = fleet_report(held_store, window_s, moment.ts, dated=moment.dated, slo_of=headline_slo_of)
        report = with_troubles(report, held_store, slo_of, moment.ts if moment.dated else None)
        verdicts = () if moment.dated else standing_verdicts(held_store)
        gates = judged(fail_on, held_store, settings, window_s, moment)
    return AdviseRun(report, advice, verdicts, gates, _broken_file_lines(rule_files, advice))


@contextlib.contextmanager
def _progress(phases: int) -> Iterator[Callable[[str, float], None]]:
    """Show a bar on a terminal, with an equal part for each phase (reading, each plugin, each rule, pricing)."""
    index_by_phase: dict[str, int] = {}
    with progress_bar("Advising", 1000) as draw:

        def progress(phase: str, share: float) -> None:
            name = phase.partition(":")[0]  # without its running time
            phase_index = index_by_phase.setdefault(name, len(index_by_phase))
            # A rule with a window of its own adds phases.
            draw(f"{phase}, {share:.1%}", int(1000 * (phase_index + share) / max(phases, len(index_by_phase))))

        yield progress


def _broken_file_lines(rule_files: tuple[Path, ...], advice: Advice) -> list[str]:
    """Return a line for each rule file that did not load or has a failed rule: the error and the next step."""
    files = set(map(str, rule_files))
    return [
        f"--rule {rule.origin}: {rule.failed.splitlines()[-1]}; correct the rule"
        for rule in advice.run.rules
        if rule.failed and rule.origin in files
    ]


def _run_and_report(where: StoreLocation, settings: Settings, rule_files: tuple[Path, ...], *, adopt: bool) -> None:
    """Run every rule, store the advice, and print the number of recommendations by state to standard error."""
    from collections import Counter

    advise_run = _run(where, settings, rule_files, as_of(), adopt=adopt)
    for line in advise_run.broken:
        echo(f"pertoken advise: {line}", err=True)
    counts = Counter(recommendation.state.label for recommendation in advise_run.advice.recommendations)
    echo(f"advised: {', '.join(f'{n} {state}' for state, n in sorted(counts.items()))}", err=True)


def _outdated_prices(where: StoreLocation, provider: str | None, now_ts: int) -> list[str]:
    """Return a line if no list price in use is recent."""
    from pertoken.catalog.offers import outdated
    from pertoken.costs.prices.stored import offers_used_at

    warning = outdated(offers_used_at(where, provider, now_ts), datetime.fromtimestamp(now_ts, UTC).date())
    return [] if warning is None else [f"Prices: {warning}"]


def values_of(recommendation: Recommendation, before_accepted: bool = False) -> dict[str, object]:
    """Return a recommendation as JSON values; `before_accepted`: it was priced before another change was accepted."""
    from pertoken.proof.recommendation import full_id

    return {
        "id": full_id(recommendation),
        **asdict(recommendation),
        "may_rise": recommendation.may_rise,
        "priced_before_accepted": before_accepted,
    }


def all_values(rows: Sequence[Recommendation]) -> list[dict[str, object]]:
    """Return all advice of a database as JSON values."""
    from pertoken.proof.recommendation import beside_accepted

    before_accepted = {row.recommendation_id for row in beside_accepted(rows)}
    return [values_of(row, row.recommendation_id in before_accepted) for row in rows]


def unrepeated(recommendations: Sequence[Recommendation]) -> tuple[Recommendation, ...]:
    """Return all proposals, and the first `MAX_WITHOUT_PROPOSAL` other rows of each rule.

    A host may have 64 deployments, and each rule reports missing series for each of them.
    """
    from collections import Counter

    from pertoken.proof.recommendation import State

    without_proposal: Counter[str] = Counter()
    rows = []
    for recommendation in recommendations:
        lacks_proposal = recommendation.state in (State.REFUSED, State.BLOCKED)
        without_proposal[recommendation.rule_id] += lacks_proposal
        if not lacks_proposal or without_proposal[recommendation.rule_id] <= MAX_WITHOUT_PROPOSAL:
            rows.append(recommendation)
    return tuple(rows)


def _json_values(
    report: FleetReport,
    advice: Advice,
    rows: Sequence[Recommendation],
    verdicts: Sequence[Verdict],
    gates: Sequence[Gate] | None,
    *,
    dated: bool,
) -> dict[str, object]:
    values: dict[str, object] = {
        "fleet": asdict(report.whole()),
        "since_s": advice.window_s,
        "recommendations": all_values(rows),
        "repeated": len(advice.recommendations) - len(rows),
    }
    if gates is not None:
        values["gates"] = [gate.values() for gate in gates]
    if not dated:  # a past moment has no stored verdicts, and the duration of a run differs each time
        values["verdicts"] = [asdict(verdict) for verdict in verdicts]
        values["run"] = asdict(advice.run)
    return values


@contextlib.contextmanager
def exports(where: StoreLocation, settings: Settings) -> Iterator[list[Job]]:
    """Expose dollars as Prometheus metrics, and yield the job that pushes them by OTLP, where addresses are set.

    Raises BadInput, OSError.
    """
    if settings.advisor_metrics_listen is None and settings.advisor_otlp_endpoint is None:
        yield []
        return
    from pertoken.reports.exporters import Dollars, known_dollars

    dollars = Dollars(where, settings)
    with contextlib.ExitStack() as stack:
        if settings.advisor_metrics_listen is not None:
            from pertoken.exposition import MetricsServer

            server = MetricsServer(
                settings.advisor_metrics_listen,
                dollars.page,
                token_file=settings.advisor_metrics_token_file,
                cert_file=settings.advisor_metrics_cert_file,
                key_file=settings.advisor_metrics_key_file,
            )
            server.start()
            stack.callback(server.stop)
        pushes: list[Job] = []
        if settings.advisor_otlp_endpoint is not None:
            from pertoken.exposition import PUSH_EVERY_S, Pusher
            from pertoken.schedule.jobs import Job

            pusher = Pusher(settings.advisor_otlp_endpoint, known_dollars(), dollars.families)
            pushes.append(Job("metrics push", pusher.push, PUSH_EVERY_S, beside=True))
            stack.callback(pusher.end)
        yield pushes


@contextlib.contextmanager
def team_pages(where: StoreLocation, settings: Settings) -> Iterator[None]:
    """Serve the team's pages where an address is set. Raises BadInput, OSError."""
    if settings.advisor_pages_listen is None:
        yield
        return
    from pertoken.reports.team.pages import TeamPages
    from pertoken.reports.team.server import Login, TeamServer

    server = TeamServer(
        settings.advisor_pages_listen,
        TeamPages(where, settings).html,
        Login(settings),
        cert_file=settings.advisor_pages_cert_file,
        key_file=settings.advisor_pages_key_file,
    )
    server.start()
    try:
        yield
    finally:
        server.stop()


def alert_jobs(where: StoreLocation, settings: Settings) -> list[Job]:
    """Return the job that evaluates alerts. Raises BadInput for an invalid alert."""
    from pertoken.migrations import upgrade
    from pertoken.reports.alerts import EVERY_S, JOB, AlertWatch
    from pertoken.schedule.jobs import Job

    watch = AlertWatch(where, settings)
    upgrade(where, "advice")
    return [Job(JOB, lambda: watch.round(int(time.time())), EVERY_S, beside=True)]


def lake_jobs(where: StoreLocation, settings: Settings) -> list[Job]:
    """Return the job that publishes closed hours into a lake, where one is set. Raises BadInput, StoreError."""
    if settings.advisor_lake_url is None:
        return []

    from pertoken.catalog.market import load_market
    from pertoken.lake.manifest import LakeFiles, cell_name, cell_of
    from pertoken.lake.publish import LakeSource, publish
    from pertoken.schedule.jobs import Job
    from pertoken.store.connect.open import open_store

    lake, cell = LakeFiles(settings.advisor_lake_url), cell_name(settings.advisor_lake_cell or cell_of(where))

    def publish_closed_hours() -> None:
        source = LakeSource(open_store(where), load_market(), settings, cell)
        for _ in publish(source, lake, int(time.time()), lambda: time.time_ns() // 1000):
            pass

    return [Job("lake", publish_closed_hours, settings.advisor_lake_every, beside=True)]
