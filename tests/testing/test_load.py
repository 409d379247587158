import pytest

from pertoken.testing.load import Load


def test_running_requests_follow_from_arrivals_and_the_time_each_takes() -> None:
    seen = Load(0.1, 700, 250, 0.06, 0.0085, 0.15).evidence
    assert seen.running.mean * seen.busy.mean == pytest.approx(0.1 * (0.06 + 250 * 0.0085))
    assert seen.generated_tok_s.mean == pytest.approx(25)


def test_what_a_host_does_not_measure_is_missing() -> None:
    assert not Load(0.1, 700, 250, 0.06, 0.0085, 0.15).evidence.has("dram_active")
    assert Load(0.1, 700, 250, 0.06, 0.0085, 0.15, dram_active=0.4).evidence.dram_active.mean == 0.4
