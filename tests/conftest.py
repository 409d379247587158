"""For all tests: nothing is timed, since a busy machine must not fail a property that holds; one fleet server."""

import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pertoken.store.connect.location import StoreLocation
from tests.examples import QUICK, THOROUGH

_ROOT = Path(__file__).parents[1]
_NUMBERS = count()
settings.register_profile(
    "thorough", max_examples=THOROUGH, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("thorough"), max_examples=QUICK)
settings.load_profile("quick")
# Hundreds of tests start a program: each would compile the package again, for up to a second.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A shell starts jobs in the background with SIGINT ignored, and programs that tests start inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection(session: pytest.Session) -> None:
    """Import a part of the test files first if workers share all of them.

    To rewrite the asserts of all files takes 15 seconds, which each worker would spend; the rewritten file is kept.
    """
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", ""), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if session.config.args != session.config.getini("testpaths") or not worker:
        return
    files = sorted(_ROOT.glob("tests/**/test_*.py"))
    for file in files[int(worker.removeprefix("gw")) :: workers]:
        with suppress(Exception, pytest.skip.Exception):  # collecting the file reports it
            importlib.import_module(".".join(file.relative_to(_ROOT).with_suffix("").parts))


_LONGEST = (
    "tests/test_benchmarks.py",
    "tests/test_whole_program.py",
    "tests/cli/errors/test_system_errors.py",
    "tests/adversary",
    "tests/tui/whole",
    "tests/fuzz/test_secrets.py",
    "tests/chaos",
    "tests/test_last_pages.py",
    "tests/tui/terminal/test_trouble.py",
    "tests/demo/test_day.py",
    "tests/agent/clocks/test_recorded_clock.py",
    "tests/test_write_a_rule.py",
    "tests/advisor/worker",
    "tests/agent/test_clock_steps_process.py",
    "tests/agent/test_whole_agent_faults.py",
    "tests/agent/discovery/test_hung_engines.py",
    "tests/store/central/test_functions.py",
    "tests/fleet",
    "tests/store/write/test_events.py",
)
"""Files and folders that take longest, which start first: else one worker would run them while the others are done."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests of `_LONGEST`, and else keep the order."""
    ranks = {path: rank for rank, path in enumerate(_LONGEST)}
    file_ranks: dict[Path, int] = {}
    for item in items:
        if item.path not in file_ranks:
            name = item.path.relative_to(_ROOT).as_posix()
            file_ranks[item.path] = min((rank for path, rank in ranks.items() if name.startswith(path)), default=99)
    items.sort(key=lambda item: file_ranks[item.path])


def pytest_collection_finish() -> None:
    """Leave what was imported to itself: the garbage collector would walk through it time and again.

    It also runs less often: it took 3 % of the CPU of all tests.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test, and the programs it starts, a state folder in which nothing is remembered."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / f"state-{next(_NUMBERS)}"))


_OWN_PROCESSES = (
    "tests/advisor/rules/test_check.py",
    "tests/advisor/test_run.py",
    "tests/advisor/test_forks.py",
    "tests/advisor/worker",
    "tests/fuzz",
)
"""Files and folders in which each rule has a process of its own, as in an advice run; elsewhere they share one."""


@pytest.fixture(scope="module", autouse=True)
def rules_share_a_process(request: pytest.FixtureRequest) -> Iterator[None]:
    """Spare the forks of rules where a test is not about them."""
    from tests.one_process import share_a_process

    with pytest.MonkeyPatch.context() as monkeypatch:
        if not request.path.relative_to(_ROOT).as_posix().startswith(_OWN_PROCESSES):
            share_a_process(monkeypatch)
        yield


@pytest.fixture
def own_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each rule a process of its own in one test of a file in which they share one."""
    from pertoken.advisor.worker import child, run

    monkeypatch.setattr(run, "supervise", child.supervise)


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
    from pertoken.store.central.server import enroll

    name = f"t_{abs(hash(request.node.name)) % 10**12}"
    enroll(server, name, 1)
    return name


@pytest.fixture
def without_built_in_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the rules of this distribution: a test of one rule of its own needs none of their processes."""
    monkeypatch.setenv("PERTOKEN_ADVISOR_DENY", '["pertoken"]')
