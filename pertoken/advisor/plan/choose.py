"""Choice of the levers of a plan: search in each group, for each possible set of commitments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import inf, isinf
from typing import Protocol

from pertoken.advisor.plan.levers import Conflicts, Lever, groups
from pertoken.advisor.plan.plan import EFFORTS
from pertoken.advisor.plan.states import LeverStates, PowerBudget, UnknownPower
from pertoken.rule import RISKS
from pertoken.savings.saving import Saving

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
class PlanSearch:
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


def exact(problem: PlanSearch, items: Iterable[int], start: Chosen = frozenset()) -> Solution:
    """Return the best combination of these items in addition to `start`; every combination is tried."""
    reached = _reached(problem, sorted(items), start)
    best = max(reached, key=lambda combination: _order(problem, combination, reached[combination]))
    return Solution(_steps(problem, best, start, reached), reached[best])


def by_block(problem: PlanSearch, blocks: Iterable[Sequence[int]], start: Chosen = frozenset()) -> Solution:
    """Return a good combination of many items: search each block with the others fixed, until nothing improves.

    A block has the items that interact most. The combination contains `start`, which is in no block.
    """
    parts = [block[offset : offset + MAX_BLOCK] for block in blocks for offset in range(0, len(block), MAX_BLOCK)]
    alone = exact(problem, (), start)
    chosen, rank = start, alone.rank
    for _ in range(MAX_SWEEPS):
        previous = chosen
        for part in parts:
            rest = chosen - set(part)
            if rest == chosen or problem.worth([rest])[0] is not None:
                solution = exact(problem, part, rest)
                if solution.rank >= rank:
                    chosen, rank = rest | set(solution.steps), solution.rank
        if chosen == previous:
            break
    made = replayed(problem, chosen, start)
    return made if made.rank >= alone.rank else replace(alone, exact=False)


def replayed(problem: PlanSearch, chosen: Chosen, start: Chosen = frozenset()) -> Solution:
    """Return an order of a combination that takes the largest saving at each step; impossible items are left out.

    The steps follow `start`.
    """
    steps: list[int] = []
    taken, rank = start, exact(problem, (), start).rank
    while candidates := [item for item in sorted(chosen - taken) if problem.follows(taken, item)]:
        worth = problem.worth([taken | {item} for item in candidates])
        priced = [
            (value.rank, -candidate) for candidate, value in zip(candidates, worth, strict=True) if value is not None
        ]
        if not priced:
            break
        rank, item = max(priced)
        steps.append(-item)
        taken |= {-item}
    return Solution(tuple(steps), rank, exact=False)


def better(problem: PlanSearch, first: Solution, second: Solution) -> bool:
    """Return whether `first` is better than `second`."""
    return _order(problem, Chosen(first.steps), first.rank) > _order(problem, Chosen(second.steps), second.rank)


def _reached(problem: PlanSearch, items: Sequence[int], start: Chosen) -> dict[Chosen, Rank]:
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
        extended = {
            combination: value.rank
            for combination, value in zip(combinations, problem.worth(combinations), strict=True)
            if value is not None
        }
        reached |= extended
        wave = list(extended)
    return reached


def _order(problem: PlanSearch, chosen: Chosen, rank: Rank) -> tuple[object, ...]:
    """Return the sort key of a combination: worth, then least effort, then the first positions."""
    costs = [problem.cost(item) for item in chosen]
    return (
        rank,
        -len(chosen),
        tuple(-sum(cost) for cost in zip(*costs, strict=True)),
        [-index for index in sorted(chosen)],
    )


def _steps(problem: PlanSearch, best: Chosen, start: Chosen, reached: Mapping[Chosen, Rank]) -> tuple[int, ...]:
    """Return an order that reaches a combination: at each step the largest saving that can still reach it."""
    leads, wave = {best}, [best]
    while wave:
        taken = wave.pop()
        for item in taken - start:
            previous = taken - {item}
            if previous in reached and previous not in leads and problem.follows(previous, item):
                leads.add(previous)
                wave.append(previous)
    steps: list[int] = []
    taken = start
    while taken != best:
        following = [item for item in sorted(best - taken) if taken | {item} in leads and problem.follows(taken, item)]
        steps.append(max(following, key=lambda candidate: (reached[taken | {candidate}], -candidate)))
        taken |= {steps[-1]}
    return tuple(steps)


MAX_COMMITMENTS = 64
"""Maximum sets of commitments to try."""
MAX_WITHOUT = 64
"""Maximum subsets of rules to leave out in repeated searches of a large group; with more, one rule at a time."""
_EFFORTS = tuple(EFFORTS.values())


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """Steps of each group in order; the group that saves most comes first, commitments last."""

    groups: tuple[tuple[int, ...], ...]
    exact: bool


class Chooser:
    """Searches the groups of a set of levers for the best plan."""

    def __init__(
        self, states: LeverStates, clashes: Conflicts, power: PowerBudget | None = None, accepted: Sequence[int] = ()
    ) -> None:
        """`accepted`: levers that a person accepted, in that order; every plan has those that apply together."""
        self._states = states
        self._levers: Sequence[Lever] = states.levers
        self._clashes = clashes
        self._power = power
        self._solutions: dict[tuple[tuple[int, ...], float], Solution] = {}
        self._watts_left = inf if power is None else power.headroom_w
        """Remaining power budget while groups are solved, watts."""
        self.problem = PlanSearch(self._worth, self._follows, self._cost)
        self.accepted: tuple[int, ...] = ()
        for index in accepted:
            chosen = Chosen(self.accepted)
            if self._follows(chosen, index) and states.worth([chosen | {index}])[0] is not None:
                self.accepted += (index,)

    def choice(self) -> PlanChoice:
        """Return the best plan over all sets of commitments."""
        indices = range(len(self._levers))
        commitments = [index for index in indices if self._levers[index].is_commitment]
        other_levers = [index for index in indices if index not in commitments]
        best: tuple[tuple[object, ...], list[Solution]] | None = None
        for committed in self._commitments(commitments):
            compatible = [
                index
                for index in other_levers
                if not any((index, taken) in self._clashes for taken in (*committed, *self.accepted))
            ]
            solutions = self._within_power(self._groups(compatible))
            solutions += [self.solved([commitment]) for commitment in committed]
            total = [sum(solution.rank[end] for solution in solutions) for end in range(2)]
            steps = sum(len(solution.steps) for solution in solutions)
            order = (*total, -steps)
            if best is None or order > best[0]:
                best = order, solutions
        assert best is not None
        in_order = sorted(
            best[1],
            key=lambda solution: (
                any(index in commitments for index in solution.steps),
                [-value for value in solution.rank],
                solution.steps,
            ),
        )
        return PlanChoice(
            tuple(solution.steps for solution in in_order if solution.steps),
            all(solution.exact for solution in best[1]),
        )

    def solved(self, items: Sequence[int]) -> Solution:
        """Return the best combination of one group within the remaining power budget, its accepted steps first."""
        accepted = self._accepted_of(items)
        group = tuple(index for index in items if index not in accepted)
        key = (*accepted, *group), self._watts_left
        if key not in self._solutions:
            is_small = len(group) <= MAX_EXACT
            best = exact(self.problem, group, Chosen(accepted)) if is_small else self._large(group, Chosen(accepted))
            self._solutions[key] = replace(best, steps=(*accepted, *best.steps))
        return self._solutions[key]

    def _accepted_of(self, items: Iterable[int]) -> tuple[int, ...]:
        """Return the accepted levers among these, in their order."""
        among = set(items)
        return tuple(index for index in self.accepted if index in among)

    def _within_power(self, level_groups: Sequence[Sequence[int]]) -> list[Solution]:
        """Return the best combination of each group, together within the power budget.

        The group that saves most takes power first. Power that a group releases is not spent again, so that the
        budget holds after each step, in any order.
        """
        separate = [self.solved(group) for group in level_groups]
        budget_w = self._watts_left
        if isinf(budget_w) or sum(self._watts(solution) for solution in separate) <= budget_w:
            return separate
        solved: dict[int, Solution] = {}
        for index in sorted(
            range(len(level_groups)), key=lambda number: (*(-end for end in separate[number].rank), number)
        ):
            kept = self.solved(level_groups[index])
            solved[index] = kept if kept == separate[index] else replace(kept, exact=False)
            self._watts_left -= self._watts(kept)
        self._watts_left = budget_w
        return [solved[index] for index in range(len(level_groups))]

    def _watts(self, solution: Solution) -> float:
        return self._added_w(Chosen(solution.steps))

    def _worth(self, combinations: Sequence[Chosen]) -> list[Saving | None]:
        """Return the worth of combinations; None for one that needs more than the remaining power."""
        worth = self._states.worth(combinations)
        if self._power is None:
            return worth
        return [
            value if value is not None and self._added_w(chosen, inf) <= self._watts_left else None
            for chosen, value in zip(combinations, worth, strict=True)
        ]

    def _added_w(self, chosen: Chosen, unknown: float = 0.0) -> float:
        """Return the additional watts that devices may draw after a combination; `unknown` if not computable."""
        if self._power is None or not chosen:
            return 0.0
        try:
            return max(0.0, self._power.added_w(self._states.composed(chosen), self._states.price(chosen)))
        except UnknownPower:
            return unknown

    def over_power(self, chosen: Chosen, beside: Sequence[Sequence[int]]) -> str | None:
        """Return the reason why the power budget refuses a combination beside chosen groups, None if it permits it."""
        if self._power is None or self._states.worth([chosen])[0] is None:
            return None
        added = self._added_w(chosen, inf)
        others = sum(self._added_w(Chosen(group)) for group in beside if not chosen & set(group))
        headroom_w = self._power.headroom_w - others
        return None if added <= headroom_w else self._power.refusal(None if isinf(added) else added, headroom_w)

    def _large(self, items: tuple[int, ...], accepted: Chosen) -> Solution:
        """Return a good combination of a group that is too large to try all combinations, after its accepted steps.

        It is at least as good as the result without any single rule.
        """
        best = by_block(self.problem, self._blocks(items), accepted)
        rules = sorted({self._levers[index].row.rule_id for index in items})
        deep = 2 ** len(rules) <= MAX_WITHOUT
        for rule_id in rules if len(rules) > 1 else ():
            others = [index for index in items if self._levers[index].row.rule_id != rule_id]
            parts = [
                self.solved(group) if deep else self._shallow(group) for group in self._groups([*others, *accepted])
            ]
            alternative = replayed(self.problem, Chosen(index for part in parts for index in part.steps), accepted)
            if better(self.problem, alternative, best):
                best = alternative
        return replace(best, exact=False)

    def _shallow(self, items: Sequence[int]) -> Solution:
        if len(items) <= MAX_EXACT:
            return self.solved(items)
        accepted = Chosen(self._accepted_of(items))
        return by_block(self.problem, self._blocks(index for index in items if index not in accepted), accepted)

    def _groups(self, items: Sequence[int]) -> list[list[int]]:
        """Return groups of these levers, by their positions among all levers."""
        positions = groups(self._states.base, [self._levers[index] for index in items])
        return [[items[index] for index in group] for group in positions]

    def _blocks(self, items: Iterable[int]) -> list[list[int]]:
        """Return blocks of a large group: levers of the same services, then levers that may free the same host."""
        by_service: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for index in items:
            by_service[tuple(sorted(self._levers[index].touches))].append(index)
        by_host: dict[int, list[list[int]]] = defaultdict(list)
        for _, positions in sorted(by_service.items()):
            for host in sorted({host for index in positions for host in self._levers[index].hosts}):
                by_host[host].append([index for index in positions if host in self._levers[index].hosts])
        # Levers of all services alternate, because a block that is too long is cut.
        together = [
            [index for row in zip_longest(*services) for index in row if index is not None]
            for services in by_host.values()
        ]
        return [
            *(positions for _, positions in sorted(by_service.items())),
            *(block for block in together if len(block) > 1),
        ]

    def _commitments(self, commitments: Sequence[int]) -> list[tuple[int, ...]]:
        """Return sets of compatible commitments, the empty set first."""
        combinations: list[tuple[int, ...]] = [self._accepted_of(commitments)]
        for index in commitments:
            if (
                index not in combinations[0]
                and self._follows(Chosen(), index)
                and self._worth([Chosen({index})])[0] is not None
            ):
                combinations += [
                    (*combination, index)
                    for combination in combinations
                    if not any((index, member) in self._clashes for member in combination)
                ]
            if len(combinations) >= MAX_COMMITMENTS:
                break
        return combinations

    def _follows(self, chosen: Chosen, index: int) -> bool:
        if any((chosen_index, index) in self._clashes for chosen_index in chosen):
            return False
        return self.missing(chosen, index) is None and self._states.extend(chosen, index)

    def missing(self, chosen: Chosen, index: int) -> str | None:
        """Return the id of a rule that a lever requires and that is not applied; None if there is none."""
        lever = self._levers[index]
        levers = [self._levers[chosen_index] for chosen_index in chosen]
        for rule_id in lever.variant.requires:
            if not any(taken.row.rule_id == rule_id and taken.touches & lever.touches for taken in levers):
                return rule_id
        return None

    def _cost(self, index: int) -> tuple[int, ...]:
        lever = self._levers[index]
        return _EFFORTS.index(lever.effort), RISKS.index(lever.variant.risk)
