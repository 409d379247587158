"""The queueing model beside an engine played step by step, and its limits by hand."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pertoken.arrivals import Array, Lengths, fixed, typical
from pertoken.forecast.queueing import MAX_UTILIZATION, NO_LIMIT_S, ServiceTimes, UnderLoad, overrun, under_load
from tests.examples import examples
from tests.forecast.engine_simulation import Request, Seen, simulate

CHUNK = 2048
REQUESTS = 8000


def decode_s(running: float) -> float:
    return 0.008 + 0.00012 * running


def prefill_s(tokens: float) -> float:
    return tokens * 9e-5


def service(limit: float, prompt: Lengths, chunk: int = CHUNK) -> ServiceTimes:
    running = np.geomspace(1, max(limit, 2), 12)
    return ServiceTimes(
        running[None],
        np.array([[decode_s(n_running) for n_running in running]]),
        np.array([[prefill_s(token) for token in prompt.tokens]]),
        np.ceil(prompt.tokens / chunk)[None],
        np.array([float(limit)]),
    )


def both(kind: str, limit: int, utilization: float) -> tuple[UnderLoad, Seen]:
    prompt, generated = (fixed(1000), fixed(200)) if kind == "fixed" else typical(kind)
    its = service(limit, prompt)
    rate = utilization * under_load(its, np.array([1e-3]), generated).capacity_per_s
    random = np.random.default_rng(7)
    arrivals = np.cumsum(random.exponential(1 / rate[0], REQUESTS))
    lengths = zip(random.choice(prompt.tokens, REQUESTS), random.choice(generated.tokens, REQUESTS), strict=True)
    requests = [Request(at, round(p), round(g)) for at, (p, g) in zip(arrivals, lengths, strict=True)]
    return under_load(its, rate, generated), simulate(requests, limit, decode_s, prefill_s, CHUNK)


def quantiles(values: Array) -> tuple[float, float]:
    middle, high = np.quantile(values, [0.5, 0.95])
    return float(middle), float(high)


@pytest.mark.parametrize("kind", ["fixed", "conversation"])
@pytest.mark.parametrize(("limit", "utilization"), [(4, 0.3), (4, 0.6), (32, 0.3), (32, 0.6), (32, 0.8), (256, 0.6)])
def test_it_agrees_with_an_engine_played_step_by_step(kind: str, limit: int, utilization: float) -> None:
    model, played = both(kind, limit, utilization)
    assert model.running[0] == pytest.approx(played.running, rel=0.1)
    assert model.tok_s[0] == pytest.approx(played.tok_s, rel=0.05)
    (ttft, late), (tpot, slow) = quantiles(played.ttft_s), quantiles(played.tpot_s)
    assert model.ttft_s[0, 0] == pytest.approx(ttft, rel=0.25)
    assert model.ttft_s[0, 1] == pytest.approx(late, rel=0.4 if utilization < 0.8 else 0.5)
    assert model.tpot_s[0, 0] == pytest.approx(tpot, rel=0.1)
    assert model.tpot_s[0, 1] == pytest.approx(slow, rel=0.2)


def test_short_outputs_of_long_prompts_are_stalled_by_other_prefills() -> None:
    model, played = both("code", 32, 0.6)
    tpot, slow = quantiles(played.tpot_s)
    assert slow > 5 * tpot
    assert model.tpot_s[0, 0] == pytest.approx(tpot, rel=0.3)
    assert model.tpot_s[0, 1] == pytest.approx(slow, rel=0.35)


def test_one_place_and_equal_answers_is_the_textbook_queue_with_one_server() -> None:
    """M/D/1: with a utilization of u, the mean wait is u / (2 (1 - u)) services."""
    alone = service(1, fixed(1))
    generated = fixed(101)
    held = prefill_s(1) + 100 * decode_s(1)
    predicted = under_load(alone, np.array([0.5 / held]), generated)
    assert predicted.utilization[0] == pytest.approx(0.5)
    assert predicted.running[0] == pytest.approx(0.5, rel=1e-6)
    assert predicted.waiting[0] == pytest.approx(0.5 * 0.5 / held * held / (2 * 0.5), rel=1e-6)


def test_while_all_requests_run_their_number_is_poisson_distributed() -> None:
    """A step independent of the batch, and a limit that is never reached: M/G/∞, mean = variance = rate x life."""
    flat = ServiceTimes(
        np.array([[1.0, 1e4]]), np.array([[0.01, 0.01]]), np.full((1, 16), 1e-9), np.ones((1, 16)), np.array([1e4])
    )
    predicted = under_load(flat, np.array([5.0]), fixed(1001))
    assert predicted.running[0] == pytest.approx(5.0 * 10.0, rel=0.01)
    assert predicted.tpot_s[0, 0] == pytest.approx(0.01, rel=1e-3)
    assert predicted.waiting[0] == pytest.approx(0.0, abs=1e-9)


def test_a_load_above_the_capacity_fills_the_batch_and_waits_without_end() -> None:
    prompt, generated = typical("conversation")
    its = service(32, prompt)
    predicted = under_load(its, np.array([1e3]), generated)
    assert predicted.saturated[0] and np.isinf(predicted.ttft_s[0]).all() and np.isinf(predicted.waiting[0])
    assert predicted.running[0] == 32
    assert predicted.tok_s[0] == pytest.approx(predicted.capacity_per_s[0] * generated.mean)
    assert np.isfinite(predicted.tpot_s[0]).all()


@pytest.mark.parametrize("utilization", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("kind", ["conversation", "code"])
def test_quantiles_are_where_a_distribution_function_passes_their_shares(kind: str, utilization: float) -> None:
    """`overrun` asks whether a quantile exceeds a limit, `under_load` what it is."""
    prompt, generated = typical(kind)
    its = service(32, prompt)
    rate = utilization * under_load(its, np.array([1e-3]), generated).capacity_per_s
    shares = (0.1, 0.5, 0.95, 0.999)
    predicted = under_load(its, rate, generated, shares)
    for factor, later in ((1 + 1e-9, False), (1 - 1e-9, True)):
        for index, share in enumerate(shares):
            for column, quantile_s in enumerate((predicted.ttft_s, predicted.tpot_s)):
                limits_s = np.full((1, 2), NO_LIMIT_S)
                limits_s[0, column] = quantile_s[0, index] * factor
                assert overrun(its, rate, generated, limits_s, (share,)).tolist() == [later]


def test_rates_and_shares_out_of_range_are_refused() -> None:
    its = service(4, fixed(100))
    with pytest.raises(ValueError, match="above 0"):
        under_load(its, np.array([0.0]), fixed(100))
    with pytest.raises(ValueError, match="between 0 and 1"):
        under_load(its, np.array([1.0]), fixed(100), (1.0,))


@settings(max_examples=examples(40), deadline=None)
@given(
    limit=st.floats(1, 4096),
    utilization=st.floats(1e-4, 3.0),
    step_s=st.floats(1e-4, 1.0),
    grows=st.floats(0, 10.0),
    per_prompt_s=st.floats(1e-6, 30.0),
    generated=st.floats(1, 1e5),
)
def test_any_load_gives_numbers_that_rise_with_it(
    limit: float, utilization: float, step_s: float, grows: float, per_prompt_s: float, generated: float
) -> None:
    running = np.geomspace(1, max(limit, 2.0), 8)
    its = ServiceTimes(
        np.repeat(running[None], 2, axis=0),
        np.repeat(step_s * (1 + grows * running / running[-1])[None], 2, axis=0),
        np.full((2, 16), per_prompt_s),
        np.ones((2, 16)),
        np.full(2, limit),
    )
    capacity = under_load(its, np.full(2, 1e-9), fixed(generated)).capacity_per_s[0]
    predicted = under_load(its, np.array([0.5, 1.0]) * utilization * capacity, fixed(generated))
    for column in (predicted.running, predicted.waiting, predicted.tok_s, *predicted.ttft_s.T, *predicted.tpot_s.T):
        assert not np.isnan(column).any() and (column >= 0).all()
    assert predicted.running[0] <= predicted.running[1] * (1 + 1e-6) <= max(limit, 1.0) * (1 + 1e-5)
    assert predicted.tok_s[0] <= predicted.tok_s[1] * (1 + 1e-9)
    assert (predicted.ttft_s[:, 0] <= predicted.ttft_s[:, 1] * (1 + 1e-9)).all()
    assert (predicted.saturated == (predicted.utilization >= MAX_UTILIZATION)).all()
    assert (np.isfinite(predicted.ttft_s).all(axis=1) == ~predicted.saturated).all()
    for late in predicted.ttft_s.T:
        assert late[0] <= late[1] * (1 + 1e-6)


@example(limit=4, more=2.0, utilization=0.75, grows=2.0, per_prompt_s=0.0001, kind="conversation")
@settings(max_examples=examples(60), deadline=None)
@given(
    limit=st.integers(1, 512),
    more=st.floats(1.05, 8.0),
    utilization=st.floats(0.01, 0.97),
    grows=st.floats(0.0, 2.0),
    per_prompt_s=st.floats(1e-4, 0.2),
    kind=st.sampled_from(["conversation", "code"]),
)
def test_more_slots_make_the_first_token_later_by_no_more_than_a_longer_step(
    limit: int, more: float, utilization: float, grows: float, per_prompt_s: float, kind: str
) -> None:
    prompt, generated = typical(kind)
    limits = np.array([float(limit), float(np.ceil(limit * more))])
    running = np.geomspace(1, max(limits[1], 2.0), 12)
    its = ServiceTimes(
        np.repeat(running[None], 2, axis=0),
        np.repeat((0.01 * (1 + grows * running / running[-1]))[None], 2, axis=0),
        np.repeat((per_prompt_s * prompt.tokens / prompt.mean)[None], 2, axis=0),
        np.ones((2, len(prompt.tokens))),
        limits,
    )
    rate = utilization * under_load(its, np.full(2, 1e-9), generated).capacity_per_s[0]
    predicted = under_load(its, np.full(2, rate), generated)
    assert not predicted.saturated.any()
    # A prompt waits for the step under way, which takes longer where more run: at most by that much, and 2 %.
    few, many = (np.interp(n, running, its.decode_s[0]) for n in predicted.running)
    assert (predicted.ttft_s[1] <= predicted.ttft_s[0] * 1.02 + (many - few)).all()
    assert predicted.waiting[1] <= predicted.waiting[0] + 1e-9
