"""Lives of what counts: ids that distinguish one life of a process or of the host's kernel from every other.

A life id never depends on the wall clock of this host, so that neither a clock step nor a restart of the agent changes
it. Ids of processes of this host and of boots are positive; ids of lives that only a page reveals are negative. Two
ids can be compared only if both are of one sign.
"""

from pertoken.store.schema.shared import stable_id

_MAX_ID = 2**63 - 1


def boot_life(boot_id: str | None) -> int | None:
    """Return the id of one boot of a host, the life of its device counters; None if the boot is unknown."""
    return None if boot_id is None else _positive("boot", boot_id)


def process_life(boot_id: str | None, start_ms: int | None) -> int | None:
    """Return the id of one process of this host by its boot and its start after that; None if either is unknown."""
    return None if boot_id is None or start_ms is None else _positive("process", boot_id, start_ms)


def page_life(told_ms: int) -> int:
    """Return the id of a process elsewhere by the number its own page gives each of its lives."""
    return -_positive("page", told_ms)


def is_page_life(life: int | None) -> bool:
    """Return whether only a page reveals this life."""
    return life is not None and life < 0


def comparable(life: int | None, other: int | None) -> bool:
    """Return whether different ids mean different lives: both are known, and by one kind of evidence."""
    return life is not None and other is not None and (life < 0) == (other < 0)


def _positive(*parts: str | int) -> int:
    return stable_id(*parts) & _MAX_ID or 1
