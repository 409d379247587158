"""Split levers into groups with independent savings.

The savings of two levers add up unless they change the same service, or may free the same host together: only a whole
host leaves the bill. A host joins the levers that act on it only if all of its deployments could move away.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pertoken.advisor.plan.levers.lever import Lever
from pertoken.advisor.plan.levers.reach import covers
from pertoken.state.fleet import Fleet

Unit = tuple[str | None, str | None]
"""Provider and instance type of hosts."""


def groups(base: Fleet, levers: Sequence[Lever]) -> tuple[tuple[int, ...], ...]:
    """Return the positions of levers by group, in order, groups sorted by their first lever.

    Levers that only make commitments are in no group: conflicts describe all their interactions.
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
    """Return the ids of the hosts that could become free if every lever were part of a plan."""
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
    """Yield keys of subjects that a lever touches: levers with a common key are in one group."""
    yield from (touched for touched in lever.touches if touched.startswith("service:"))
    for host in sorted(lever.hosts & releasable):
        yield host
        if host in committed:  # the number of released hosts of a kind determines the use of its commitment
            yield committed[host]
