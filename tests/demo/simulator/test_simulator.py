"""The world of a demo: true speeds, arrivals, what an engine serves, and what its devices show."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.catalog.market import load_market
from pertoken.demo.simulator import (
    WEEK_H,
    Shape,
    SimulatedEngine,
    Truth,
    course,
    draw,
    drift,
    engine,
    idling,
    requests,
    traces,
    weekly,
    working,
)
from pertoken.forecast.served import Load
from pertoken.forecast.terms import TERMS
from pertoken.testing import deployment

MARKET = load_market()
HOURS = np.arange(24) * 3600 + 1_790_553_600
LLAMA = deployment("Llama-3.1-8B", weight_dtype="fp8", max_num_seqs=32)


def running(n: int = 24, truth: Truth | None = None, prompt: float = 1000.0, **knobs: object) -> SimulatedEngine:
    ones = np.ones(n)
    known = truth or Truth(np.zeros(len(TERMS)))
    return engine(LLAMA.but(**knobs) if knobs else LLAMA, known, MARKET, prompt * ones, 200 * ones, 0 * ones)


def test_draws_differ_from_engine_to_engine_and_are_never_faster_than_the_hardware() -> None:
    load = Load(500, 1000, 200, 8)
    drawn = [draw(np.random.default_rng(seed), LLAMA, load, MARKET) for seed in range(60)]
    assert len({tuple(deviation) for deviation in drawn}) > 50
    at = TERMS.index("weights")
    fitted = float(np.log(running(1).scale[at]))
    assert all(fitted + deviation[at] >= min(0.0, fitted) - 1e-9 for deviation in drawn)
    steps = [float(running(1, Truth(deviation)).token_s(np.array([8.0]))[0]) for deviation in drawn]
    spread = np.quantile(steps, 0.9) / np.quantile(steps, 0.1)
    assert 1.2 < spread < 3


def test_a_version_that_is_slower_is_slower_by_as_much() -> None:
    slow = Truth(np.zeros(len(TERMS)), by_version=(("9.9", float(np.log(1.5))),))
    at = np.array([4.0])
    now, then = (running(1, slow, engine_version=version).token_s(at)[0] for version in ("9.9", "9.8"))
    assert now == pytest.approx(1.5 * then)


@given(st.floats(0.1, 2000), st.floats(1.01, 3))
def test_more_tokens_take_more_running_requests_and_never_more_than_there_are_slots(tok_s: float, more: float) -> None:
    one = running(1)
    few, many = (one.running(np.array([rate]))[0][0] for rate in (tok_s, more * tok_s))
    assert 0 < few <= many <= one.slots[0]


def test_running_requests_are_arrivals_times_the_time_of_each_as_little_has_it() -> None:
    one = running()
    served = course(one, HOURS, 3600, np.full(24, 3600.0))
    seconds = served.generated_tokens / served.requests * served.tpot_s
    assert served.running == pytest.approx(served.requests / 3600 * seconds, rel=0.02)
    assert (served.waiting < 0.1).all() and (served.lost == 0).all()


def test_arrivals_beyond_a_full_batch_wait_and_then_leave() -> None:
    one = running()
    peak = float((one.slots / one.token_s(one.slots))[0]) / 200
    served = course(one, HOURS, 3600, np.full(24, 1.5 * peak * 3600))
    assert (served.busy == 1).all() and served.running == pytest.approx(one.slots)
    assert served.requests == pytest.approx(peak * 3600, rel=0.001)
    assert (served.waiting[1:] > 10).all() and (served.lost[1:] > 0).all()
    assert (served.requests + served.lost <= 1.5 * peak * 3600 + 1).all()


def test_a_stuck_engine_holds_requests_and_serves_none() -> None:
    served = course(running(), HOURS, 3600, np.full(24, 3600.0), np.where(np.arange(24) >= 20, 1.0, 0.0))
    assert (served.generated_tokens[20:] == 0).all() and (served.busy[20:] == 0).all()
    assert (served.running[20:] >= 1).all() and (served.generated_tokens[:20] > 0).all()


def test_the_traces_are_credited_and_have_the_shape_of_lengths() -> None:
    for trace in traces().values():
        assert trace.prompt_len.mean() == pytest.approx(1) and (np.diff(trace.generated_len) >= 0).all()
    assert traces()["code"].dispersion > traces()["conversation"].dispersion > 1


def test_a_week_has_its_mean_its_peak_and_its_silent_hours() -> None:
    week = np.arange(WEEK_H) * 3600
    office = weekly(Shape("conversation", 3.0, 0.6), week)
    assert office.mean() == pytest.approx(1) and office.max() / office.min() == pytest.approx(3 / 0.6, rel=0.05)
    silent = weekly(Shape("conversation", 3.0, 0.6, silent=(20, 8)), week)
    assert (silent == 0).sum() == 5 * 12 + 48 and silent.mean() == pytest.approx(1)


def test_requests_arrive_at_their_rate_and_in_bursts() -> None:
    rng, shape = np.random.default_rng(1), Shape("code", 1.0, 1.0)
    ts = np.arange(5000) * 60
    drawn = requests(rng, shape, 2.0, ts, 60, np.zeros(5000))
    assert drawn.mean() == pytest.approx(120, rel=0.03) and drawn.var() / drawn.mean() > 1.5
    assert (drawn == np.round(drawn)).all() and (drawn >= 0).all()


def test_a_wandering_value_is_alike_from_hour_to_hour() -> None:
    values = drift(np.random.default_rng(1), 5000, 0.1)
    assert values.std() == pytest.approx(0.1, rel=0.1)
    assert np.corrcoef(values[:-1], values[1:])[0, 1] == pytest.approx(0.8, abs=0.05)


def test_devices_draw_more_the_more_they_work_and_never_more_than_their_limit() -> None:
    h100 = MARKET.accelerator("H100 SXM5")
    assert h100 is not None
    rng = np.random.default_rng(1)
    low, high = (course(running(), HOURS, 3600, np.full(24, rate)) for rate in (60.0, 9000.0))
    quiet, busy = (working(rng, course_, h100, 7e10, 1, 1980, 1.0) for course_ in (low, high))
    idle = idling(rng, 24, h100, 1980)
    assert idle.power_w.mean() < quiet.power_w.mean() < busy.power_w.mean() <= 700
    assert (busy.dram_active <= 1).all() and (busy.util > quiet.util).all() and (idle.util == 0).all()
