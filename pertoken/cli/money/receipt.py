"""`pertoken receipt`: the proven saving of a change, recomputed from its hours."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from pertoken.cli.options import Database, db_option, echo


@click.command(short_help="Print the receipt of a change, and recompute it from its hours.")
@click.argument("receipt_id", metavar="[ID]", required=False)
@db_option
@click.option("--json", "form", flag_value="json", help="Print JSON instead of Markdown.")
@click.option("--md", "form", flag_value="md", default=True, help="Print Markdown (the default).")
def receipt(database: Database, receipt_id: str | None, form: str) -> None:
    """Print a receipt: the promised and the measured saving, with the hours and method of the measurement.

    ID is that of a receipt or of a recommendation (its newest receipt is printed); the first digits are enough. Without
    an ID all receipts are listed. The receipt is recomputed from the hours stored with it: exit 1 if the result differs
    or the receipt was altered.
    """
    from pertoken.proof.judging.receipts import all_receipts, find
    from pertoken.text.lifecycle import checked_line, receipt_line
    from pertoken.text.receipt import to_markdown

    _, store = database.opened()
    stored = all_receipts(store)
    if receipt_id is None:
        if form == "json":
            echo(json.dumps([row.values() for row in stored], indent=2))
            return
        none = ["No receipts yet: `pertoken advise` makes one for each change, a week after it."]
        echo("\n".join([receipt_line(row) for row in stored] or none))
        return
    chosen = find(stored, receipt_id, store.location)
    check = chosen.check()
    if form == "json":
        echo(json.dumps({**chosen.values(), "check": asdict(check)}, indent=2))
    else:
        text = to_markdown(chosen.read()) if check.intact else ""
        echo(f"{text}\n{checked_line(check)}" if text else checked_line(check))
    if not check.reproduced:
        raise click.exceptions.Exit(1)
