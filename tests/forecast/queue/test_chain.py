"""The chain of requests at a replica, against birth-death chains that are solved by hand."""

import math

import numpy as np
import pytest

from pertoken.forecast.queue.chain import BISECTIONS, Chain, Service, bisected
from pertoken.forecast.queue.load import Array, fixed

PREFILL_S, DECODE_S, TOKENS = 0.2, 0.01, 81


def chain(limit: float, decode_s: tuple[float, ...] = (DECODE_S, DECODE_S)) -> Chain:
    """One replica whose decode step takes the same time at any number of requests, unless it is given."""
    points = np.linspace(1, max(2.0, limit), len(decode_s))[None, :]
    service = Service(points, np.array([decode_s]), np.array([[PREFILL_S]]), np.ones((1, 1)), np.array([limit]))
    return Chain.of(service, fixed(TOKENS), np.array([limit]))


def test_a_decode_step_lies_on_straight_lines_between_the_known_points() -> None:
    found = chain(9, (0.01, 0.02, 0.04)).service.step_s(np.array([[1.0, 3.0, 5.0, 7.0, 9.0, 12.0]]))
    assert found[0] == pytest.approx([0.01, 0.015, 0.02, 0.03, 0.04, 0.04])


def test_requests_finish_once_their_prefills_and_steps_are_done() -> None:
    (rates,) = chain(8).finished_per_s(np.array([[1.0, 4.0]]))
    assert rates == pytest.approx([1 / (0.2 + 80 * 0.01), 4 / (4 * 0.2 + 80 * 0.01)])


def test_alike_requests_hold_their_places_for_the_same_time() -> None:
    assert chain(8).held_cv2() == pytest.approx([0.0])


def test_the_states_are_those_of_the_birth_death_chain_solved_by_hand() -> None:
    limit, rate = 6, 1.5
    there = chain(limit)
    (capacity,) = there.finished_per_s(np.array([[float(limit)]]))[0]
    found = there.states(np.array([rate]), np.array([capacity]))
    weights = [1.0]
    for n in range(1, limit + 1):
        (finished,) = there.finished_per_s(np.array([[float(n)]]))[0]
        weights.append(weights[-1] * rate / finished)
    queued = weights[-1] * rate / (capacity - rate)  # all who wait behind a full batch, a geometric series
    total = sum(weights) + queued
    mean = (sum(n * each for n, each in enumerate(weights)) + limit * queued) / total
    assert found.weight.sum() == pytest.approx(1)
    assert found.running[0] == pytest.approx(mean, rel=0.1)
    assert found.full[0] == pytest.approx((weights[-1] + queued) / total, rel=0.15)


def test_more_arrivals_fill_the_batch_and_hardly_any_leave_it_empty() -> None:
    there = chain(64)
    (capacity,) = there.finished_per_s(np.array([[64.0]]))[0]
    rates = np.array([0.01, 0.5, 0.9]) * capacity
    found = [there.states(np.array([each]), np.array([capacity])) for each in rates]
    running, full = [float(each.running[0]) for each in found], [float(each.full[0]) for each in found]
    assert running == sorted(running) and full == sorted(full)
    assert full[0] < 1e-6 and all(math.isfinite(each) and each <= 64 for each in running)


@pytest.mark.parametrize("at_once", [1, 2, 3, 5])
def test_halvings_decided_in_one_call_end_where_one_after_the_other_does(at_once: int) -> None:
    low, high = np.array([0.0, 1.0, 0.0]), np.array([7.0, 300.0, 1e-3])
    sought = np.array([np.e, 299.99, 1.0])[:, None]
    calls: list[int] = []

    def beyond(points: Array) -> np.typing.NDArray[np.bool_]:
        calls.append(points.shape[1])
        return points**2 < sought**2

    expected_low, expected_high = low, high
    for _ in range(BISECTIONS):
        middle = (expected_low + expected_high) / 2
        more = middle**2 < sought[:, 0] ** 2
        expected_low, expected_high = np.where(more, middle, expected_low), np.where(more, expected_high, middle)
    assert bisected(low, high, at_once, beyond).tolist() == expected_high.tolist()
    assert len(calls) == -(-BISECTIONS // at_once) and max(calls) == 2**at_once - 1
