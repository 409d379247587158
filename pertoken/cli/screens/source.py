"""What the screens of `up` and `top` read: a database with the settings of this person."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pertoken.agent.doctor import Finding
    from pertoken.config import Settings
    from pertoken.store.connect.location import StoreLocation
    from pertoken.tui.options import Options
    from pertoken.tui.store_source import StoreSource


def screen_options(where: StoreLocation, settings: Settings) -> Options:
    """Return how the screens look for this person; a database of this host can be explained by the doctor.

    Raises BadInput for keys of a person's own that clash.
    """
    from pertoken.tui.options import options_of

    def diagnose() -> tuple[Finding, ...]:
        from pertoken.agent.doctor import examine

        return examine(settings)

    return options_of(settings, diagnose if where.folder is not None else None)


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
