"""Deployment of a probe's measurements, and their validity."""

import socket
import time
from pathlib import Path

import pytest

from pertoken.advisor.probed import keep, probe_points, probed_deployment
from pertoken.evidence import OperatingPoint
from pertoken.store.connect.open import open_store
from pertoken.window.reading import Window
from tests.values import served_at

HOST = socket.gethostname()
POINT = OperatingPoint(1, 2.0, 0.02, 100.0, 50.0, cached_share=1.0, probed=True)


@pytest.mark.parametrize(
    ("endpoint", "host", "known"),
    [
        ("http://localhost:8000", HOST, True),
        ("http://[::1]:8000/", HOST, True),
        ("http://127.0.0.1:8000", "another-host", False),
        ("http://127.0.0.1:8001", HOST, False),
        ("http://10.0.0.1:8000", HOST, False),
    ],
)
def test_an_address_of_loopback_is_one_of_this_host(endpoint: str, host: str, known: bool, tmp_path: Path) -> None:
    store = open_store(served_at(tmp_path, "http://127.0.0.1:8000"))
    deployment = probed_deployment(store, endpoint, host, int(time.time()))
    assert (deployment is not None and deployment.deployment_id == 8 and deployment.name == "tiny-llama") == known
    assert deployment is None or deployment.nano_usd_per_hour is None  # its devices have no price


def test_points_hold_for_the_epoch_in_which_they_were_measured(tmp_path: Path) -> None:
    where, now = served_at(tmp_path, "http://127.0.0.1:8000"), int(time.time())
    for started in (now - 900, now - 60):  # before the epoch began, and in it
        keep(where, 8, started, started + 30, "http://127.0.0.1:8000", "someone", [POINT], {"more": started})
    store = open_store(where)
    with store.read() as connection:
        inventory = Window(connection, now - 3600, now + 1).inventory
    assert probe_points(store, inventory, now) == {8: (POINT,)}
    assert probe_points(store, inventory, now - 60) == {}  # as of a time at which it was not over
