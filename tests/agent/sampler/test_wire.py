import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.agent.readings import IDENTITY, DeviceProcess, DeviceReading, DriverEvent, DriversReading, Unavailable
from pertoken.agent.sampler.wire import decode, encode

VALUES = [name for name in DeviceReading._fields[4:] if name not in ("processes", "unavailable")]
devices = st.builds(
    DeviceReading,
    *(st.text() for _ in range(4)),
    processes=st.none() | st.lists(st.from_type(DeviceProcess)).map(tuple),
    unavailable=st.lists(st.from_type(Unavailable)).map(tuple),
    **{name: st.none() | st.integers() | (st.text() if name in IDENTITY else st.nothing()) for name in VALUES},
)
readings = st.builds(
    DriversReading,
    st.lists(devices).map(tuple),
    st.lists(st.from_type(Unavailable)).map(tuple),
    st.lists(st.from_type(DriverEvent)).map(tuple),
    st.integers(),
    st.integers(),
    st.integers(),
)


@given(readings)
def test_a_reading_comes_back_as_it_went_in(reading: DriversReading) -> None:
    line = encode(reading)
    assert "\n" not in line
    assert decode(line) == reading


@pytest.mark.parametrize("line", ["", "nvml: hello", "[]", "{}", '{"devices": [], "gaps": []}'])
def test_a_line_that_is_no_reading_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        decode(line)
