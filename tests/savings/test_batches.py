"""Questions of many computations: the same answers as alone, in fewer calls."""

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from pertoken.savings.batches import MAX_ROUNDS, Batches


class Squares:
    """Answers numbers by their squares, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def answer(self, numbers: Sequence[int]) -> list[int]:
        """Return the square of each number; raise ValueError for a negative one."""
        self.asked.append(list(numbers))
        if any(number < 0 for number in numbers):
            raise ValueError("negative")
        return [number**2 for number in numbers]


def _fourth_power(batches: Batches, answer: Callable[[Sequence[int]], list[int]], number: int) -> int:
    (square,) = batches.ask(("square of", number), lambda: [number], answer)
    (power,) = batches.ask(("square of", square), lambda: [square], answer)
    return power


def test_a_question_outside_of_a_run_is_answered_at_once() -> None:
    batches, squares = Batches(), Squares()
    assert _fourth_power(batches, squares.answer, 3) == 81
    assert squares.asked == [[3], [9]]


def test_the_questions_of_a_run_are_answered_together_and_each_once() -> None:
    batches, squares = Batches(), Squares()
    answer = squares.answer
    assert batches.run(partial(_fourth_power, batches, answer, number) for number in (2, 3, 3, 5)) == [16, 81, 81, 625]
    assert squares.asked == [[2, 3, 5], [4, 9, 25]]
    assert batches.run([]) == []


def test_answers_do_not_outlive_their_run() -> None:
    batches, squares = Batches(), Squares()
    answer = squares.answer
    for _ in range(2):
        assert batches.run([partial(_fourth_power, batches, answer, 2)]) == [16]
    assert squares.asked == [[2], [4], [2], [4]]


def test_only_the_task_whose_question_fails_meets_the_error() -> None:
    batches, squares = Batches(), Squares()
    answer = squares.answer

    def guarded(number: int) -> int | str:
        try:
            return _fourth_power(batches, answer, number)
        except Exception as error:
            return str(error)

    assert batches.run(partial(guarded, number) for number in (2, -1, 3)) == [16, "negative", 81]


def test_an_error_of_a_task_ends_the_run_and_leaves_nothing_behind() -> None:
    batches, squares = Batches(), Squares()
    answer = squares.answer
    with pytest.raises(ValueError, match="negative"):
        batches.run([partial(_fourth_power, batches, answer, number) for number in (2, -1)])
    assert _fourth_power(batches, answer, 2) == 16


def test_a_task_whose_questions_never_repeat_is_answered_in_the_end() -> None:
    batches, squares = Batches(), Squares()
    answer = squares.answer
    runs: list[int] = []

    def changing() -> int:
        runs.append(1)
        return batches.ask((object(),), lambda: [7], answer)[0]

    assert batches.run([changing]) == [49]
    assert len(runs) == MAX_ROUNDS
