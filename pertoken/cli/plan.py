"""`pertoken plan`: one plan of all advice, printed as text or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pertoken.cli.options import (
    AsOf,
    Database,
    Progress,
    at_option,
    db_option,
    echo,
    echo_json,
    json_option,
    report_faults,
    warn_of_other_settings,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pertoken.advisor.plan.plan import Plan, PlanLimits
    from pertoken.advisor.planning import Planned
    from pertoken.proof.recommendation import Recommendation
    from pertoken.store.connect.open import Store


@click.command(short_help="Compose all advice into one plan, step by step.")
@db_option
@click.option("--since", "advisor_since", metavar="TIME", help="Telemetry to look at, e.g. 24h [default: 7d].")
@click.option(
    "--slo",
    "slos",
    metavar="TEXT",
    multiple=True,
    help="SLO of a service, instead of that in the settings: 'chat:ttft_p95<800ms,tpot_p95<50ms' (repeatable).",
)
@click.option("--exclude", metavar="RULE", multiple=True, help="Leave out the steps of this rule (repeatable).")
@click.option(
    "--max-effort",
    type=click.Choice(["minutes", "hours", "days"]),
    default="days",
    show_default=True,
    help="The most work that one step may take.",
)
@click.option(
    "--max-power-w",
    type=click.FloatRange(min=0, min_open=True),
    metavar="WATTS",
    help="Limit of the summed power limits of all devices in use [default: budget.power_w].",
)
@click.option("--traffic", metavar="X", default="1", help="Plan for X times the load of every service, e.g. 1.5.")
@click.option(
    "--price",
    "prices",
    metavar="DEVICE=USD",
    multiple=True,
    help="A price per device-hour instead of the one that is set, e.g. H100=2.10 (repeatable).",
)
@click.option("--tariff", metavar="USD", help="Plan with this price of electricity, dollars per kWh, e.g. 0.12.")
@at_option
@json_option
def plan(
    database: Database,
    advisor_since: str | None,
    slos: tuple[str, ...],
    exclude: tuple[str, ...],
    max_effort: str,
    max_power_w: float | None,
    traffic: str,
    prices: tuple[str, ...],
    tariff: str | None,
    moment: AsOf,
    as_json: bool,
) -> None:
    """Compose all advice into one plan: which changes, in which order, and what they save together.

    Each step is priced on the state after the previous steps, so that nothing is counted twice: bankable and capacity
    dollars together never exceed the spend. Changes that are left out are listed with the reason. No step exceeds the
    power budget (--max-power-w), which counts the power limit of each device allocated to an engine.

    Stored advice is used if it is newer than all telemetry and of the same settings; otherwise the rules run, and
    nothing is stored. With --slo, --traffic, --price, --tariff or --at they always run. The same database and the same
    --at give the same plan.
    """
    from pertoken.advisor.plan.plan import PlanLimits
    from pertoken.advisor.plan.what_if import WhatIf, price_of, slo_of, tariff_of, traffic_of
    from pertoken.advisor.planning import Planned
    from pertoken.costs.prices.stored import market_of
    from pertoken.text.export import plan_values
    from pertoken.text.plan import plan_text

    usd_per_kwh = None if tariff is None else tariff_of(tariff)
    what_if = WhatIf(traffic_of(traffic), dict(map(slo_of, slos)), tuple(map(price_of, prices)), usd_per_kwh)
    settings, store = database.opened(moment, advisor_since=advisor_since)
    window_s = int(settings.advisor_since)
    report_faults(moment, store, window_s)
    market = market_of(store, settings.market_provider, settings.market_region)
    request = Planned(store, market, settings, window_s, moment.ts, moment.dated, what_if)
    other_settings = None if moment.dated or what_if else warn_of_other_settings(store.location, settings)
    composed = _planned(request, PlanLimits(exclude, max_effort, max_power_w), other_settings is None)
    if as_json:
        echo_json(plan_values(composed, window_s))
    else:
        echo(plan_text(composed, window_s), nl=False)


def _planned(request: Planned, limits: PlanLimits, same_settings: bool) -> Plan:
    """Return the plan of the stored advice if that is newer than all telemetry, else of a run of the rules.

    Advice of other settings than the plan's is not used.
    """
    from pertoken.advisor.planning import plan_of_advice, plan_of_rules
    from pertoken.advisor.rules.discovery import faults_of, find_rules, sources_of

    with Progress("Planning") as progress:

        def show(phase: str, share: float) -> None:
            progress.phase(phase)

        rows = (
            () if request.dated or request.what_if or not same_settings else _standing(request.store, request.window_s)
        )
        if rows:
            return plan_of_advice(request, rows, limits, show)
        progress.clear()
        plugins = find_rules(request.settings)
        for fault in faults_of(plugins):
            echo(f"pertoken plan: {fault}", err=True)
        return plan_of_rules(request, sources_of(plugins, request.settings), limits, show)


def _standing(store: Store, window_s: int) -> Sequence[Recommendation]:
    """Return the standing advice if it covers this window and is newer than all telemetry, else nothing."""
    from pertoken.proof.recommendation import State
    from pertoken.proof.stored import standing
    from pertoken.store.query.read import first_and_last

    rows = standing(store)
    with store.read() as connection:
        _, last_ts = first_and_last(connection)
    newest = max((row.updated_ts for row in rows), default=0)
    complete = all(variant.proposal for row in rows if row.state is State.OPEN for variant in row.variants)
    same_window = any(row.window_s == window_s for row in rows)
    return rows if last_ts is not None and newest >= last_ts and complete and same_window else ()
