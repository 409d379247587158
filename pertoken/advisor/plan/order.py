"""Order of the steps of a plan as a person wants it."""

from collections.abc import Sequence

from pertoken.advisor.plan.search import Chosen, Problem


def in_order(groups: Sequence[Sequence[int]], wanted: Sequence[int], problem: Problem) -> tuple[int, ...]:
    """Return the levers of all groups: the wanted ones first in that order, then the others in search order.

    A lever that cannot be applied yet waits until it can. If no such order applies all levers, the search order stays.
    """
    ordered = tuple(at for group in groups for at in group)
    if not wanted:
        return ordered
    group_of = {at: number for number, group in enumerate(groups) for at in group}
    made = [Chosen()] * len(groups)
    left = [*(at for at in wanted if at in group_of), *(at for at in ordered if at not in wanted)]
    order: list[int] = []
    while left:
        at = next((candidate for candidate in left if _can_follow(problem, made[group_of[candidate]], candidate)), None)
        if at is None:
            return ordered
        left.remove(at)
        order.append(at)
        made[group_of[at]] |= {at}
    return tuple(order)


def _can_follow(problem: Problem, made: Chosen, at: int) -> bool:
    return problem.follows(made, at) and problem.worth([made | {at}])[0] is not None
