"""Split levers into groups that do not act on each other's money.

What two levers save adds up unless they change one service, or may empty one host together: only a whole host leaves
the bill. So a host joins the levers that act on it only where all of its work can go at all.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pertoken.advisor.plan.levers.lever import Lever
from pertoken.advisor.plan.levers.reach import covers
from pertoken.state.fleet import Fleet

Unit = tuple[str | None, str | None]
"""Provider and instance type of hosts."""


def groups(base: Fleet, levers: Sequence[Lever]) -> tuple[tuple[int, ...], ...]:
    """Return positions of levers, those of a group together and in their order, groups by their first.

    Levers that only make commitments are in none: their conflicts state all that they have to do with others.
    """
    within = [at for at, lever in enumerate(levers) if not lever.is_commitment]
    releasable = _releasable(base, [levers[at] for at in within])
    committed = {
        host.host_id: (host.placement.provider, host.placement.instance_type)
        for host in base.hosts
        if any(covers(commitment, host) for commitment in base.commitments)
    }
    first: dict[object, int] = {}
    leader = {at: at for at in within}

    def top(at: int) -> int:
        while leader[at] != at:
            at = leader[at]
        return at

    for at in within:
        for shared in _shared(levers[at], releasable, committed):
            low, high = sorted((top(first.setdefault(shared, at)), top(at)))
            leader[high] = low
    positions_by_root: dict[int, list[int]] = defaultdict(list)
    for at in within:
        positions_by_root[top(at)].append(at)
    return tuple(tuple(positions) for _, positions in sorted(positions_by_root.items()))


def _releasable(base: Fleet, levers: Iterable[Lever]) -> frozenset[int]:
    """Return the ids of the hosts of which all the work could go if every lever were part of a plan."""
    freed, released = set[int](), set[int]()
    for lever in levers:
        freed |= lever.freed
        released |= {host.host_id for host in lever.change.diff.released}
    return frozenset(
        host_id
        for host_id, accelerators in base.accelerators_on.items()
        if host_id in released or not (accelerators & base.used_devices) - freed
    )


def _shared(lever: Lever, releasable: frozenset[int], committed: Mapping[int, Unit]) -> Iterator[object]:
    """Yield what a lever may have in common with others whose money it changes."""
    yield from (touched for touched in lever.touches if touched.startswith("service:"))
    for host in sorted(lever.hosts & releasable):
        yield host
        if host in committed:  # how many alike hosts leave decides what a commitment still pays for
            yield committed[host]
