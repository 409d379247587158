"""Blocks of equal work, in counterbalanced order."""

from typing import Any

import pytest

from pertoken.agent.load_probe import (
    BLOCKS,
    GENERATED_TOKENS,
    MIN_WAVES,
    PROMPT_TOKENS,
    WARM_UP_WAVES,
    Completion,
    Foreign,
    Sent,
    ServerState,
    ServerUnderCheck,
    measure,
    order,
    step_of,
)


class Timed:
    """A client whose requests take a time of their own, on a clock that it moves."""

    def __init__(self, clock: list[float], seconds: float) -> None:
        self._clock, self._seconds, self.requests = clock, seconds, 0

    def calibrate(self) -> None:
        self.complete("", 1)

    def prompt(self, tokens: int) -> str:
        return "word " * tokens

    def complete(self, prompt: str, generated: int) -> Completion:
        self._clock[0] += self._seconds
        self.requests += 1
        return Completion(0.0, (self._clock[0],), len(prompt.split()), 0, generated)


class Watched:
    """A metrics page on which another client shows after some reads."""

    def __init__(self, reads: int) -> None:
        self._reads = reads

    def state(self) -> ServerState:
        return ServerState(0, 0, {})

    def foreign(self, before: ServerState, sent: Sent) -> tuple[str | None, ServerState]:
        self._reads -= 1
        return (None if self._reads > 0 else "2 requests run"), before


def servers(clock: list[float], *seconds: float, watch: Any = None) -> list[Any]:
    return [ServerUnderCheck(Timed(clock, request_s), watch) for request_s in seconds]  # type: ignore[arg-type]


def test_two_servers_alternate_so_that_each_is_first_and_last_as_often() -> None:
    sequence = list(order(2))
    assert sequence[:8] == [0, 1, 1, 0, 0, 1, 1, 0] and sequence.count(0) == sequence.count(1) == BLOCKS
    places = [[place for place, server in enumerate(sequence) if server == position] for position in (0, 1)]
    assert sum(places[0]) == sum(places[1])
    assert list(order(1)) == [0] * BLOCKS


def test_blocks_have_equal_work_after_a_warm_up_and_fill_the_time() -> None:
    clock = [0.0]
    pair = servers(clock, 0.5, 1.0)
    blocks = measure(pair, step_of(1, None), 240.0, clock=lambda: clock[0])
    assert [block.server for block in blocks] == list(order(2))
    assert {len(block.wave_s) for block in blocks} == {5}
    assert {block.wave_s[0] for block in blocks if block.server == 0} == {0.5}
    assert {(block.prompt_tokens, block.generated_tokens) for block in blocks} == {(1280, 160)}
    assert blocks[0].started_s[0] == 0.0 and blocks[-1].started_s[-1] > 150
    assert pair[0].client.requests == 1 + WARM_UP_WAVES + 5 * BLOCKS


def test_a_slow_server_has_waves_enough_for_a_median() -> None:
    clock = [0.0]
    blocks = measure(servers(clock, 60.0), step_of(1, None), 10.0, clock=lambda: clock[0])
    assert {len(block.wave_s) for block in blocks} == {MIN_WAVES}


def test_another_client_ends_the_measurement() -> None:
    clock = [0.0]
    with pytest.raises(Foreign, match="2 requests run"):
        measure(servers(clock, 1.0, watch=Watched(3)), step_of(1, None), 10.0, clock=lambda: clock[0])


def test_the_work_fits_into_the_context_of_the_server() -> None:
    assert (step_of(8, 8192).prompt_tokens, step_of(8, 8192).batch) == (PROMPT_TOKENS, 4)
    small = step_of(1, 100)
    assert small.prompt_tokens + small.generated_tokens <= 80 and small.generated_tokens == 20 < GENERATED_TOKENS
