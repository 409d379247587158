"""Source and options of the screens of `up` and `top`: a database with the user's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pertoken.agent.doctor import Finding
    from pertoken.config import Settings
    from pertoken.proof.detection import ChangeWatch
    from pertoken.state.service import Slo
    from pertoken.store.connect.location import StoreLocation
    from pertoken.tui.options import Options
    from pertoken.tui.store_source import StoreSource


def screen_options(where: StoreLocation, settings: Settings) -> Options:
    """Return the options of the screens; with a database of this host the doctor can explain missing figures.

    Raises BadInput if two actions have the same key.
    """
    from pertoken.tui.options import options_of

    def diagnose() -> tuple[Finding, ...]:
        from pertoken.agent.doctor import examine

        return examine(settings)

    return options_of(settings, diagnose if where.folder is not None else None, str(where))


READ_ONLY = "These screens are read-only: decide at a terminal with `pertoken top`, or serve them with --web-writes."


def screen_source(where: StoreLocation, settings: Settings, *, read_only: bool = False) -> StoreSource:
    """Return the source of the screens, which also detects changes and judges those that are due.

    With `read_only` it stores nothing.
    """
    from pertoken.tui.store_source import StoreSource

    def watch() -> ChangeWatch:
        from pertoken.proof.detection import ChangeWatch

        return ChangeWatch(where, settings)

    def slo(model: str) -> Slo:
        from pertoken.costs.fleet import objectives

        return objectives(model, settings)

    teams = {tenant.name: tenant.team for tenant in settings.tenants}
    return StoreSource(
        where,
        watch=None if read_only else watch,
        settings=settings,
        teams=teams,
        objectives=slo,
        read_only=READ_ONLY if read_only else None,
    )
