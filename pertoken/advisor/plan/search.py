"""Search for the best combination of levers and an order in which each step stands on the one before.

The search knows nothing of fleets. It asks what a combination is worth, many at once, and which lever may follow on
which combination. A combination is reached when every combination on one way to it can be in a plan.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

MAX_EXACT = 12
"""Levers of a group up to which every combination is looked at."""
MAX_BLOCK = 8
"""Levers of a larger group that are searched at once, while the rest of the plan stays."""
MAX_SWEEPS = 4
"""Times that a larger group is gone through, block by block."""
Chosen = frozenset[int]
Rank = tuple[int, int]
NO_RANK: Rank = (0, 0)


class Ranked(Protocol):
    """What a combination is worth."""

    @property
    def rank(self) -> Rank:
        """Larger is better; (0, 0) is what no change at all is worth."""
        ...


@dataclass(frozen=True)
class Problem:
    """What the search asks."""

    worth: Callable[[Sequence[Chosen]], Sequence[Ranked | None]]
    """What combinations are worth; None for one that cannot be in a plan."""
    follows: Callable[[Chosen, int], bool]
    """Whether a lever can be applied after a combination."""
    cost: Callable[[int], tuple[int, ...]]
    """What a lever asks of people: of equal combinations the one that asks less is better."""


@dataclass(frozen=True)
class Solution:
    """The best combination, as steps in their order."""

    steps: tuple[int, ...] = ()
    rank: Rank = NO_RANK
    exact: bool = True


def exact(problem: Problem, items: Iterable[int], start: Chosen = frozenset()) -> Solution:
    """Return the best combination of these items on top of `start`, every one looked at."""
    reached = _reached(problem, sorted(items), start)
    best = max(reached, key=lambda combination: _order(problem, combination, reached[combination]))
    return Solution(_steps(problem, best, start, reached), reached[best])


def by_block(problem: Problem, blocks: Iterable[Sequence[int]]) -> Solution:
    """Return a good combination of many items: each block is searched while the rest stays, until nothing improves.

    A block holds items that act on each other most.
    """
    parts = [block[at : at + MAX_BLOCK] for block in blocks for at in range(0, len(block), MAX_BLOCK)]
    chosen, rank = Chosen(), NO_RANK
    for _ in range(MAX_SWEEPS):
        before = chosen
        for part in parts:
            rest = chosen - set(part)
            if rest == chosen or problem.worth([rest])[0] is not None:
                solution = exact(problem, part, rest)
                if solution.rank >= rank:
                    chosen, rank = rest | set(solution.steps), solution.rank
        if chosen == before:
            break
    made = replayed(problem, chosen)
    return made if made.rank >= NO_RANK else Solution(exact=False)


def replayed(problem: Problem, chosen: Chosen) -> Solution:
    """Return an order of a combination: at each step what saves most; what can follow on nothing is left out."""
    steps: list[int] = []
    at, rank = Chosen(), NO_RANK
    while left := [item for item in sorted(chosen - at) if problem.follows(at, item)]:
        worth = problem.worth([at | {item} for item in left])
        known = [(its.rank, -candidate) for candidate, its in zip(left, worth, strict=True) if its is not None]
        if not known:
            break
        rank, item = max(known)
        steps.append(-item)
        at |= {-item}
    return Solution(tuple(steps), rank, exact=False)


def better(problem: Problem, one: Solution, other: Solution) -> bool:
    """Return whether one combination is better than another."""
    return _order(problem, Chosen(one.steps), one.rank) > _order(problem, Chosen(other.steps), other.rank)


def _reached(problem: Problem, items: Sequence[int], start: Chosen) -> dict[Chosen, Rank]:
    """Return all combinations that can be reached, wave by wave, with their rank."""
    first = problem.worth([start])[0]
    reached = {start: first.rank if first is not None else NO_RANK}
    wave = [start]
    while wave:
        following = {
            combination | {item}
            for combination in wave
            for item in items
            if item not in combination and problem.follows(combination, item)
        }
        combinations = sorted(following, key=sorted)
        known = {
            combination: its.rank
            for combination, its in zip(combinations, problem.worth(combinations), strict=True)
            if its is not None
        }
        reached |= known
        wave = list(known)
    return reached


def _order(problem: Problem, chosen: Chosen, rank: Rank) -> tuple[object, ...]:
    """Order of combinations: worth, then less to do, then the first by key."""
    costs = [problem.cost(item) for item in chosen]
    return rank, -len(chosen), tuple(-sum(cost) for cost in zip(*costs, strict=True)), [-at for at in sorted(chosen)]


def _steps(problem: Problem, best: Chosen, start: Chosen, reached: Mapping[Chosen, Rank]) -> tuple[int, ...]:
    """Return an order that leads to a combination: at each step what saves most of what still leads there."""
    leads, wave = {best}, [best]
    while wave:
        at = wave.pop()
        for item in at - start:
            before = at - {item}
            if before in reached and before not in leads and problem.follows(before, item):
                leads.add(before)
                wave.append(before)
    steps: list[int] = []
    at = start
    while at != best:
        following = [item for item in sorted(best - at) if at | {item} in leads and problem.follows(at, item)]
        steps.append(max(following, key=lambda candidate: (reached[at | {candidate}], -candidate)))
        at |= {steps[-1]}
    return tuple(steps)
