"""Script of a probe: it fits the server, and its cost is an upper bound."""

import pytest

from pertoken.agent.load_probe import MAX_BATCH, SHARE_OF_CONTEXT, ProbeStep, cost, script


@pytest.mark.parametrize("slots", [None, 1, 3, 8, 256])
@pytest.mark.parametrize("context", [None, 64, 300, 4096, 131_072])
def test_every_request_fits_a_slot_and_every_batch_the_server(slots: int | None, context: int | None) -> None:
    steps = script(slots, context)
    assert {step.alone for step in steps} == {True, False}
    for step in steps:
        assert step.prompt_tokens >= 1 and step.prompt_tokens + step.generated_tokens <= 1 + SHARE_OF_CONTEXT * (
            context or 4096
        )
        assert 1 <= step.batch <= min(slots or 8, MAX_BATCH)
    assert max(step.batch for step in steps) == min(slots or 8, MAX_BATCH)
    assert len(steps) == len(set(steps))


def test_steps_with_few_tokens_come_first_so_that_a_slow_server_has_time_for_a_batch_of_one() -> None:
    steps = script(8, 4096)
    tokens = [(step.prompt_tokens + step.generated_tokens) * step.batch for step in steps]
    assert tokens == sorted(tokens)
    assert steps[0].batch == 1 and not steps[0].alone and any(step.alone for step in steps[:3])


def test_the_cost_counts_every_wave_of_every_client() -> None:
    spent = cost([ProbeStep(100, 1, 1, 3), ProbeStep(50, 10, 4, 2)])
    assert (spent.prompt_tokens, spent.generated_tokens, spent.requests) == (300 + 400, 3 + 80, 3 + 8)
