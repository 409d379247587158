"""Setting and withdrawing prices: what they apply to, what they change, and a question before past costs change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pertoken.cli.options import echo, settings_of
from pertoken.cli.prices.words import counted, end_ts, named, per_hour, period, since, start_ts, when

if TYPE_CHECKING:
    from pertoken.costs.prices.book import Entered, Price, PriceBook, Priced
    from pertoken.costs.repricing import Prices
    from pertoken.store.connect.location import StoreLocation


def put(
    config_file: str | None,
    db: str | None,
    selector: str,
    start: str | None,
    note: str | None,
    nano: int | None,
    yes: bool,
    until: str | None = None,
    entered: Entered | None = None,
) -> None:
    """Show the devices and past costs that a price (None: no price) applies to, and set it.

    Starts again if another person sets a price meanwhile. Raises BadInput."""
    import getpass
    import time

    from pertoken.costs.prices.book import Price, identity
    from pertoken.costs.repricing import read_prices
    from pertoken.errors import BadInput
    from pertoken.migrations import upgrade
    from pertoken.store import repository
    from pertoken.store.connect.location import locate
    from pertoken.store.repository import AdviceRepository, PricesChanged

    selector = selector.strip()
    if not identity(selector):
        raise BadInput("the device is blank: name `cpu`, `gpu`, words of a GPU's name, or a UUID")
    now = int(time.time())
    asked_ts = None if start is None else start_ts(start, now)
    settings = settings_of(config_file, db=db)
    where = locate(settings.db, settings.advice)
    upgrade(where, "advice")
    advice = AdviceRepository(where)
    while True:
        known = read_prices(where, now)
        if nano is None and not any(
            earlier.nano_usd_per_device_hour is not None for earlier in known.book.of_selector(selector)
        ):
            set_for = ", ".join(dict.fromkeys(earlier.selector for earlier in known.book.prices)) or "nothing"
            raise BadInput(f"no price is set for {selector!r}; prices are set for {set_for}")
        from_ts = asked_ts
        if from_ts is None:
            from_ts = 0 if known.unpriced(selector) else start_ts("now", now)
        until_ts = end_ts(until, from_ts, now)
        price = Price(
            selector,
            nano,
            from_ts,
            now,
            getpass.getuser(),
            note,
            seq=known.seq + 1,
            until_ts=until_ts,
            entered=entered,
        )
        echo(f"{selector}: {per_hour(price)}, {period(from_ts, until_ts, now)}.")
        echo(named(known, selector))
        after = known.having(price)
        confirm(where, known.book, after, price.from_ts, now, yes or asked_ts is None)
        try:
            with advice.writing() as connection:
                repository.add_price(
                    connection,
                    read_seq=known.seq,
                    selector=selector,
                    nano_usd_per_device_hour=nano,
                    from_ts=from_ts,
                    set_ts=now,
                    set_by=price.set_by,
                    note=note,
                    until_ts=until_ts,
                    entered=None if entered is None else entered.stored,
                )
        except PricesChanged:
            echo("Another person changed prices meanwhile; starting again.", err=True)
            continue
        break
    _after(known, price, now)
    if asked_ts is None and from_ts:
        echo("Costs before that stay as they are; `--from ever` would change them, after showing how.")


def confirm(where: StoreLocation, before: PriceBook, after: PriceBook, from_ts: int, now: int, yes: bool) -> None:
    """Show the past costs that a change of prices changes, and ask if any were known.

    Raises BadInput without a terminal.
    """
    import sys

    from pertoken.cli.progress import Progress
    from pertoken.costs.repricing import repriced
    from pertoken.errors import BadInput
    from pertoken.text.amounts import amount

    if from_ts > now:
        return
    with Progress("Pricing past hours again"):
        changed = repriced(where, before, after, from_ts, now)
    changes = [change for change in changed if change.first_ts < now // 60 * 60]  # not the current minute
    for change in changes:
        hours = change.device_ms / 3_600_000
        echo(
            f"Cost of {len(change.devices)} x {change.name} from {when(change.first_ts)} to {when(change.last_ts)} "
            f"({hours:,.{1 if hours >= 1 else 3}f} device-hours): {amount(change.before, 'no price')} → "
            f"{amount(change.after, 'no price')}"
        )
    if yes or all(change.before is None for change in changes):
        return
    if not sys.stdin.isatty():
        raise BadInput("the cost of past hours would change, as shown: nothing was set; pass --yes to do it")
    if not click.confirm("Change the cost of past hours?"):
        raise BadInput("nothing was set")


def _after(known: Prices, price: Price, now: int) -> None:
    """Print devices of this selector to which another price applies, and later prices of the selector."""
    then = max(now, price.from_ts)
    book = known.having(price)
    others: dict[str, list[Priced]] = {}
    for device in known.named(price.selector):
        applied = book.at(device, then)
        if applied != price:
            what = "no price" if applied is None else f"{per_hour(applied)} of {applied.selector}"
            others.setdefault(what, []).append(device)
    for what, devices in others.items():
        echo(f"{counted(devices)}: {what} {'applies' if what != 'no price' else 'is known'} then.")
    for later in book.of_selector(price.selector):
        if later.from_ts > price.from_ts and later.nano_usd_per_device_hour is not None:
            echo(f"{later.selector}: {per_hour(later)} {since(later.from_ts, then)}, as set before.")
