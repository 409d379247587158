"""Search for the best combination of levers and an order in which each step is possible after the earlier ones.

The search knows nothing about fleets. Its callbacks price combinations in batches, and decide whether a lever may
follow a combination. A combination is reachable if every combination on one path to it can be in a plan.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

MAX_EXACT = 12
"""Maximum levers of a group for which every combination is tried."""
MAX_BLOCK = 8
"""Levers of a larger group that are searched together while the others stay fixed."""
MAX_SWEEPS = 4
"""Maximum passes over the blocks of a larger group."""
Chosen = frozenset[int]
Rank = tuple[int, int]
NO_RANK: Rank = (0, 0)


class Ranked(Protocol):
    """Worth of a combination."""

    @property
    def rank(self) -> Rank:
        """Larger is better; (0, 0) is the rank of no change."""
        ...


@dataclass(frozen=True)
class Problem:
    """Callbacks of the search."""

    worth: Callable[[Sequence[Chosen]], Sequence[Ranked | None]]
    """Return the worth of combinations; None for one that cannot be in a plan."""
    follows: Callable[[Chosen, int], bool]
    """Return whether a lever can be applied after a combination."""
    cost: Callable[[int], tuple[int, ...]]
    """Return the effort and risk of a lever: of equal combinations the one with the lower sum is better."""


@dataclass(frozen=True)
class Solution:
    """The best combination, as steps in order."""

    steps: tuple[int, ...] = ()
    rank: Rank = NO_RANK
    exact: bool = True


def exact(problem: Problem, items: Iterable[int], start: Chosen = frozenset()) -> Solution:
    """Return the best combination of these items in addition to `start`; every combination is tried."""
    reached = _reached(problem, sorted(items), start)
    best = max(reached, key=lambda combination: _order(problem, combination, reached[combination]))
    return Solution(_steps(problem, best, start, reached), reached[best])


def by_block(problem: Problem, blocks: Iterable[Sequence[int]], start: Chosen = frozenset()) -> Solution:
    """Return a good combination of many items: search each block with the others fixed, until nothing improves.

    A block has the items that interact most. The combination contains `start`, which is in no block.
    """
    parts = [block[at : at + MAX_BLOCK] for block in blocks for at in range(0, len(block), MAX_BLOCK)]
    alone = exact(problem, (), start)
    chosen, rank = start, alone.rank
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
    made = replayed(problem, chosen, start)
    return made if made.rank >= alone.rank else replace(alone, exact=False)


def replayed(problem: Problem, chosen: Chosen, start: Chosen = frozenset()) -> Solution:
    """Return an order of a combination that takes the largest saving at each step; impossible items are left out.

    The steps follow `start`.
    """
    steps: list[int] = []
    at, rank = start, exact(problem, (), start).rank
    while left := [item for item in sorted(chosen - at) if problem.follows(at, item)]:
        worth = problem.worth([at | {item} for item in left])
        known = [(value.rank, -candidate) for candidate, value in zip(left, worth, strict=True) if value is not None]
        if not known:
            break
        rank, item = max(known)
        steps.append(-item)
        at |= {-item}
    return Solution(tuple(steps), rank, exact=False)


def better(problem: Problem, one: Solution, other: Solution) -> bool:
    """Return whether `one` is better than `other`."""
    return _order(problem, Chosen(one.steps), one.rank) > _order(problem, Chosen(other.steps), other.rank)


def _reached(problem: Problem, items: Sequence[int], start: Chosen) -> dict[Chosen, Rank]:
    """Return all reachable combinations with their rank, found breadth-first."""
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
            combination: value.rank
            for combination, value in zip(combinations, problem.worth(combinations), strict=True)
            if value is not None
        }
        reached |= known
        wave = list(known)
    return reached


def _order(problem: Problem, chosen: Chosen, rank: Rank) -> tuple[object, ...]:
    """Return the sort key of a combination: worth, then least effort, then the first positions."""
    costs = [problem.cost(item) for item in chosen]
    return rank, -len(chosen), tuple(-sum(cost) for cost in zip(*costs, strict=True)), [-at for at in sorted(chosen)]


def _steps(problem: Problem, best: Chosen, start: Chosen, reached: Mapping[Chosen, Rank]) -> tuple[int, ...]:
    """Return an order that reaches a combination: at each step the largest saving that can still reach it."""
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
