"""Command `pertoken prices own`: the cost of a server that the user owns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pertoken.cli.options import echo, settings_of


def own(config_file: str | None, db: str | None, host: str, stated: Mapping[str, float | None]) -> None:
    """Store the cost of a server and show the price of an hour of its devices. Raises BadInput for invalid terms."""
    import getpass
    import time

    from pertoken.costs.prices.stored import Ownership, ownership
    from pertoken.errors import BadInput
    from pertoken.migrations import upgrade
    from pertoken.store import repository
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import Store, open_advice, reading
    from pertoken.store.repository import AdviceRepository
    from pertoken.units import format_utc

    settings = settings_of(config_file, db=db)
    values: dict[str, Any] = dict(stated)
    if values.get("usd_per_kwh") is None:
        values["usd_per_kwh"] = settings.energy_usd_per_kwh
    if values.get("pue") is None and "energy_pue" in settings.set_by:
        values["pue"] = settings.energy_pue
    try:
        owned = Ownership(**values)
    except ValueError as error:
        raise BadInput(str(error)) from None
    where = locate(settings.db, settings.advice)
    upgrade(where, "advice")
    now = int(time.time()) // 60 * 60
    known = ownership(Store(where, reading(where, "telemetry"), open_advice(where)))
    from_ts = now if host in known else 0
    with AdviceRepository(where).writing() as connection:
        repository.add_owned(
            connection, host=host, terms=owned.text, from_ts=from_ts, set_ts=now, set_by=getpass.getuser()
        )
    since = f"from {format_utc(from_ts)} on: past costs stay as they are" if from_ts else "from the beginning"
    echo(f"{host} is owned, {since}.")
    _show(where, host, now)


def _show(where: Any, host: str, now: int) -> None:
    from pertoken.costs.repricing import read_prices
    from pertoken.text.amounts import amount

    newest = [detected[-1] for detected in read_prices(where, now).book.detected.values() if detected]
    prices = [price for price in newest if f"owning {host} " in (price.note or "")]
    if not prices:
        echo(
            f"No device of {host!r} was recorded yet, or its instance has a list price: "
            "it applies to devices recorded later."
        )
    for price in prices:
        echo(f"{price.selector}: {amount(price.nano_usd_per_device_hour)} an hour, {price.note}")
