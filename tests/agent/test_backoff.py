"""Pauses before something that failed is tried again."""

from pertoken.agent.workers import Backoff


def test_it_is_due_at_once_and_then_after_a_wait_that_doubles_up_to_five_minutes() -> None:
    now_s = [0.0]
    backoff = Backoff(lambda: now_s[0])
    assert backoff.due
    waits = []
    for _ in range(9):
        backoff.failed()
        start_s = now_s[0]
        while not backoff.due:
            now_s[0] += 5.0
        waits.append(now_s[0] - start_s)
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]
