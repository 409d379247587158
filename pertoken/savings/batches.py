"""Questions of many computations, answered in batches: a batch of numpy rows takes little longer than one row.

A computation asks for what it needs while it runs. Where the answer is not known yet, it is broken off, and run again
once the questions of all computations were answered together.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
Q = TypeVar("Q")
A = TypeVar("A")

MAX_ROUNDS = 16
"""Times that a computation is run; in the last one its questions are answered at once, one by one."""


class Postponed(BaseException):
    """The answer is not known yet. Not an `Exception`, so that no handler of errors takes it for one."""


@dataclass
class _Group:
    """Open questions that one function answers."""

    answer: Callable[[Sequence[Any]], Sequence[Any]]
    questions: dict[tuple[object, ...], Sequence[Any]] = field(default_factory=dict)


class Batches:
    """Questions and their answers. Outside of `run`, each question is answered when it is asked."""

    def __init__(self) -> None:
        self._postpones = False
        self._open: dict[tuple[object, ...], _Group] = {}
        self._answers: dict[tuple[object, ...], Sequence[Any]] = {}
        self._unanswered: set[tuple[object, ...]] = set()
        self._alive: list[object] = []
        """Subjects of questions, so that no identity is reused."""

    def ask(
        self,
        about: Sequence[object],
        questions: Callable[[], Sequence[Q]],
        answer: Callable[..., Sequence[A]],
        *given: object,
    ) -> Sequence[A]:
        """Return `answer(questions(), *given)`.

        `about` names the questions: numbers, text and tuples by their values, anything else by its identity. The same
        names must always stand for the same questions. Raises Postponed in a `run`.
        """
        if not self._postpones:
            return answer(questions(), *given)
        group = (answer, *map(_name, given))
        key = (*group, *map(_name, about))
        if key in self._answers:
            return self._answers[key]
        if key in self._unanswered:
            return answer(questions(), *given)
        self._alive += [*about, *given]
        self._open.setdefault(group, _Group(lambda asked: answer(asked, *given))).questions[key] = questions()
        raise Postponed

    def run(self, tasks: Iterable[Callable[[], T]]) -> list[T]:
        """Return the results of tasks, their questions answered together. A task may be run several times."""
        left = dict(enumerate(tasks))
        results: dict[int, T] = {}
        try:
            for number in range(MAX_ROUNDS):
                self._postpones = number < MAX_ROUNDS - 1
                for place, task in tuple(left.items()):
                    try:
                        results[place] = task()
                    except Postponed:
                        continue
                    del left[place]
                if not left:
                    break
                self._answer()
        finally:
            self._postpones = False
            self._open.clear()
            self._answers.clear()
            self._unanswered.clear()
            self._alive.clear()
        return [results[place] for place in sorted(results)]

    def _answer(self) -> None:
        """Answer all open questions; where that fails for a group, each of its tasks asks alone."""
        opened, self._open = self._open, {}
        for group in opened.values():
            try:
                answers = iter(group.answer([question for asked in group.questions.values() for question in asked]))
                for key, asked in group.questions.items():
                    self._answers[key] = [next(answers) for _ in asked]
            except Exception:
                self._unanswered.update(group.questions)


def _name(of: object) -> object:
    return of if isinstance(of, (str, int, float, tuple, type(None))) else id(of)
