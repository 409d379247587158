"""What a host measured moves the terms it can have come from, and says so by how much it narrows them."""

from dataclasses import replace

import numpy as np
import pytest

from pertoken.forecast.calibration import activity, first_token, per_token, posterior, ratio
from pertoken.forecast.efficiency import deviation, efficiency
from pertoken.forecast.served import resolve
from pertoken.forecast.serving import Change, calibrate, compare, forecast
from pertoken.forecast.steady import first_token_s, steady
from pertoken.forecast.terms import TERMS
from tests.forecast.builders import CHAT, LLAMA_8B, LLAMA_70B, MARKET

CANDIDATE = resolve([LLAMA_8B], [CHAT], MARKET)
RUNNING = np.array([2.0])
EXPECTED = steady(CANDIDATE, efficiency(), RUNNING)
PRIOR = deviation()


def share_of(name: str, mean: np.ndarray) -> float:
    return float(mean[0, PRIOR.names.index(name)])


def test_nothing_seen_is_the_prior() -> None:
    found = posterior(CANDIDATE, efficiency(), PRIOR, [])
    assert not found.mean.any()
    assert np.sqrt(np.diagonal(found.covariance[0])) == pytest.approx(PRIOR.sd)


def test_one_operating_point_is_explained_and_narrows_what_is_left_open() -> None:
    seen = per_token(PRIOR, 1.5 * EXPECTED.token_s, RUNNING)
    found = posterior(CANDIDATE, efficiency(), PRIOR, [seen])
    explained = steady(CANDIDATE, efficiency(), RUNNING, found.mean @ PRIOR.groups).token_s
    assert explained == pytest.approx(1.5 * EXPECTED.token_s, rel=0.01)
    assert np.linalg.det(found.covariance[0]) < 0.1 * np.prod(PRIOR.sd**2)


def test_a_slow_first_token_is_blamed_on_prefill_and_not_on_weights() -> None:
    seconds = 2 * first_token_s(CANDIDATE, efficiency())
    rate = per_token(PRIOR, EXPECTED.token_s, RUNNING)
    found = posterior(CANDIDATE, efficiency(), PRIOR, [rate, first_token(PRIOR, CANDIDATE, seconds)])
    assert share_of("prefill", found.mean) > 0.2 > abs(share_of("weights", found.mean))


def test_a_busy_memory_says_that_a_slow_step_is_no_launch_overhead() -> None:
    slow = 2 * EXPECTED.token_s
    rate = per_token(PRIOR, slow, RUNNING)
    memory = np.isin(TERMS, ("weights", "experts", "kv_cache"))
    listed = steady(CANDIDATE, efficiency(), RUNNING, -efficiency().log_scale(CANDIDATE.tags)).term_s[:, memory].sum(1)
    idle, busy = (
        posterior(
            CANDIDATE,
            efficiency(),
            PRIOR,
            [rate, activity(CANDIDATE, efficiency(), slow, RUNNING, times * listed / slow, "memory")],
        )
        for times in (1.0, 1.8)
    )
    assert share_of("weights", busy.mean) > share_of("weights", idle.mean)
    assert share_of("overheads", idle.mean) > share_of("overheads", busy.mean)


def test_before_and_after_share_what_was_learned() -> None:
    fp8 = resolve([LLAMA_8B.but(weight_dtype="fp8")], [CHAT], MARKET)
    known = posterior(CANDIDATE, efficiency(), PRIOR, [per_token(PRIOR, EXPECTED.token_s, RUNNING)])
    whole = np.ones(len(PRIOR.names))
    there = ratio(CANDIDATE, fp8, efficiency(), PRIOR, (RUNNING, RUNNING), known, (whole, whole))
    back = ratio(fp8, CANDIDATE, efficiency(), PRIOR, (RUNNING, RUNNING), known, (whole, whole))
    assert there.log_ratio == pytest.approx(-back.log_ratio)
    alone = posterior(CANDIDATE, efficiency(), PRIOR, [])
    unlearned = ratio(CANDIDATE, fp8, efficiency(), PRIOR, (RUNNING, RUNNING), alone, (whole, whole))
    assert there.log_sd < unlearned.log_sd
    assert ratio(
        CANDIDATE, CANDIDATE, efficiency(), PRIOR, (RUNNING, RUNNING), known, (whole, whole)
    ).log_sd == pytest.approx(np.sqrt(2) * PRIOR.noise)


@pytest.mark.parametrize(
    "more",
    [{"tpot_ms": 60.0}, {"ttft_ms": 300.0}, {"memory_active": 0.6}, {"products_active": 0.05}, {"kv_use": 0.5}],
)
def test_whatever_a_host_can_measure_is_used(more: dict[str, float]) -> None:
    plain = calibrate(LLAMA_70B, CHAT, MARKET, busy_tok_s=33.0)
    told = calibrate(LLAMA_70B, CHAT, MARKET, busy_tok_s=33.0, **more)
    assert told != plain
    change = compare(LLAMA_70B, LLAMA_70B.but(weight_dtype="fp8"), CHAT, MARKET, told)
    assert isinstance(change, Change) and 0 < change.ratio[0] < change.ratio[1] < change.ratio[2] < np.inf


def test_a_well_used_cache_tells_how_many_sequences_fill_it() -> None:
    crowded = replace(CHAT, running=20)
    known = calibrate(LLAMA_8B, crowded, MARKET, busy_tok_s=800.0, kv_use=0.5)
    assert forecast(LLAMA_8B, crowded, MARKET, known).max_concurrency == pytest.approx(40)


def test_time_to_first_token_of_requests_that_queued_says_nothing_of_prefill() -> None:
    queued = replace(CHAT, waiting=5.0)
    assert calibrate(LLAMA_8B, queued, MARKET, busy_tok_s=100.0, ttft_ms=9e3) == calibrate(
        LLAMA_8B, queued, MARKET, busy_tok_s=100.0
    )
