from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.standin_nvml import Gpu, Machine, Wave, eight


@given(
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.floats(1, 1000),
    st.floats(0, 1000),
    st.sampled_from(["sine", "square"]),
)
def test_the_integral_equals_the_sum_of_small_steps_of_the_wave(
    mean: float, swing: float, period_s: float, interval_s: float, shape: Literal["sine", "square"]
) -> None:
    wave, steps = Wave(mean, swing, period_s, shape), 20_000
    step_s = interval_s / steps
    summed = sum(wave.at((i + 0.5) * step_s) for i in range(steps)) * step_s
    jumps = interval_s / period_s * 2 + 1
    assert wave.integral(interval_s) == pytest.approx(summed, rel=1e-3, abs=swing * step_s * jumps + 1e-6)


def test_a_machine_survives_the_environment_variable() -> None:
    machine = Machine(
        gpus=(*eight(processes=((1, None), (2, 5))), Gpu("GPU-x", unsupported=("f",), lost_after=3)),
        without=("g",),
        hang=("h", 2, "/fifo"),
    )
    assert Machine.from_text(repr(machine)) == machine
