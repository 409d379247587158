"""Conflicts between levers, independent of their savings."""

from collections.abc import Sequence

from pertoken.advisor.plan.levers.lever import Lever
from pertoken.advisor.plan.reapply import reapplied
from pertoken.state.knobs import InvalidEdit

Conflicts = dict[tuple[int, int], str]
"""Pairs of positions of levers that cannot be in one plan, in both orders, with the reason."""


def conflicts(levers: Sequence[Lever]) -> Conflicts:
    """Return the pairs of levers that cannot be in one plan."""
    reasons: Conflicts = {}
    for at, one in enumerate(levers):
        for beside in range(at + 1, len(levers)):
            reason = conflict(one, levers[beside])
            if reason is not None:
                reasons[at, beside] = reasons[beside, at] = reason
    return reasons


def conflict(one: Lever, other: Lever) -> str | None:
    """Return why two levers cannot be in one plan; None if they can."""
    if one.key[:3] == other.key[:3]:
        return "they are alternatives of one recommendation"
    on_hosts = one.hosts | one.committed, other.hosts | other.committed
    if not (one.touches & other.touches or on_hosts[0] & on_hosts[1]):
        return None
    for stated, beside in ((one, other), (other, one)):
        if beside.row.rule_id in stated.variant.excludes:
            return f"{stated.row.rule_id} excludes {beside.row.rule_id}"
        if stated.committed & beside.committed:
            return "they commit to the same instances"
        if stated.committed & beside.hosts:
            return "one commits for years to instances that the other may release"
        if stated.is_schedule and stated.hosts & beside.hosts and not _of_one_service(stated, beside):
            return (
                "a schedule and another change on the same hosts are not priced together: apply one, then run "
                "`pertoken advise` again"
            )
    clashes = [_clash(one, other), _clash(other, one)]
    return clashes[0] if None not in clashes else None  # it is enough if they combine in one order


def _of_one_service(one: Lever, other: Lever) -> bool:
    """Return whether both change the same single service, whose parts are priced together."""
    services = [{name for name in lever.touches if name.startswith("service:")} for lever in (one, other)]
    return len(services[0]) == 1 and services[0] == services[1] and not other.change.diff.released


def _clash(first: Lever, second: Lever) -> str | None:
    """Return why the second cannot be applied after the first."""
    try:
        after = reapplied(first.base, second.change.after, first.change.after, second.name)
    except InvalidEdit as error:
        return str(error)
    return "the first already includes the second" if after == first.change.after else None
