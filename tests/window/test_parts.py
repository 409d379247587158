"""Parts of a window are read once, and only by the process that has the database."""

import pytest

from pertoken.window.parts import Parts, Unread, no_parts


def test_a_part_is_read_once_when_it_is_first_looked_at() -> None:
    reads: list[str] = []
    parts = Parts(lambda name: reads.append(name) or len(reads))  # type: ignore[func-returns-value]
    assert (parts["host"], parts["device"], parts["host"]) == (1, 2, 1)
    assert reads == ["host", "device"]
    assert parts.names == {"host", "device"}


def test_a_process_without_the_database_keeps_the_parts_read_and_names_the_missing_one() -> None:
    parts = Parts(str.upper)
    assert parts["host"] == "HOST"
    parts.detach()
    assert parts["host"] == "HOST"
    assert parts.missed is None
    for name in ("device", "counters"):
        with pytest.raises(Unread):
            parts[name]
    assert parts.missed == "device"


def test_a_window_without_parts_has_none() -> None:
    with pytest.raises(LookupError, match="host is no part"):
        no_parts()["host"]


def test_a_part_that_was_read_elsewhere_is_taken_over() -> None:
    parts = no_parts()
    parts.put("host", "HOST")
    assert parts["host"] == "HOST"
