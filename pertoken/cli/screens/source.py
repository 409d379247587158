"""What the screens of `up` and `top` read: a database with the settings of this person."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pertoken.agent.doctor import Finding
    from pertoken.config import Settings
    from pertoken.proof.watch import ChangeWatch
    from pertoken.state.service import Slo
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


def begin() -> None:
    """Put the search for garbage off until the first frame, where `garbage.resume` is called: it takes a tenth of the
    start."""
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
