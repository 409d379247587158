"""Choose the levers of a plan: group by group, for each set of commitments that can be made beside them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import inf, isinf

from pertoken.advisor.plan import search
from pertoken.advisor.plan.levers.conflicts import Conflicts
from pertoken.advisor.plan.levers.groups import groups
from pertoken.advisor.plan.levers.lever import Lever
from pertoken.advisor.plan.plan import EFFORTS
from pertoken.advisor.plan.power import PowerBudget, UnknownPower
from pertoken.advisor.plan.search import (
    Chosen,
    Found,
    Problem,
    better,
    by_block,
    exact,
    replayed,
)
from pertoken.advisor.plan.states import States, Worth
from pertoken.rule import RISKS

MAX_COMMITMENTS = 64
"""Sets of commitments that are looked at."""
MAX_WITHOUT = 64
"""Sets of rules without which a larger group is searched again; of a group with more sets, each rule alone."""
_EFFORTS = tuple(EFFORTS.values())


@dataclass(frozen=True, slots=True)
class Choice:
    """Steps of each group in their order, the group that saves most first, commitments last."""

    groups: tuple[tuple[int, ...], ...]
    exact: bool


class Chooser:
    """Searches the groups of a set of levers."""

    def __init__(self, states: States, clashes: Conflicts, power: PowerBudget | None = None) -> None:
        self._states = states
        self._levers: Sequence[Lever] = states.levers
        self._clashes = clashes
        self._power = power
        self._found: dict[tuple[tuple[int, ...], float], Found] = {}
        self._watts_left = inf if power is None else power.headroom_w
        """What a combination may add to the power of devices: the rest of the budget, while groups are solved."""
        self.problem = Problem(self._worth, self._follows, self._cost)

    def choice(self) -> Choice:
        """Return the best plan over all sets of commitments."""
        everything = range(len(self._levers))
        wide = [at for at in everything if self._levers[at].is_commitment]
        narrow = [at for at in everything if at not in wide]
        best: tuple[tuple[object, ...], list[Found]] | None = None
        for made in self._commitments(wide):
            beside = [at for at in narrow if not any((at, each) in self._clashes for each in made)]
            found = self._within_power(self._groups(beside))
            found += [exact(self.problem, [each]) for each in made]
            total = [sum(each.rank[end] for each in found) for end in range(2)]
            steps = sum(len(each.steps) for each in found)
            order = (*total, -steps)
            if best is None or order > best[0]:
                best = order, found
        assert best is not None
        made_last = sorted(best[1], key=lambda each: (self._is_made(each), [-at for at in each.rank], each.steps))
        return Choice(tuple(each.steps for each in made_last if each.steps), all(each.exact for each in best[1]))

    def solved(self, items: Sequence[int]) -> Found:
        """Return the best combination of one group that the rest of the power budget allows."""
        group = tuple(items)
        key = group, self._watts_left
        if key not in self._found:
            self._found[key] = exact(self.problem, group) if len(group) <= search.MAX_EXACT else self._large(group)
        return self._found[key]

    def _within_power(self, some: Sequence[Sequence[int]]) -> list[Found]:
        """Return the best combination of each group, together within the power budget.

        The group that saves most is served first. What another one lowers is not spent again, so that the budget holds
        after each step, whatever their order.
        """
        alone = [self.solved(each) for each in some]
        whole = self._watts_left
        if isinf(whole) or sum(self._watts(each) for each in alone) <= whole:
            return alone
        found: dict[int, Found] = {}
        for at in sorted(range(len(some)), key=lambda each: (*(-end for end in alone[each].rank), each)):
            kept = self.solved(some[at])
            found[at] = kept if kept == alone[at] else replace(kept, exact=False)
            self._watts_left -= self._watts(kept)
        self._watts_left = whole
        return [found[at] for at in range(len(some))]

    def _watts(self, found: Found) -> float:
        return self._added_w(Chosen(found.steps))

    def _worth(self, some: Sequence[Chosen]) -> list[Worth | None]:
        """Return what combinations are worth, those that need more power than is left as None."""
        worth = self._states.worth(some)
        if self._power is None:
            return worth
        return [
            each if each is not None and self._added_w(chosen, inf) <= self._watts_left else None
            for chosen, each in zip(some, worth, strict=True)
        ]

    def _added_w(self, chosen: Chosen, unknown: float = 0.0) -> float:
        """Return what devices may draw more after a combination, watts; `unknown` where that is not known."""
        if self._power is None or not chosen:
            return 0.0
        try:
            return max(0.0, self._power.added_w(self._states.composed(chosen), self._states.price(chosen)))
        except UnknownPower:
            return unknown

    def over_power(self, chosen: Chosen, beside: Sequence[Sequence[int]]) -> str | None:
        """Return why the power budget refuses a combination beside groups that were chosen; None if it allows it."""
        if self._power is None or self._states.worth([chosen])[0] is None:
            return None
        added = self._added_w(chosen, inf)
        others = sum(self._added_w(Chosen(each)) for each in beside if not chosen & set(each))
        left = self._power.headroom_w - others
        return None if added <= left else self._power.refusal(None if isinf(added) else added, left)

    def _large(self, items: tuple[int, ...]) -> Found:
        """Return a good combination of a group too large to look at every one.

        It is no worse than what is found without any one of its rules.
        """
        best = by_block(self.problem, self._blocks(items))
        rules = sorted({self._levers[at].row.rule_id for at in items})
        deep = 2 ** len(rules) <= MAX_WITHOUT
        for rule_id in rules if len(rules) > 1 else ():
            left = [at for at in items if self._levers[at].row.rule_id != rule_id]
            parts = [self.solved(each) if deep else self._shallow(each) for each in self._groups(left)]
            other = replayed(self.problem, Chosen(at for each in parts for at in each.steps))
            if better(self.problem, other, best):
                best = other
        return replace(best, exact=False)

    def _shallow(self, items: Sequence[int]) -> Found:
        if len(items) <= search.MAX_EXACT:
            return self.solved(items)
        return by_block(self.problem, self._blocks(items))

    def _groups(self, items: Sequence[int]) -> list[list[int]]:
        """Return groups of some levers, by their positions among all."""
        found = groups(self._states.base, [self._levers[at] for at in items])
        return [[items[at] for at in each] for each in found]

    def _blocks(self, items: Iterable[int]) -> list[list[int]]:
        """Return the levers of a large group by what they change, then by the hosts that they may empty together."""
        by_service: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for at in items:
            by_service[tuple(sorted(self._levers[at].touches))].append(at)
        by_host: dict[int, list[list[int]]] = defaultdict(list)
        for _, some in sorted(by_service.items()):
            for host in sorted({host for at in some for host in self._levers[at].hosts}):
                by_host[host].append([at for at in some if host in self._levers[at].hosts])
        # The first levers of each service come first: a block that is too long is cut.
        together = [[at for row in zip_longest(*some) for at in row if at is not None] for some in by_host.values()]
        return [*(each for _, each in sorted(by_service.items())), *(each for each in together if len(each) > 1)]

    def _commitments(self, wide: Sequence[int]) -> list[tuple[int, ...]]:
        """Return sets of commitments that can be made beside each other, none first."""
        found: list[tuple[int, ...]] = [()]
        for at in wide:
            if self._follows(Chosen(), at) and self._worth([Chosen({at})])[0] is not None:
                found += [(*each, at) for each in found if not any((at, other) in self._clashes for other in each)]
            if len(found) >= MAX_COMMITMENTS:
                break
        return found

    def _is_made(self, found: Found) -> bool:
        return any(self._levers[at].is_commitment for at in found.steps)

    def _follows(self, chosen: Chosen, at: int) -> bool:
        if any((each, at) in self._clashes for each in chosen):
            return False
        return self.missing(chosen, at) is None and self._states.extend(chosen, at)

    def missing(self, chosen: Chosen, at: int) -> str | None:
        """Return the rule that has to be applied before a lever and is not; None if there is none."""
        lever = self._levers[at]
        there = [self._levers[each] for each in chosen]
        for rule_id in lever.variant.requires:
            if not any(each.row.rule_id == rule_id and each.touches & lever.touches for each in there):
                return rule_id
        return None

    def _cost(self, at: int) -> tuple[int, ...]:
        lever = self._levers[at]
        return _EFFORTS.index(lever.effort), RISKS.index(lever.variant.risk)
