"""The agent's metrics endpoint as its settings have it."""

import logging
from typing import TYPE_CHECKING

from pertoken.agent.exporter.totals import Totals
from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.exposition import MetricsServer

if TYPE_CHECKING:
    from pertoken.exposition import Pusher

log = logging.getLogger("pertoken.agent")


def pusher_of(settings: Settings, totals: Totals) -> "Pusher | None":
    """Return what pushes to the collector that is set. Without the extra it is logged: recording goes on."""
    if settings.agent_otlp_endpoint is None:
        return None
    from pertoken.exposition import Pusher

    try:
        return Pusher(settings.agent_otlp_endpoint, totals.known(), totals.families)
    except BadInput as error:
        log.error("no metrics by OTLP: %s", error)
        return None


def endpoint_of(settings: Settings, totals: Totals) -> MetricsServer | None:
    """Return the started endpoint, None where none is set. One that cannot be bound is logged: recording goes on."""
    if settings.agent_metrics_listen is None:
        return None
    host, port = settings.agent_metrics_listen
    try:
        server = MetricsServer(
            (host, port),
            totals.page,
            token_file=settings.agent_metrics_token_file,
            cert_file=settings.agent_metrics_cert_file,
            key_file=settings.agent_metrics_key_file,
        )
    except (OSError, BadInput) as error:
        log.error("no metrics endpoint at %s:%d: %s", host, port, error)
        return None
    server.start()
    log.info("metrics at %s:%d/metrics", host, server.port)
    return server
