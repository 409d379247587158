import socket
import threading
import time

import pytest

from pertoken.reports.delivery import Cutoff
from tests.trickle import trickling


def test_a_read_ends_at_the_deadline_though_bytes_keep_coming() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, trickling(theirs), Cutoff(ours, 0.2) as cutoff:
        ours.settimeout(30)
        while ours.recv(1):
            pass
        assert cutoff.passed
        with pytest.raises(OSError):
            ours.sendall(b"late")


def test_a_connection_that_is_done_in_time_is_left_alone_and_no_thread_stays() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with Cutoff(ours, 0.05) as cutoff:
            ours.sendall(b"a")
        time.sleep(0.1)
        assert not cutoff.passed
        ours.sendall(b"b")
        assert theirs.recv(2, socket.MSG_WAITALL) == b"ab"
    assert not [thread for thread in threading.enumerate() if thread.name == "cutoff"]
