"""`pertoken report --weekly`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pertoken.cli.options import AsOf, check_recorded, echo, report_faults, warn_of_other_settings

if TYPE_CHECKING:
    from pertoken.config import Settings

DESTINATIONS = ("file", "webhook", "mail")


def send_week(settings: Settings, to: str, out: Path | None, moment: AsOf) -> None:
    """Write the week to a file, or send it. Raises StoreError, BadInput, NotDelivered."""
    from pertoken.cli.progress import Progress
    from pertoken.errors import BadInput, StoreError
    from pertoken.reports.markdown import week_of, weekly_lines
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import open_store

    if to not in DESTINATIONS:
        raise BadInput(f"--weekly --to {to}: write {', '.join(DESTINATIONS[:-1])} or {DESTINATIONS[-1]}")
    if to != "file" and out is not None:
        raise BadInput("--out is for --to file")
    if to == "webhook" and settings.delivery_webhook is None:
        raise BadInput("--to webhook needs delivery.webhook in the settings")
    store = open_store(locate(settings.db, settings.advice))
    check_recorded(moment, store)
    warn_of_other_settings(store.location, settings)
    report_faults(moment, store, 14 * 86_400)
    with Progress("Reading two weeks"):
        lines = weekly_lines(store, settings, week_of(moment.ts, dated=moment.dated))
    text = "\n".join(lines) + "\n"
    if to == "mail":
        from pertoken.reports.delivery import send

        send(settings, lines[0], text)
    elif to == "webhook" and settings.delivery_webhook is not None:
        import json
        import time

        from pertoken.reports.delivery import post, read_secret

        secret = read_secret(settings.delivery_secret_file, settings.delivery_secret_env, "delivery.secret_file")
        body = json.dumps({"version": 1, "report": "weekly", "text": text}).encode()
        own = settings.delivery_own_hosts
        post(settings.delivery_webhook, body, int(time.time()), secret=secret, own_hosts=own)
    elif out is None:
        echo(text, nl=False)
    else:
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise StoreError(f"{out}: cannot be written: {error.strerror}") from None
