"""The search over combinations, with made-up worths: against every order of every subset."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from pertoken.advisor.plan.choose import Chosen, PlanSearch, Rank, Solution, better, by_block, exact, replayed
from tests.examples import examples


@dataclass(frozen=True)
class Worth:
    rank: Rank


@dataclass(frozen=True)
class Table:
    """Worth of each combination of `count` items; None for an impossible one."""

    count: int
    worth: Mapping[Chosen, Rank | None]
    excluded: frozenset[tuple[int, int]]
    before: Mapping[int, int]
    """Item -> the item that has to come before it."""

    def problem(self, allowed: Sequence[int] | None = None) -> PlanSearch:
        def worth(combinations: Sequence[Chosen]) -> list[Worth | None]:
            known = [self.worth.get(combination) if combination else (0, 0) for combination in combinations]
            return [None if value is None else Worth(value) for value in known]

        def follows(chosen: Chosen, item: int) -> bool:
            apart = any((min(other, item), max(other, item)) in self.excluded for other in chosen)
            return not apart and (item not in self.before or self.before[item] in chosen)

        return PlanSearch(worth, follows, lambda item: (item % 3,))

    def best(self, items: Sequence[int]) -> Rank:
        """Return the best rank over every order of every subset."""
        problem, best = self.problem(), (0, 0)
        for order in chain.from_iterable(
            permutations(combination) for size in range(len(items) + 1) for combination in combinations(items, size)
        ):
            if possible(problem, order) and (worth := problem.worth([Chosen(order)])[0]) is not None:
                best = max(best, worth.rank)
        return best


def possible(problem: PlanSearch, order: Sequence[int]) -> bool:
    """Return whether each step of an order can follow on the ones before, and each combination on the way can be."""
    for at, item in enumerate(order):
        before = Chosen(order[:at])
        if not problem.follows(before, item) or problem.worth([before | {item}])[0] is None:
            return False
    return True


@st.composite
def tables(draw: st.DrawFn, largest: int = 5) -> Table:
    count = draw(st.integers(0, largest))
    items = range(count)
    every = [Chosen(combination) for size in range(1, count + 1) for combination in combinations(items, size)]
    ranks = st.none() | st.tuples(st.integers(-20, 20), st.integers(0, 9))
    pairs = list(combinations(items, 2))
    return Table(
        count,
        {item: draw(ranks) for item in every},
        frozenset(draw(st.sets(st.sampled_from(pairs), max_size=2)) if pairs else ()),
        dict(draw(st.lists(st.sampled_from(pairs), max_size=1)) if pairs else ()),
    )


@given(tables())
@settings(max_examples=examples(40), deadline=None)
def test_the_exact_search_finds_the_best_order_of_the_best_subset(table: Table) -> None:
    solution = exact(table.problem(), range(table.count))
    assert solution.rank == table.best(range(table.count))
    assert possible(table.problem(), solution.steps)


@given(tables())
@settings(max_examples=examples(30), deadline=None)
def test_one_more_item_never_lowers_the_exact_result(table: Table) -> None:
    ranks = [exact(table.problem(), range(count)).rank for count in range(table.count + 1)]
    assert ranks == sorted(ranks)


@given(tables())
@settings(max_examples=examples(30), deadline=None)
def test_a_search_by_block_returns_an_order_that_can_be_made(table: Table) -> None:
    problem = table.problem()
    solution = by_block(problem, [[item] for item in range(table.count)])
    assert possible(problem, solution.steps)
    assert solution.rank >= (0, 0) or not solution.steps
    worth = problem.worth([Chosen(solution.steps)])[0]
    assert worth is not None and worth.rank == solution.rank


def plain(values: dict[tuple[int, ...], Rank]) -> PlanSearch:
    return Table(9, {Chosen(key): rank for key, rank in values.items()}, frozenset(), {}).problem()


def test_a_step_that_saves_nothing_is_not_made() -> None:
    assert exact(plain({(0,): (5, 0), (1,): (0, 0), (0, 1): (5, 0)}), (0, 1)).steps == (0,)


def test_a_step_that_costs_now_is_made_where_the_next_one_saves_more() -> None:
    assert exact(plain({(0,): (-3, 0), (0, 1): (4, 0)}), (0, 1)).steps == (0, 1)


def test_capacity_decides_between_combinations_that_take_as_much_off_the_bill() -> None:
    assert exact(plain({(0,): (5, 0), (1,): (5, 2)}), (0, 1)).steps == (1,)


def test_the_step_that_saves_most_comes_first() -> None:
    assert exact(plain({(0,): (1, 0), (1,): (3, 0), (0, 1): (4, 0)}), (0, 1)).steps == (1, 0)


def test_of_equal_steps_the_one_that_asks_less_is_made() -> None:
    assert exact(plain({(1,): (5, 0), (3,): (5, 0)}), (1, 3)).steps == (3,)


def test_a_step_that_can_follow_none_is_left_out_of_an_order() -> None:
    problem = plain({(0,): (1, 0), (0, 1): (2, 0)})
    assert replayed(problem, Chosen((0, 1, 2))).steps == (0, 1)


def test_a_better_combination_is_the_one_that_saves_more() -> None:
    problem = plain({})
    assert better(problem, Solution((0,), (2, 0)), Solution((1,), (1, 9)))
    assert not better(problem, Solution((0,), (1, 0)), Solution((0,), (1, 0)))
