"""Jobs and servers beside repeated advice: exports of dollars, alerts, the team's pages, and publishing into a lake."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pertoken.config import Settings
    from pertoken.schedule.jobs import Job
    from pertoken.store.connect.location import StoreLocation


@contextlib.contextmanager
def exports(where: StoreLocation, settings: Settings) -> Iterator[list[Job]]:
    """Expose dollars as Prometheus metrics, and yield the job that pushes them by OTLP, where addresses are set.

    Raises BadInput, OSError.
    """
    if settings.advisor_metrics_listen is None and settings.advisor_otlp_endpoint is None:
        yield []
        return
    from pertoken.reports.exporters import Dollars, known_dollars

    dollars = Dollars(where, settings)
    with contextlib.ExitStack() as stack:
        if settings.advisor_metrics_listen is not None:
            from pertoken.exposition import MetricsServer

            server = MetricsServer(
                settings.advisor_metrics_listen,
                dollars.page,
                token_file=settings.advisor_metrics_token_file,
                cert_file=settings.advisor_metrics_cert_file,
                key_file=settings.advisor_metrics_key_file,
            )
            server.start()
            stack.callback(server.stop)
        pushes: list[Job] = []
        if settings.advisor_otlp_endpoint is not None:
            from pertoken.exposition import PUSH_EVERY_S, Pusher
            from pertoken.schedule.jobs import Job

            pusher = Pusher(settings.advisor_otlp_endpoint, known_dollars(), dollars.families)
            pushes.append(Job("metrics push", pusher.push, PUSH_EVERY_S, beside=True))
            stack.callback(pusher.end)
        yield pushes


@contextlib.contextmanager
def team_pages(where: StoreLocation, settings: Settings) -> Iterator[None]:
    """Serve the team's pages where an address is set. Raises BadInput, OSError."""
    if settings.advisor_pages_listen is None:
        yield
        return
    from pertoken.reports.team.pages import TeamPages
    from pertoken.reports.team.server import Login, TeamServer

    server = TeamServer(
        settings.advisor_pages_listen,
        TeamPages(where, settings).html,
        Login(settings),
        cert_file=settings.advisor_pages_cert_file,
        key_file=settings.advisor_pages_key_file,
    )
    server.start()
    try:
        yield
    finally:
        server.stop()


def alert_jobs(where: StoreLocation, settings: Settings) -> list[Job]:
    """Return the job that evaluates alerts. Raises BadInput for an invalid alert."""
    import time

    from pertoken.migrations import upgrade
    from pertoken.reports.alerts import EVERY_S, JOB, AlertWatch
    from pertoken.schedule.jobs import Job

    watch = AlertWatch(where, settings)
    upgrade(where, "advice")
    return [Job(JOB, lambda: watch.round(int(time.time())), EVERY_S, beside=True)]


def lake_jobs(where: StoreLocation, settings: Settings) -> list[Job]:
    """Return the job that publishes closed hours into a lake, where one is set. Raises BadInput, StoreError."""
    if settings.advisor_lake_url is None:
        return []
    import time

    from pertoken.catalog.market import load_market
    from pertoken.lake.manifest import LakeFiles, cell_name, cell_of
    from pertoken.lake.publish import Source, publish
    from pertoken.schedule.jobs import Job
    from pertoken.store.connect.open import open_store

    lake, cell = LakeFiles(settings.advisor_lake_url), cell_name(settings.advisor_lake_cell or cell_of(where))

    def publish_closed_hours() -> None:
        source = Source(open_store(where), load_market(), settings, cell)
        for _ in publish(source, lake, int(time.time()), lambda: time.time_ns() // 1000):
            pass

    return [Job("lake", publish_closed_hours, settings.advisor_lake_every, beside=True)]
