"""Steady states by hand: one place, and prompts that are computed at once or in chunks."""

import numpy as np
import pytest

from pertoken.arrivals import Lengths, fixed
from pertoken.forecast.queueing import ServiceTimes, capacity_per_s, steady_state

STEP_S, PREFILL_S, TOKENS = 0.01, 0.5, 51


def service(chunks: int = 1, limit: float = 1.0) -> ServiceTimes:
    return ServiceTimes(
        np.array([[1.0, 64.0]]),
        np.array([[STEP_S, STEP_S]]),
        np.full((1, 16), PREFILL_S),
        np.full((1, 16), float(chunks)),
        np.array([limit]),
    )


def generated() -> Lengths:
    return fixed(TOKENS)


def test_one_place_finishes_one_request_per_prefill_and_output() -> None:
    assert capacity_per_s(service(), generated()) == pytest.approx([1 / (PREFILL_S + (TOKENS - 1) * STEP_S)])


def test_requests_wait_for_one_place_with_the_probability_that_it_is_taken() -> None:
    state = steady_state(service(), np.array([0.3]), generated())
    assert state.stable.all()
    assert state.wait_share == pytest.approx([0.3 / state.capacity_per_s[0]], rel=1e-6)


def test_a_load_above_the_capacity_is_a_full_batch_in_which_every_request_waits() -> None:
    state = steady_state(service(limit=8.0), np.array([1e3]), generated())
    assert not state.stable.any()
    assert (state.wait_share, state.states.running) == (np.array([1.0]), np.array([8.0]))
    assert (state.states.requests == 8).all()


def test_a_prompt_in_more_chunks_occupies_more_steps_with_a_shorter_stall() -> None:
    whole, chunked = (steady_state(service(chunks, 32.0), np.array([0.5]), generated()).prefills for chunks in (1, 10))
    assert whole.chunk_s == pytest.approx([PREFILL_S]) and chunked.chunk_s == pytest.approx([PREFILL_S / 10])
    assert whole.stall_s == pytest.approx(whole.chunk_s) and chunked.stall_s == pytest.approx(chunked.chunk_s)
    assert chunked.busy_steps > whole.busy_steps and chunked.busy > whole.busy
