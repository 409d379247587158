"""The chain of requests at a replica, against birth-death chains that are solved by hand."""

import math

import numpy as np
import pytest

from pertoken.arrivals import fixed
from pertoken.forecast.queueing import Chain, ServiceTimes

PREFILL_S, DECODE_S, TOKENS = 0.2, 0.01, 81


def chain(limit: float, decode_s: tuple[float, ...] = (DECODE_S, DECODE_S)) -> Chain:
    """One replica whose decode step takes the same time at any number of requests, unless it is given."""
    points = np.linspace(1, max(2.0, limit), len(decode_s))[None, :]
    service = ServiceTimes(points, np.array([decode_s]), np.array([[PREFILL_S]]), np.ones((1, 1)), np.array([limit]))
    return Chain.of(service, fixed(TOKENS), np.array([limit]))


def test_a_decode_step_lies_on_straight_lines_between_the_known_points() -> None:
    step_s = chain(9, (0.01, 0.02, 0.04)).service.step_s(np.array([[1.0, 3.0, 5.0, 7.0, 9.0, 12.0]]))
    assert step_s[0] == pytest.approx([0.01, 0.015, 0.02, 0.03, 0.04, 0.04])


def test_requests_finish_once_their_prefills_and_steps_are_done() -> None:
    (rates,) = chain(8).finished_per_s(np.array([[1.0, 4.0]]))
    assert rates == pytest.approx([1 / (0.2 + 80 * 0.01), 4 / (4 * 0.2 + 80 * 0.01)])


def test_alike_requests_hold_their_places_for_the_same_time() -> None:
    assert chain(8).residence_cv2() == pytest.approx([0.0])


def test_the_states_are_those_of_the_birth_death_chain_solved_by_hand() -> None:
    limit, rate = 6, 1.5
    queue = chain(limit)
    (capacity,) = queue.finished_per_s(np.array([[float(limit)]]))[0]
    states = queue.states(np.array([rate]), np.array([capacity]))
    weights = [1.0]
    for n in range(1, limit + 1):
        (finished,) = queue.finished_per_s(np.array([[float(n)]]))[0]
        weights.append(weights[-1] * rate / finished)
    queued = weights[-1] * rate / (capacity - rate)  # all who wait behind a full batch, a geometric series
    total = sum(weights) + queued
    mean = (sum(n * weight for n, weight in enumerate(weights)) + limit * queued) / total
    assert states.weight.sum() == pytest.approx(1)
    assert states.running[0] == pytest.approx(mean, rel=0.1)
    assert states.full[0] == pytest.approx((weights[-1] + queued) / total, rel=0.15)


def test_more_arrivals_fill_the_batch_and_hardly_any_leave_it_empty() -> None:
    queue = chain(64)
    (capacity,) = queue.finished_per_s(np.array([[64.0]]))[0]
    rates = np.array([0.01, 0.5, 0.9]) * capacity
    states = [queue.states(np.array([rate]), np.array([capacity])) for rate in rates]
    running, full = [float(states.running[0]) for states in states], [float(states.full[0]) for states in states]
    assert running == sorted(running) and full == sorted(full)
    assert full[0] < 1e-6 and all(math.isfinite(value) and value <= 64 for value in running)


@pytest.mark.parametrize("decode_s", [(DECODE_S, DECODE_S), (0.01, 0.02, 0.04), (0.02, 0.02, 0.05, 0.051)])
@pytest.mark.parametrize("utilization", [1e-6, 0.05, 0.4, 0.9, 1 - 1e-9])
def test_as_many_finish_as_arrive_at_the_number_that_runs(decode_s: tuple[float, ...], utilization: float) -> None:
    queue = chain(40, decode_s)
    rate = utilization * queue.finished_per_s(np.array([[40.0]]))[0]
    running = queue.running_at(rate)
    assert 0 < running[0] <= 40
    busy = PREFILL_S * running + (TOKENS - 1) * queue.service.step_s(np.maximum(running, 1.0)[:, None])[0]
    assert running / busy == pytest.approx(rate, rel=1e-12)


def test_no_more_run_than_a_full_batch() -> None:
    queue = chain(8)
    assert queue.running_at(np.array([1e3])) == pytest.approx([8.0])
