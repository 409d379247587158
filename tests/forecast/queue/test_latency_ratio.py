"""Ratio of two forecast latencies: exact where nothing changes, narrower than either forecast elsewhere."""

from dataclasses import replace

import pytest

from benchmarks.calibrate import calibrate
from pertoken.arrivals import Arrivals, typical
from pertoken.forecast.host import Calibration
from pertoken.forecast.latency import SAME, Latency, ratios
from pertoken.forecast.served import Load
from pertoken.state.deployment import Deployment
from tests.deployments import MARKET
from tests.forecast.builders import latency
from tests.forecast.queue.test_latency import deployment

CHAT = Load(generated_tok_s=400, prompt_len=1155, generated_len=211, running=8)
PROMPT, ANSWER = typical("conversation")
KNOWN = calibrate(deployment(), CHAT, MARKET, busy_tok_s=1000, tpot_ms=8.0)


def at(requests_per_s: float, of: Deployment, known: Calibration = KNOWN) -> Latency:
    return latency(of, CHAT, Arrivals(requests_per_s, PROMPT, ANSWER), known)


def test_a_change_of_nothing_has_a_ratio_of_one_without_doubt() -> None:
    before = at(2.0, deployment())
    assert ratios(before, before, KNOWN, same_load=True) == (SAME,) * 4


def test_a_ratio_is_that_of_the_likely_figures() -> None:
    before, after = at(2.0, deployment()), at(2.0, deployment(weight_dtype="fp8"))
    for name, ratio in zip(
        ("ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", "tpot_p95_ms"),
        ratios(before, after, KNOWN, same_load=True),
        strict=True,
    ):
        assert ratio[1] == pytest.approx(getattr(after, name)[1] / getattr(before, name)[1])
        assert ratio[0] < ratio[1] < ratio[2]


def test_errors_that_both_share_cancel() -> None:
    before, after = at(2.0, deployment()), at(4.0, deployment())
    assert after.tpot_p95_ms is not None and before.tpot_p95_ms is not None
    *_, tpot_p95 = ratios(before, after, KNOWN, same_load=False)
    assert tpot_p95[2] / tpot_p95[0] < after.tpot_p95_ms[2] / after.tpot_p95_ms[0]


def test_a_larger_change_is_less_certain() -> None:
    before = at(1.0, deployment())
    widths = []
    for rate in (2.0, 8.0, 12.0):
        *_, ratio = ratios(before, at(rate, deployment()), KNOWN, same_load=False)
        widths.append(ratio[2] / ratio[0])
    assert widths == sorted(widths)


def test_another_load_is_a_change_though_the_deployment_stays() -> None:
    before = at(2.0, deployment())
    copied = replace(before)
    assert all(ratio == SAME for ratio in ratios(before, copied, KNOWN, same_load=True))
    assert all(ratio[0] < 1 < ratio[2] for ratio in ratios(before, copied, KNOWN, same_load=False))
