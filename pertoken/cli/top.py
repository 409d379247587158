"""`pertoken top`: the screens alone, over any pertoken database."""

import click

from pertoken.cli.options import db_option, settings_of


@click.command(short_help="Show the screens over any pertoken database.")
@db_option
def top(config_file: str | None, db: str | None) -> None:
    """Show fleet and savings of a recorded database. Telemetry is only ever read."""
    import sys

    from pertoken.store.open import open_store
    from pertoken.store.place import place
    from pertoken.tui.store_source import StoreSource

    settings = settings_of(config_file, db=db)
    where = place(settings.db, settings.advice)
    open_store(where)  # a wrong --db is told here, in one line, before the screen is taken
    source = StoreSource(where)
    if not sys.stdout.isatty():
        from pertoken.cli.up import plain

        click.echo(plain(source))
        return
    from pertoken.tui.app import PertokenApp

    PertokenApp(source).run()
