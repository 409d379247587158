"""For all tests: nothing is timed, since a busy machine must not fail a property that holds; one fleet server."""

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, settings

from pertoken.store.connect.location import StoreLocation

_NUMBERS = count()
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test, and the programs it starts, a state folder in which nothing is remembered."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / f"state-{next(_NUMBERS)}"))


@pytest.fixture(scope="session")
def owner_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a fleet's server, which takes a second to make."""
    from tests.postgres import server_url

    with server_url(tmp_path_factory.mktemp("fleet")) as url:
        yield url


@pytest.fixture(scope="session")
def server(owner_url: str) -> StoreLocation:
    """A server that was made ready, as its owner."""
    from pertoken.migrations.fleet import init_fleet
    from pertoken.store.connect.location import locate
    from tests.fleet.servers import NOW

    where = locate(owner_url)
    init_fleet(where, NOW, keep={"1h": 60 * 86_400, "1m": 10 * 86_400})
    return where


@pytest.fixture
def let_in(server: StoreLocation, request: pytest.FixtureRequest) -> str:
    """A login of its own for one test."""
    from pertoken.store.central.logins import enroll

    name = f"t_{abs(hash(request.node.name)) % 10**12}"
    enroll(server, name, 1)
    return name


@pytest.fixture
def without_built_in_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the rules of this distribution: a test of one rule of its own needs none of their processes."""
    monkeypatch.setenv("PERTOKEN_ADVISOR_DENY", '["pertoken"]')
