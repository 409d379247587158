"""The agent's side of shipping: rounds of a real child, failures, and children that end or are ended."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pertoken.agent.shipper.supervisor import Shipping
from pertoken.errors import StoreError
from pertoken.store.connect.location import DatabaseServer, server_url
from tests.recorded import DEADLINE_S, until
from tests.store.filled import filled
from tests.values import new_store

AWAY = DatabaseServer(server_url("postgresql://someone@127.0.0.1:1/none", "test"))
NEVER = threading.Event()


def child_pid(shipping: Shipping) -> int:
    assert shipping._child is not None
    return shipping._child.process.pid


def test_a_round_without_a_server_fails_and_the_first_failure_in_a_row_is_an_event(tmp_path: Path) -> None:
    filled(tmp_path, 6)
    shipping = Shipping(tmp_path, AWAY)
    try:
        for _ in range(2):
            with pytest.raises(StoreError, match=r"127\.0\.0\.1"):
                shipping.round(NEVER)
        (event,) = shipping.events()
        assert event.kind == "ship_failed" and event.message.startswith("nothing is shipped: ")
        assert shipping.events() == ()
    finally:
        shipping.close()


def test_a_round_that_succeeds_after_failures_is_an_event(tmp_path: Path) -> None:
    new_store(tmp_path)  # without marks no server is asked
    shipping = Shipping(tmp_path, AWAY)
    try:
        shipping._failures = 3
        shipping.round(NEVER)
        assert [event.message for event in shipping.events()] == ["shipping works again after 3 failures"]
    finally:
        shipping.close()


def test_a_child_that_was_killed_between_rounds_is_replaced_in_the_next_one(tmp_path: Path) -> None:
    new_store(tmp_path)
    shipping = Shipping(tmp_path, AWAY)
    try:
        shipping.round(NEVER)
        killed = child_pid(shipping)
        os.kill(killed, signal.SIGKILL)
        child = shipping._child
        assert child is not None
        child.process.wait(DEADLINE_S)
        shipping.round(NEVER)
        assert child_pid(shipping) != killed
        assert [event.kind for event in shipping.events()] == ["ship_failed"]
    finally:
        shipping.close()


def test_a_child_that_ends_in_a_round_fails_it(tmp_path: Path) -> None:
    with hanging_round(tmp_path) as hanging:
        os.kill(child_pid(hanging.shipping), signal.SIGKILL)
        assert "the shipper ended in a round (status -9)" in str(hanging.result())


def test_a_child_that_hangs_in_a_round_is_ended(tmp_path: Path) -> None:
    with hanging_round(tmp_path) as hanging:
        hanging.now_s = 301.0
        assert "the shipper hung for 300 s" in str(hanging.result())


def test_closing_ends_a_round_under_way_without_a_failure(tmp_path: Path) -> None:
    with hanging_round(tmp_path) as hanging:
        hanging.shipping.close()
        assert hanging.result() is None
        assert hanging.shipping.events() == ()
        hanging.shipping.round(NEVER)  # closed: no other child is started
        assert hanging.shipping._child is None


def test_an_agent_that_ends_waits_for_no_round(tmp_path: Path) -> None:
    with hanging_round(tmp_path) as hanging:
        hanging.stop.set()
        assert hanging.result() is None


class HangingRound:
    """A round in a thread of its own whose child is stopped."""

    def __init__(self, folder: Path) -> None:
        self.now_s, self._asked = 0.0, 0
        self.stop = threading.Event()
        self.shipping = Shipping(folder, AWAY, clock=self._clock)
        self.shipping.round(NEVER)
        os.kill(child_pid(self.shipping), signal.SIGSTOP)
        before = self._asked
        self._raised: list[StoreError] = []
        self._thread = threading.Thread(target=self._round, daemon=True)
        self._thread.start()
        until(lambda: self._asked > before, "the round to begin")

    def _clock(self) -> float:
        self._asked += 1
        return self.now_s

    def _round(self) -> None:
        try:
            self.shipping.round(self.stop)
        except StoreError as error:
            self._raised.append(error)

    def result(self) -> StoreError | None:
        """Wait for the end of the round, and return what it raised."""
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        return self._raised[0] if self._raised else None


@contextmanager
def hanging_round(folder: Path) -> Iterator[HangingRound]:
    """A round that hangs, in a database of which nothing is to be shipped."""
    new_store(folder)
    hanging = HangingRound(folder)
    try:
        yield hanging
    finally:
        hanging.shipping.close()
