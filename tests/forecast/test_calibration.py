"""Calibration: measurements of a host move the terms they depend on and narrow their intervals."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.calibrate import calibrate
from pertoken.evidence import OperatingPoint
from pertoken.forecast.calibration import MAX_SHIFT, activity, first_token, per_token, posterior, prequential, ratio
from pertoken.forecast.efficiency import deviation, efficiency, steady
from pertoken.forecast.host import BusyMeasurements, calibrate_all
from pertoken.forecast.served import resolve
from pertoken.forecast.serving import BeforeAfter, compare, forecast
from pertoken.forecast.terms import TERMS
from tests.forecast.builders import CHAT, LLAMA_8B, LLAMA_70B, MARKET, first_token_s

CANDIDATE = resolve([LLAMA_8B], [CHAT], MARKET)
RUNNING = np.array([2.0])
EXPECTED = steady(CANDIDATE, efficiency(), RUNNING)
PRIOR = deviation()


def share_of(name: str, mean: np.ndarray) -> float:
    return float(mean[0, PRIOR.names.index(name)])


def test_nothing_seen_is_the_prior() -> None:
    fitted = posterior(CANDIDATE, efficiency(), PRIOR, [])
    assert not fitted.mean.any()
    assert np.sqrt(np.diagonal(fitted.covariance[0])) == pytest.approx(PRIOR.sd)


def test_one_operating_point_is_explained_and_narrows_the_posterior() -> None:
    seen = per_token(PRIOR, 1.5 * EXPECTED.token_s, RUNNING)
    fitted = posterior(CANDIDATE, efficiency(), PRIOR, [seen])
    explained = steady(CANDIDATE, efficiency(), RUNNING, fitted.mean @ PRIOR.groups).token_s
    assert explained == pytest.approx(1.5 * EXPECTED.token_s, rel=0.01)
    assert np.linalg.det(fitted.covariance[0]) < 0.1 * np.prod(PRIOR.sd**2)


def test_a_slow_first_token_is_blamed_on_prefill_and_not_on_weights() -> None:
    seconds = np.array([2 * first_token_s(CANDIDATE)])
    rate = per_token(PRIOR, EXPECTED.token_s, RUNNING)
    fitted = posterior(CANDIDATE, efficiency(), PRIOR, [rate, first_token(PRIOR, CANDIDATE, seconds)])
    assert share_of("prefill", fitted.mean) > 0.2 > abs(share_of("weights", fitted.mean))


def test_a_slow_step_with_busy_memory_is_not_attributed_to_launch_overhead() -> None:
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


def test_before_and_after_share_the_posterior() -> None:
    fp8 = resolve([LLAMA_8B.but(weight_dtype="fp8")], [CHAT], MARKET)
    known = posterior(CANDIDATE, efficiency(), PRIOR, [per_token(PRIOR, EXPECTED.token_s, RUNNING)])
    predicted_ratio = ratio(CANDIDATE, fp8, efficiency(), PRIOR, (RUNNING, RUNNING), known)
    back = ratio(fp8, CANDIDATE, efficiency(), PRIOR, (RUNNING, RUNNING), known)
    assert predicted_ratio.log_ratio == pytest.approx(-back.log_ratio)
    alone = posterior(CANDIDATE, efficiency(), PRIOR, [])
    unlearned = ratio(CANDIDATE, fp8, efficiency(), PRIOR, (RUNNING, RUNNING), alone)
    assert predicted_ratio.log_sd < unlearned.log_sd
    unchanged = ratio(CANDIDATE, CANDIDATE, efficiency(), PRIOR, (RUNNING, RUNNING), known)
    assert unchanged.log_sd == pytest.approx(np.sqrt(2) * PRIOR.noise)


@pytest.mark.parametrize(
    "more",
    [{"tpot_ms": 60.0}, {"ttft_ms": 300.0}, {"memory_active": 0.6}, {"gemm_active": 0.05}, {"kv_use": 0.5}],
)
def test_whatever_a_host_can_measure_is_used(more: dict[str, Any]) -> None:
    plain = calibrate(LLAMA_70B, CHAT, MARKET, busy_tok_s=33.0)
    calibration = calibrate(LLAMA_70B, CHAT, MARKET, busy_tok_s=33.0, **more)
    assert calibration != plain
    change = compare(LLAMA_70B, LLAMA_70B.but(weight_dtype="fp8"), CHAT, MARKET, calibration)
    assert isinstance(change, BeforeAfter) and 0 < change.ratio[0] < change.ratio[1] < change.ratio[2] < np.inf


def test_a_well_used_cache_calibrates_the_number_of_sequences_that_fill_it() -> None:
    crowded = replace(CHAT, running=20)
    known = calibrate(LLAMA_8B, crowded, MARKET, busy_tok_s=800.0, kv_use=0.5)
    assert forecast(LLAMA_8B, crowded, MARKET, known).max_concurrency == pytest.approx(40)


def test_ttft_of_queued_requests_does_not_calibrate_prefill() -> None:
    queued = replace(CHAT, waiting=5.0)
    assert calibrate(LLAMA_8B, queued, MARKET, busy_tok_s=100.0, ttft_ms=9e3) == calibrate(
        LLAMA_8B, queued, MARKET, busy_tok_s=100.0
    )


def truth_points(batches: list[int], deviations: dict[str, float]) -> list[OperatingPoint]:
    """Return the operating points of a host with these deviations of its terms, at these batches."""
    running = np.array(batches, float)
    c = CANDIDATE.take(np.zeros(len(batches), np.intp))
    shift = np.array([[deviations.get(name, 0.0) for name in PRIOR.names]])
    token_s = steady(c, efficiency(), running, shift @ PRIOR.groups).token_s
    return [
        OperatingPoint(60 * n, float(batch), float(s), CHAT.prompt_len, CHAT.generated_len)
        for n, (batch, s) in enumerate(zip(batches, token_s, strict=True))
    ]


def test_points_at_different_batches_show_which_terms_deviate_and_one_mean_does_not() -> None:
    odd = {"weights": 0.5, "products": -0.3, "prefill": -0.4}
    seen = truth_points([1, 2, 4, 8, 16, 32] * 3, odd)
    crowd = replace(CHAT, running=96)
    (unseen,) = truth_points([96], odd)
    assert unseen.token_s is not None
    one = seen[1]
    assert one.token_s is not None
    errors = []
    for points in ([], seen):
        known = calibrate(LLAMA_8B, CHAT, MARKET, busy_tok_s=2 / one.token_s, points=points)
        at = forecast(LLAMA_8B, crowd, MARKET, known).running
        assert at is not None
        errors.append(abs(np.log(at.tpot_ms[1] / 1000 / unseen.token_s)))
    assert errors[1] < 0.05 < 0.1 < errors[0]


def test_the_error_shown_is_of_points_predicted_before_they_were_seen() -> None:
    points = truth_points([1, 4, 16, 64] * 4, {"weights": 0.6})
    known = calibrate(LLAMA_8B, CHAT, MARKET, busy_tok_s=50, points=points)
    assert known.error is not None and known.error.n == 15 and known.error.median_log < 0.03
    jumpy = [replace(point, token_s=(point.token_s or 0) * (1.3 if n % 2 else 0.77)) for n, point in enumerate(points)]
    noisy = calibrate(LLAMA_8B, CHAT, MARKET, busy_tok_s=50, points=jumpy)
    assert noisy.error is not None and noisy.error.median_log > 0.15
    at = [forecast(LLAMA_8B, CHAT, MARKET, calibration).running for calibration in (known, noisy)]
    assert at[0] is not None and at[1] is not None
    assert at[0].tok_s[2] / at[0].tok_s[1] < at[1].tok_s[2] / at[1].tok_s[1]
    assert noisy.track_record is not None and "16 minutes" in noisy.track_record


def test_the_newest_point_changes_no_earlier_prediction() -> None:
    points = truth_points([1, 4, 16, 64], {"overheads": 0.4})
    owner, running = np.zeros(4, np.intp), np.array([point.running for point in points])
    c = CANDIDATE.take(owner)

    def errors(seconds: list[float]) -> np.ndarray:
        return prequential(c, efficiency(), PRIOR, per_token(PRIOR, np.array(seconds), running), owner)[0]

    times = [point.token_s or 0.0 for point in points]
    assert errors([*times[:3], 9.0])[:3] == pytest.approx(errors(times)[:3], nan_ok=True)
    assert np.isnan(errors(times)[0])


def test_deployments_calibrated_together_do_not_share_points() -> None:
    slow, fast = (
        BusyMeasurements(LLAMA_8B, CHAT, 60.0, points=tuple(truth_points([1, 8, 64], {"weights": literal})))
        for literal in (1, -0.5)
    )
    mean = BusyMeasurements(LLAMA_70B, CHAT, 33.0)
    together = calibrate_all([slow, mean, fast], MARKET)
    assert together == [calibrate_all([measured], MARKET)[0] for measured in (slow, mean, fast)]


def test_too_few_points_leave_the_mean_of_the_window_in_force() -> None:
    plain = calibrate(LLAMA_8B, CHAT, MARKET, busy_tok_s=50)
    assert calibrate(LLAMA_8B, CHAT, MARKET, busy_tok_s=50, points=truth_points([1, 2], {"weights": 1})) == plain
    assert plain.error is None and plain.track_record is None


def test_a_point_without_a_queue_blames_a_slow_first_token_on_prefill() -> None:
    points = truth_points([1, 2, 4], {})
    slow = [replace(point, ttft_s=2 * first_token_s(CANDIDATE)) for point in points]
    known, plain = (
        calibrate(LLAMA_8B, CHAT, MARKET, busy_tok_s=50, points=operating_points) for operating_points in (slow, points)
    )
    at = PRIOR.names.index("prefill")
    assert known.mean[at] > plain.mean[at] + 0.2


def test_a_change_of_more_than_the_load_rests_on_the_mean_of_the_window() -> None:
    plain = calibrate(LLAMA_8B, CHAT, MARKET, busy_tok_s=50)
    known = calibrate(LLAMA_8B, CHAT, MARKET, busy_tok_s=50, points=truth_points([1, 4, 16, 64], {"weights": 0.6}))
    fp8, batch = LLAMA_8B.but(weight_dtype="fp8"), LLAMA_8B.but(max_num_seqs=64)
    assert known.for_change(LLAMA_8B) is known.for_change(batch) is known
    assert known.for_change(fp8) is known.window and known.window is not None
    assert (known.window.mean, known.window.covariance) == (plain.mean, plain.covariance)
    assert known.window.track_record == known.track_record
    assert plain.for_change(fp8) is plain
    change, unpointed = (compare(LLAMA_8B, fp8, CHAT, MARKET, calibration) for calibration in (known, plain))
    assert isinstance(change, BeforeAfter) and isinstance(unpointed, BeforeAfter) and change.ratio == unpointed.ratio


@pytest.mark.parametrize("slower", [0.05, 0.5, 2.0, 20.0])
@pytest.mark.parametrize("points", [1, 2])
def test_a_point_moves_a_ratio_by_no_more_than_its_share(slower: float, points: int) -> None:
    before, after = (resolve([end], [CHAT], MARKET) for end in (LLAMA_70B, LLAMA_70B.but(weight_dtype="fp8", tp=4)))
    running = np.full(1, CHAT.running)
    expected_s = steady(before, efficiency(), running).token_s
    known = posterior(before, efficiency(), deviation(), [per_token(deviation(), expected_s * slower, running)])
    moved = ratio(before, after, efficiency(), deviation(), (running, running), known, points)
    free = ratio(before, after, efficiency(), deviation(), (running, running), known, np.inf)
    shift, free_shift = (float(end.log_ratio[0] - end.table_log_ratio[0]) for end in (moved, free))
    assert shift == pytest.approx(np.clip(free_shift, -points * MAX_SHIFT, points * MAX_SHIFT), abs=1e-12)
    assert abs(free_shift) > MAX_SHIFT or 0.1 < slower < 10
