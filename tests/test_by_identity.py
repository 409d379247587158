"""`by_identity`: each result is computed once for the same objects, and never taken for that of others."""

from pertoken.by_identity import MAX_KEPT, by_identity


def test_it_computes_once_for_the_same_objects_and_again_for_equal_ones() -> None:
    asked: list[tuple[str, ...]] = []

    @by_identity
    def joined(one: list[str], other: list[str]) -> tuple[str, ...]:
        asked.append((*one, *other))
        return asked[-1]

    one, other = ["a"], ["b"]
    assert joined(one, other) == joined(one, other) == ("a", "b")
    assert joined(["a"], other) == ("a", "b")
    assert joined(other, one) == ("b", "a")
    assert len(asked) == 3


def test_results_of_objects_that_nobody_else_keeps_are_not_mixed_up() -> None:
    @by_identity
    def length(values: list[int]) -> int:
        return len(values)

    for n in range(2 * MAX_KEPT):
        assert length([0] * (n % 7)) == n % 7
