"""A finite run by hand, beside the engine that the queueing model is tested with, and what more load never does."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.load.engine import Engine
from benchmarks.load.play import Run, arrivals, play
from pertoken.arrivals import Array
from tests.examples import examples
from tests.forecast.engine_simulation import Request, simulate


def engine(limit: int = 8, step_s: float = 1.0, each_s: float = 0.0, **fields: float | bool) -> Engine:
    """Return an engine whose step takes `step_s` and `each_s` more of each sequence; a prompt token takes 0.1 s."""
    steps = [0.0, *(step_s + each_s * n for n in range(1, limit + 1))]
    plain: dict[str, float | bool] = {"prompt_weights_s": 0.0, "prefill_s": 0.1}
    return Engine(steps, [0.0] * (limit + 1), **{**plain, **fields})  # type: ignore[arg-type]


def run(one: Engine, at: list[float], prompt: int, generated: int) -> Run:
    n = len(at)
    return play(one, np.array(at), np.full(n, prompt), np.full(n, generated))


def test_a_request_alone_takes_its_prompt_and_then_a_step_for_each_token() -> None:
    result = run(engine(), [2.0], prompt=10, generated=5)
    assert result.ttft_s == pytest.approx([1.0])
    assert result.tpot_s == pytest.approx([1.0])
    assert result.elapsed_s == pytest.approx(2 + 1 + 4)
    assert (result.tok_s, result.running) == pytest.approx((5 / 7, 1.0))


def test_sequences_go_on_in_a_step_with_a_prompt_unless_prompts_have_steps_of_their_own() -> None:
    mixed, separate = (run(engine(mixed=mixes), [0.0, 2.5], prompt=10, generated=5) for mixes in (True, False))
    # The second arrives in the step from 2 to 3. Its prompt takes 1 s: beside a decode step, or instead of it.
    assert mixed.ttft_s[1] == pytest.approx(3 - 2.5 + 1 + 1)
    assert mixed.done_s[0] == pytest.approx(1 + 4 + 1)
    assert separate.ttft_s[1] == pytest.approx(3 - 2.5 + 1)
    assert separate.done_s[0] == pytest.approx(1 + 4 + 1)


def test_products_of_prompts_hide_the_reading_of_weights_and_a_cache_that_is_read_again_does_not() -> None:
    reads = Engine([0.0, 1.0], [0.0, 0.6], 0.6, 0.1, prompt_launch_s=0.05, mixed_s=0.2)
    assert reads.prompt_step_s(1, 10) == pytest.approx(0.4 + 0.2 + 0.05 + 1.0)
    assert reads.prompt_step_s(1, 2) == pytest.approx(0.4 + 0.2 + 0.05 + 0.6)
    assert reads.slower(2).prompt_step_s(1, 10) == pytest.approx(2 * reads.prompt_step_s(1, 10))


def test_a_long_prompt_is_spread_over_steps_only_where_prompts_are_chunked() -> None:
    whole, chunked = (run(engine(step_tokens=4, whole_prompts=literal), [0.0], 10, 2) for literal in (True, False))
    assert whole.ttft_s == pytest.approx([1.0]) == chunked.ttft_s
    beside = [run(engine(step_tokens=4, whole_prompts=literal), [0.0, 1.5], 10, 9) for literal in (True, False)]
    # Three chunks each take a decode step of the first with them.
    assert beside[0].ttft_s[1] == pytest.approx(2 - 1.5 + 1 + 1)
    assert beside[1].ttft_s[1] == pytest.approx(2 - 1.5 + 3 + 1)


def test_requests_beyond_the_batch_limit_wait_for_a_place() -> None:
    result = run(engine(limit=1), [0.0, 0.0], prompt=10, generated=3)
    assert result.first_s == pytest.approx([1.0, 4.0])


def test_a_cache_that_overflows_puts_the_newest_back_and_computes_its_tokens_again() -> None:
    roomy, tight = (run(engine(kv_tokens=tokens), [0.0, 0.0], prompt=4, generated=5) for tokens in (math.inf, 12))
    assert roomy.preemptions == 0 and tight.preemptions == 1
    # Prompts 0.8 s; at 2 × (4 + 2) = 12 cached tokens the next step overflows. The first goes on alone for 2 steps; the
    # second computes its prompt and 3 tokens again, 0.7 s, and generates the last 2.
    assert roomy.done_s == pytest.approx([4.8, 4.8])
    assert tight.done_s[0] == pytest.approx(4.8)
    assert tight.done_s[1] > 4.8 + 0.7
    assert tight.first_s == pytest.approx(roomy.first_s)


@given(st.integers(1, 8), st.integers(1, 30), st.integers(2, 30))
@settings(max_examples=examples(20), deadline=None)
def test_a_burst_that_never_fills_the_cache_runs_at_once_as_with_any_larger_one(
    n: int, prompt: int, tokens: int
) -> None:
    # All begin in an empty cache, and the last token of each is not cached.
    just_enough = n * (prompt + tokens)
    short, unbounded = (run(engine(kv_tokens=room), [0.0] * n, prompt, tokens) for room in (just_enough, math.inf))
    assert short.preemptions == 0 and short.elapsed_s == unbounded.elapsed_s
    assert short.tok_s == pytest.approx(n * tokens / (0.1 * n * prompt + tokens - 1))


def test_a_short_run_generates_less_than_a_long_one_as_it_fills_and_drains() -> None:
    short, long = (run(engine(), [0.0] * n, prompt=10, generated=20) for n in (12, 480))
    assert short.tok_s < 0.85 * long.tok_s and short.running < 7 < long.running


def test_a_sequence_that_fills_the_cache_alone_runs_on() -> None:
    assert run(engine(kv_tokens=3), [0.0], prompt=4, generated=5).elapsed_s == pytest.approx(0.4 + 4)


@pytest.mark.parametrize("load", [0.5, 0.9, 3.0])
def test_a_run_is_that_of_the_engine_played_step_by_step(load: float) -> None:
    random = np.random.default_rng(7)
    at = arrivals(random, 150, load * 0.2)
    prompt, generated = (random.integers(1, most, 150).astype(float) for most in (20, 12))
    ours = play(engine(limit=6, each_s=0.1), at, prompt, generated)
    todo = [Request(float(a), int(p), int(g)) for a, p, g in zip(at, prompt, generated, strict=True)]
    theirs = simulate(todo, 6, lambda n: 1 + 0.1 * n, lambda tokens: 0.1 * tokens, settle=0)
    assert ours.ttft_s == pytest.approx(theirs.ttft_s)
    assert ours.tpot_s == pytest.approx(theirs.tpot_s)
    assert ours.tok_s == pytest.approx(theirs.tok_s)


def test_arrivals_come_at_their_rate_whatever_was_drawn_and_bursts_are_less_even() -> None:
    even, bursts = (arrivals(np.random.default_rng(1), 500, 10, value) for value in (1.0, 0.2))
    for at in (even, bursts):
        assert at[-1] == pytest.approx(50) and (np.diff(at) >= 0).all()
    assert np.diff(bursts).std() > 1.5 * np.diff(even).std()


def test_more_arrivals_never_lower_the_running_batch_nor_the_rate() -> None:
    one = engine(limit=16, step_s=0.1, each_s=0.01, prefill_s=0.002)
    runs = [
        play(one, arrivals(np.random.default_rng(3), 200, rate), np.full(200, 32), np.full(200, 20))
        for rate in (0.2, 0.5, 1, 2, 4, 8, 16)
    ]
    running: Array = np.array([one_run.running for one_run in runs])
    assert (np.diff(running) >= -1e-9).all() and running[-1] <= 16
    assert (np.diff([one_run.tok_s for one_run in runs]) >= -1e-9).all()


@settings(max_examples=examples(40))
@given(
    limit=st.integers(1, 6),
    kv_tokens=st.integers(40, 120),
    mixed=st.booleans(),
    whole=st.booleans(),
    lengths=st.lists(st.tuples(st.floats(0, 5), st.integers(1, 30), st.integers(1, 9)), min_size=1, max_size=12),
)
def test_every_request_is_answered_in_order_of_its_own_times(
    limit: int, kv_tokens: int, mixed: bool, whole: bool, lengths: list[tuple[float, int, int]]
) -> None:
    one = engine(limit, each_s=0.1, kv_tokens=float(kv_tokens), mixed=mixed, whole_prompts=whole, step_tokens=16)
    at, prompt, generated = (np.array(column) for column in zip(*sorted(lengths), strict=True))
    one_run = play(one, at, prompt, generated)
    assert (one_run.first_s > at).all()
    assert one_run.done_s == pytest.approx(np.maximum(one_run.done_s, one_run.first_s))
    assert one_run.busy_s <= one_run.elapsed_s + 1e-9
    assert one_run.elapsed_s >= at.max()
    assert one_run.running <= limit + 1e-9
    assert (one_run.tpot_s >= min(one.step_s[1:]) - 1e-9).all()
