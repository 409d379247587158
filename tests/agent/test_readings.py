"""Readings of devices."""

from pertoken.agent.readings import reading_of, unread
from tests.agent.values import gpu


def test_a_later_reading_of_a_device_keeps_who_it_is_and_none_of_its_figures() -> None:
    known = gpu(0, 101)._replace(memory_bytes=80 * 10**9)
    reading = reading_of(known, power_mw=1_000)
    assert (reading.uuid, reading.name, reading.power_mw, reading.energy_mj) == (known.uuid, known.name, 1_000, None)


def test_a_device_that_was_not_read_has_no_figures_and_the_reason() -> None:
    device = unread(gpu(0, 101), "the driver hangs")
    assert (device.uuid, device.power_mw, device.processes) == ("GPU-0", None, None)
    assert device.lost == "the driver hangs"
