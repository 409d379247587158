import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.agent.readings import ProbeReading
from pertoken.agent.sampler.wire import decode, encode


@given(st.from_type(ProbeReading))
def test_a_reading_comes_back_as_it_went_in(reading: ProbeReading) -> None:
    line = encode(reading)
    assert "\n" not in line
    assert decode(line) == reading


@pytest.mark.parametrize("line", ["", "nvml says hello", "[]", "{}", '{"host": {}, "devices": [], "gaps": []}'])
def test_a_line_that_is_no_reading_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        decode(line)
