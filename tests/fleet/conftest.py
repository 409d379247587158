"""One server for all tests of a fleet: a folder of PostgreSQL takes a second to make."""

from collections.abc import Iterator

import pytest

from pertoken.migrations.fleet import init_fleet
from pertoken.store.connect.location import StoreLocation, locate
from tests.fleet.servers import NOW
from tests.postgres import server_url


@pytest.fixture(scope="session")
def owner_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_url(tmp_path_factory.mktemp("fleet")) as url:
        yield url


@pytest.fixture(scope="session")
def server(owner_url: str) -> StoreLocation:
    """A server that was made ready, as its owner."""
    where = locate(owner_url)
    init_fleet(where, NOW, keep={"1h": 60 * 86_400, "1m": 10 * 86_400})
    return where
