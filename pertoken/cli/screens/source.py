"""What the screens of `up` and `top` read: a database with the settings of this person."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pertoken.config import Settings
    from pertoken.proof.watch import ChangeWatch
    from pertoken.state.service import Slo
    from pertoken.store.connect.location import StoreLocation
    from pertoken.tui.store_source import StoreSource


def begin() -> None:
    """Put garbage collection off until the first frame: see `tui.background.collect_garbage`."""
    import gc

    gc.disable()


READ_ONLY = "These screens are read-only: decide at a terminal with `pertoken top`, or serve them with --web-writes."


def screen_source(where: StoreLocation, settings: Settings, *, read_only: bool = False) -> StoreSource:
    """Return what the screens read of a database; meanwhile it detects changes and judges those that are due.

    With `read_only` it stores nothing at all.
    """
    from pertoken.tui.store_source import StoreSource

    def watch() -> ChangeWatch:
        from pertoken.proof.watch import ChangeWatch

        return ChangeWatch(where, settings)

    def slo(model: str) -> Slo:
        from pertoken.costs.fleet import objectives

        return objectives(model, settings)

    teams = {each.name: each.team for each in settings.tenants}
    return StoreSource(
        where,
        watch=None if read_only else watch,
        settings=settings,
        teams=teams,
        objectives=slo,
        read_only=READ_ONLY if read_only else None,
    )
