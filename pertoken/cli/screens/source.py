"""What the screens of `up` and `top` read: a database with the settings of this person."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pertoken.config import Settings
    from pertoken.store.connect.location import StoreLocation
    from pertoken.tui.store_source import StoreSource


def screen_source(where: StoreLocation, settings: Settings) -> StoreSource:
    """Return what the screens read of a database; meanwhile it detects changes and judges those that are due."""
    from pertoken.costs.fleet import objectives
    from pertoken.proof.watch import ChangeWatch
    from pertoken.tui.store_source import StoreSource

    teams = {each.name: each.team for each in settings.tenants}
    return StoreSource(
        where,
        watch=ChangeWatch(where, settings),
        settings=settings,
        teams=teams,
        objectives=lambda model: objectives(model, settings),
    )
