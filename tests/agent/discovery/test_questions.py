"""Questions to servers that may never answer."""

import threading

from pertoken.agent.discovery import Questions
from tests.recorded import DEADLINE_S


def test_an_answer_is_there_once_it_came_and_is_asked_again_after_it_was_forgotten() -> None:
    questions: Questions[int] = Questions(2)
    asked: list[int] = []

    def ask() -> int:
        asked.append(1)
        return len(asked)

    assert questions.answer("a", ask) is None
    assert questions.wait(DEADLINE_S)
    assert questions.answer("a", ask) == 1
    questions.forget()
    assert questions.answer("a", ask) is None
    questions.wait(DEADLINE_S)
    assert questions.answer("a", ask) == 2
    questions.close()


def test_a_server_that_hangs_is_asked_once_and_holds_up_no_other() -> None:
    questions: Questions[str] = Questions(2)
    release = threading.Event()
    asked: list[int] = []

    def hang() -> str:
        asked.append(1)
        release.wait()
        return "late"

    for _ in range(3):
        assert questions.answer("hangs", hang) is None
    assert questions.answer("other", lambda: "there") is None
    assert questions.wait(0.0)
    while questions.answer("other", lambda: "there") is None:
        questions.wait(0.05)
    assert questions.answer("hangs", hang) is None
    release.set()
    questions.wait(DEADLINE_S)
    assert (questions.answer("hangs", hang), len(asked)) == ("late", 1)
    questions.close()
