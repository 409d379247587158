"""`pertoken receipt`: what a change was proven to save, and whether the proof can be made again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pertoken.cli.options import db_option, echo, settings_of

if TYPE_CHECKING:
    from pertoken.proof.judging.receipts import StoredReceipt


@click.command(short_help="Print the receipt of a change, and make it again from its hours.")
@click.argument("receipt_id", metavar="[ID]", required=False)
@db_option
@click.option("--json", "form", flag_value="json", help="Print JSON instead of Markdown.")
@click.option("--md", "form", flag_value="md", default=True, help="Print Markdown (the default).")
def receipt(config_file: str | None, db: str | None, receipt_id: str | None, form: str) -> None:
    """Print a receipt: what was promised and what was measured, by which hours and method.

    ID is that of a receipt, or of a recommendation, whose newest receipt is printed; its first digits are enough.
    Without an ID all receipts are listed. The receipt is computed again from the hours stored beside it: exit 1 if it
    is not the same, or was altered.
    """
    import json
    from dataclasses import asdict

    from pertoken.proof.judging.receipts import find, read_receipts
    from pertoken.proof.receipts.markdown import to_markdown
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import open_store
    from pertoken.tui.text.lifecycle import checked_line, receipt_line

    settings = settings_of(config_file, db=db)
    where = locate(settings.db, settings.advice)
    store = open_store(where)
    stored: tuple[StoredReceipt, ...] = ()
    if store.advice is not None:
        with store.read("advice") as connection:
            stored = read_receipts(connection)
    if receipt_id is None:
        if form == "json":
            echo(json.dumps([each.values() for each in stored], indent=2))
            return
        none = ["No receipts yet: `pertoken advise` makes one of each change, a week after it."]
        echo("\n".join([receipt_line(each) for each in stored] or none))
        return
    each = find(stored, receipt_id, where)
    check = each.check()
    if form == "json":
        echo(json.dumps({**each.values(), "check": asdict(check)}, indent=2))
    else:
        text = to_markdown(each.read()) if check.intact else ""
        echo(f"{text}\n{checked_line(check)}" if text else checked_line(check))
    if not check.reproduced:
        raise click.exceptions.Exit(1)
