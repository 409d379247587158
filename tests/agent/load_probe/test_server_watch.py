"""Requests that count as somebody else's."""

import pytest

from pertoken.agent.load_probe import Sent, ServerState, _excess

BEFORE = ServerState(0, 0, {"generated_tokens": 100, "computed_tokens": 1_000, "requests_finished": 5})
SENT = Sent(2, 400, 100, 20)


def after(**deltas: int) -> ServerState:
    return ServerState(0, 0, {word: value + deltas.get(word, 0) for word, value in BEFORE.counts.items()})


def test_requests_of_the_probe_are_not_counted_as_load_of_others() -> None:
    own = after(generated_tokens=20, computed_tokens=300, requests_finished=2)
    assert _excess(BEFORE, own, SENT) is None
    assert _excess(BEFORE, after(generated_tokens=22, computed_tokens=304, requests_finished=2), SENT) is None


@pytest.mark.parametrize("word", ["generated_tokens", "computed_tokens", "requests_finished"])
def test_load_beyond_that_of_the_probe_is_reported(word: str) -> None:
    own = {"generated_tokens": 20, "computed_tokens": 300, "requests_finished": 2}
    excess = _excess(BEFORE, after(**{**own, word: own[word] + 30}), SENT)
    assert excess is not None and word.replace("_", " ") in excess


def test_an_engine_that_counts_little_is_judged_by_what_it_counts() -> None:
    assert _excess(ServerState(0, 0, {}), ServerState(0, 0, {"generated_tokens": 900}), SENT) is None
