"""Ids of engines and of sets of histogram buckets."""

from collections.abc import Mapping
from functools import cache, lru_cache
from urllib.parse import urlsplit

from pertoken.agent.readings import Endpoint
from pertoken.store.schema.shared import stable_id


def engine_id_of(host_id: int, endpoint: Endpoint, stored: Mapping[int, str]) -> int:
    """Return the id of an engine: of its host, its kind and its address.

    `stored`: base URLs of this host's engines in the database, by engine id, as this agent found them at its start.

    One address is one engine, whichever process answers there: an engine keeps its id when it is restarted, when the
    agent is, and when it is found by its process after it was named by its URL. 127.0.0.1, `localhost` and a socket
    bound to every address are the same address; one process found at several addresses is read at one (`watch`). Two
    addresses with the same port (two network cards, IPv4 and IPv6, an alias) are two engines.

    Ids used to be of the port alone. That id still names the engine at 127.0.0.1, or the one address it is stored
    with, so that databases go on; every other address has an id of its own. An engine whose page counts for several
    models has an id for each of them.
    """
    which = () if endpoint.model is None else (endpoint.model,)
    if endpoint.port is not None:
        by_port = stable_id("engine", host_id, endpoint.kind, endpoint.port, *which)
        if _place(endpoint.base_url) == _place(stored.get(by_port, "http://127.0.0.1")):
            return by_port
    return stable_id("engine", host_id, endpoint.kind, endpoint.base_url, *which)


@lru_cache(256)
def _place(base_url: str) -> tuple[str, str]:
    """Return host and path of a URL: the difference between two engines on one port."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    return "127.0.0.1" if host == "localhost" else host, parts.path.rstrip("/")


@cache
def bucket_set_id(bounds: tuple[float, ...]) -> int:
    """Return the id of a set of upper bounds."""
    return stable_id("buckets", *map(repr, bounds))
