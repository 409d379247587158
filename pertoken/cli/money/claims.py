"""`pertoken claims`: figures that the field repeats, checked with the catalog and the forecast."""

from __future__ import annotations

import click

from pertoken.cli.options import AsOf, Database, at_option, check_recorded, db_option, echo, echo_json, json_option
from pertoken.errors import BadInput


@click.command(short_help="Check claims of the field about the cost of serving.")
@click.argument("word", required=False)
@db_option
@at_option
@json_option
def claims(word: str | None, database: Database, moment: AsOf, as_json: bool) -> None:
    """Check figures that articles repeat about the cost of serving, with verdict, our own figure and the reason.

    WORD selects claims by id, topic, text or rule: batch, H200, quantize-weights; those by rule come last. Figures are
    of reference deployments and list prices. With a database, each service has its own figure of a claim that is
    forecast, and the stored recommendations that would realise it.
    """
    from pertoken.advisor.planning import Planned, ground_of_advice
    from pertoken.catalog.claims import claims
    from pertoken.catalog.market import load_market
    from pertoken.claims import OnService, checked, claims_text, claims_values, on_fleet
    from pertoken.costs.prices.stored import market_of
    from pertoken.proof.stored import standing
    from pertoken.store.connect.open import open_store

    selected = [claim for claim in claims() if word is None or claim.mentions(word)]
    selected.sort(key=lambda claim: word is not None and not claim.about(word))
    if not selected:
        topics = ", ".join(dict.fromkeys(claim.topic for claim in claims()))
        raise BadInput(f"{word!r}: no claim has this word; topics are {topics}")
    settings, where = database.located()
    services_by_id: dict[str, tuple[OnService, ...]] = {}
    if database.db is not None or moment.dated or where.exists("telemetry"):
        store = open_store(where)
        check_recorded(moment, store)
        own_market = market_of(store, settings.market_provider, settings.market_region)
        window_s = int(settings.advisor_since)
        planned = Planned(store, own_market, settings, window_s, moment.ts, moment.dated)
        ground = ground_of_advice(planned, standing(store, moment.ts if moment.dated else None))
        services_by_id = {claim.id: on_fleet(claim, ground) for claim in selected}
    market = load_market()
    shown = [(checked(claim, market), services_by_id.get(claim.id, ())) for claim in selected]
    if as_json:
        echo_json(claims_values(shown))
    else:
        echo(claims_text(shown))
