from hypothesis import given
from hypothesis import strategies as st

from pertoken.agent.readings import JUMPED, DeviceReading, EnergyStep, energy_step

GPU = DeviceReading(uuid="GPU-1", kind="gpu", vendor="NVIDIA", name="NVIDIA H100 80GB HBM3", power_limit_mw=700_000)
COUNTS = st.none() | st.integers(0, 2**64 - 1)
POWERS = st.none() | st.integers(0, 2_000_000)


def at(energy_mj: int | None, power_mw: int | None = None, **fields: int | None) -> DeviceReading:
    return GPU._replace(energy_mj=energy_mj, power_mw=power_mw, **fields)


def test_counter_and_integral_stand_side_by_side() -> None:
    assert energy_step(at(1_000, 300_000), at(4_001_000, 500_000), 10_000) == EnergyStep(4_000_000, 4_000_000)


def test_a_counter_that_fell_was_reset_and_the_integral_stands() -> None:
    step = energy_step(at(5_000_000, 300_000), at(10, 300_000), 1_000)
    assert (step.counter_mj, step.integral_mj) == (None, 300_000)
    assert step.fault is not None and "reset" in step.fault


def test_a_jump_past_the_power_limit_is_not_believed() -> None:
    step = energy_step(at(0, 300_000), at(2_100_001, 300_000), 1_000)
    assert (step.counter_mj, step.integral_mj) == (None, 300_000)
    assert step.fault is not None and "jumped" in step.fault
    assert energy_step(at(0), at(2_100_000), 1_000).counter_mj == 2_100_000


def test_without_a_power_limit_only_more_than_any_device_draws_is_a_jump() -> None:
    assert energy_step(at(0), at(10**7, power_limit_mw=None), 1_000).counter_mj == 10**7
    assert energy_step(at(0), at(10**7 + 1, power_limit_mw=None), 1_000) == EnergyStep(None, None, JUMPED)


def test_a_counter_stuck_under_power_is_not_taken_for_no_energy() -> None:
    step = energy_step(at(77, 300_000), at(77, 300_000), 10_000)
    assert (step.counter_mj, step.integral_mj) == (None, 3_000_000)
    assert step.fault is not None and "stands still" in step.fault


def test_a_wrap_is_not_a_reset() -> None:
    before, after = at(262_143_000, power_limit_mw=None), at(400, power_limit_mw=None, energy_wraps_mj=262_143_328)
    assert energy_step(before, after, 10_000) == EnergyStep(728, None)


def test_unread_values_are_unknown_and_need_no_note() -> None:
    assert energy_step(at(None), at(5, 100), 1_000) == EnergyStep(None, None)


@given(
    COUNTS,
    COUNTS,
    POWERS,
    POWERS,
    st.none() | st.integers(1, 2**40),
    st.none() | st.integers(0, 10**6),
    st.integers(),
)
def test_energy_is_never_negative_and_never_past_the_limit(
    first: int | None, then: int | None, p0: int | None, p1: int | None, wraps: int | None, limit: int | None, ms: int
) -> None:
    step = energy_step(at(first, p0), at(then, p1, energy_wraps_mj=wraps, power_limit_mw=limit), ms)
    assert step.counter_mj is None or step.counter_mj >= 0
    assert step.integral_mj is None or step.integral_mj >= 0
    if step.counter_mj is not None and limit:
        assert step.counter_mj * 1000 <= limit * ms * 3
    if first is not None and then is not None and step.counter_mj is None:
        assert step.fault


@given(st.integers(1, 10**9), st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_steps_of_a_wrapping_counter_sum_to_what_it_counted(wraps: int, increases: list[int]) -> None:
    truth, steps = 0, []
    for increase in increases:
        increase = min(increase, wraps - 1)
        before, truth = truth, truth + increase
        step = energy_step(at(before % wraps), at(truth % wraps, energy_wraps_mj=wraps, power_limit_mw=None), 1_000)
        steps.append(step.counter_mj or 0)
    assert sum(steps) == truth


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(2, 10**6))
def test_the_integral_lies_between_its_two_powers(p0: int, p1: int, ms: int) -> None:
    integral = energy_step(at(None, p0), at(None, p1), ms).integral_mj
    assert integral is not None
    assert min(p0, p1) * ms // 1000 <= integral <= max(p0, p1) * ms / 1000
