"""Writing list prices: the difference to what is known, a question, and rows that change no past costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import echo, settings_of

if TYPE_CHECKING:
    from pertoken.catalog.market import Market
    from pertoken.catalog.offers import Offer
    from pertoken.costs.prices.offers import Difference, OfferList

MAX_LINES = 10
"""Offers of each kind that are listed; of the others only the number is shown."""


def fetched(market: Market, today: date) -> OfferList:
    """Return the newest public lists; print what is missing of them: offers left out, and lists that failed."""
    from pertoken.cli.progress import Progress
    from pertoken.costs.prices.offers import OfferList, fetch

    with Progress("Fetching price lists"):
        newest = fetch(market, today)
    for reason, count in sorted(newest.left_out.items()):
        echo(f"{count} offers left out: {reason}.")
    if newest.missing:
        missing = ", ".join(newest.missing)
        echo(f"The lists of {missing} could not be fetched: their known prices stay; try again later.", err=True)
    return OfferList(newest.offers, frozenset(offer.provider for offer in newest.offers))


def write(config_file: str | None, db: str | None, read: Callable[[Market, date], OfferList], yes: bool) -> None:
    """Show what a list changes, ask, and store it; start again if another list is stored meanwhile.

    Raises BadInput for a list that cannot be read, and without a terminal to ask at.
    """
    import getpass
    import time
    from datetime import UTC, datetime

    from pertoken.catalog.market import load_market
    from pertoken.costs.prices.offers import difference
    from pertoken.costs.prices.stored import offers_imported
    from pertoken.migrations import upgrade
    from pertoken.store import repository
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import Store, open_advice, reading
    from pertoken.store.repository import AdviceRepository, PricesChanged

    settings = settings_of(config_file, db=db)
    where = locate(settings.db, settings.advice)
    now = int(time.time()) // 60 * 60
    today = datetime.fromtimestamp(now, UTC).date()
    upgrade(where, "advice")  # refuses an unusable database before a list is fetched
    newest = read(load_market(), today)
    advice = AdviceRepository(where)
    while True:
        imported = offers_imported(Store(where, reading(where, "telemetry"), open_advice(where)))
        market = load_market().having(imported)
        changes = difference(newest.offers, market, today, now, newest.complete)
        _show(changes)
        if not changes.written:
            echo("Nothing to write.")
            return
        _confirm(len(changes.written), yes)
        rows = [_row(offer, now, getpass.getuser()) for offer in changes.written]
        try:
            with advice.writing() as connection:
                repository.add_offers(connection, rows, read_seq=len(imported))
        except PricesChanged:
            echo("Another person imported prices meanwhile; starting again.", err=True)
            continue
        echo(f"{len(rows)} offers written. Past costs stay as they are: changed prices count from now on.")
        return


def _confirm(count: int, yes: bool) -> None:
    import sys

    from pertoken.errors import BadInput

    if yes:
        return
    if not sys.stdin.isatty():
        raise BadInput(f"{count} offers would be written, as shown: nothing was; pass --yes to do it")
    if not click.confirm(f"Write {count} offers?"):
        raise BadInput("nothing was written")


def _show(changes: Difference) -> None:
    risen = [pair for pair in changes.changed if _ratio(*pair) > 1]
    fallen = [pair for pair in changes.changed if _ratio(*pair) <= 1]
    gone = f", {len(changes.gone)} gone from the lists" if changes.gone else ""
    echo(
        f"{len(changes.new)} new offers, {len(risen)} risen, {len(fallen)} fallen, {len(changes.confirmed)} unchanged "
        f"with a later date, {changes.outdated} not newer than the known ones, {len(changes.refused)} refused{gone}."
    )
    _lines("new", [f"{_named(offer)} {_usd(offer)}" for offer in changes.new])
    for word, pairs in (("risen", risen), ("fallen", fallen)):
        largest = sorted(pairs, key=lambda pair: -abs(_ratio(*pair) - 1))
        _lines(word, [f"{_named(old)} {_usd(old)} → {_usd(new)} ({_ratio(old, new) - 1:+.0%})" for old, new in largest])
    _lines(
        "refused", [f"{_named(refusal.offer)} {_usd(refusal.offer)}: {refusal.reason}" for refusal in changes.refused]
    )
    _lines("gone", [f"{_named(offer)} {_usd(offer)} of {offer.as_of}, which stays" for offer in changes.gone])


def _lines(what: str, lines: Sequence[str]) -> None:
    for line in lines[:MAX_LINES]:
        echo(f"{what:8} {line}")
    if len(lines) > MAX_LINES:
        echo(f"{what:8} and {len(lines) - MAX_LINES} more")


def _named(offer: Offer) -> str:
    purchase = offer.purchase.replace("_", "-")
    return f"{offer.provider} {offer.instance_type} ({offer.n_devices} x {offer.accelerator}) {offer.region} {purchase}"


def _usd(offer: Offer) -> str:
    from pertoken.text.amounts import amount

    return f"{amount(offer.nano_usd_per_hour)}/h"


def _ratio(old: Offer, new: Offer) -> float:
    return new.nano_usd_per_device_hour / max(1, old.nano_usd_per_device_hour)


def _row(offer: Offer, now: int, who: str) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(offer) | {"as_of": offer.as_of.isoformat(), "set_ts": now, "set_by": who}
