"""Series of devices: who held them, and what cannot be known of that."""

from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.catalog.market import load_market
from pertoken.provenance import Provenance
from pertoken.store.connect.open import open_store
from pertoken.store.schema.rows import DeviceSample, DeviceShare, UnreadableMetric
from pertoken.window.evidence import DeviceSeries
from pertoken.window.reading import Window
from tests.values import new_store
from tests.window.test_evidence import NOW, stored


def test_a_device_that_two_hold_is_held_for_what_both_hold_of_it(tmp_path: Path) -> None:
    shares = (
        DeviceShare(5, epoch, 0, 60_000, share, 0, Provenance.REPORTED)
        for epoch, share in ((9, 500_000), (10, 250_000))
    )
    samples: list[DeviceSample | DeviceShare] = [DeviceSample(5, 0, 60_000, 60_000), *shares]
    held = stored(tmp_path, *[samples] * 10).context.devices[5].held
    assert held.mean == pytest.approx(0.75)
    assert held.p50 == pytest.approx(0.75)


def series_of(folder: Path) -> DeviceSeries:
    """Return the series of a device over ten minutes; a deployment held half of it in the last five."""
    sample, share = DeviceSample(5, 0, 60_000, 60_000), DeviceShare(5, 9, 0, 60_000, 500_000, 0, Provenance.REPORTED)
    alone: list[DeviceSample | DeviceShare] = [sample]
    stored(folder, *[alone] * 5, *[[*alone, share]] * 5)
    with open_store(new_store(folder)).read() as connection:
        reader = Window(connection, NOW - 600, NOW).evidence(load_market())
    return DeviceSeries(reader.inventory, reader.measured, {}, {})


def test_buckets_before_the_owners_of_a_device_are_known_do_not_count(tmp_path: Path) -> None:
    known = series_of(tmp_path)
    assert known.observed_ms(5) == 600_000
    held = known.find("held", (5,))
    assert held is not None and held.summary().mean == 0.25
    later = replace(known, owners_known_since={5: (NOW - 300) // 60 * 60})
    assert later.observed_ms(5) == 300_000
    held = later.find("held", (5,))
    assert held is not None and (held.summary().mean, held.summary().n) == (0.5, 5)


def test_that_nobody_held_a_device_is_not_known_where_processes_cannot_be_read(tmp_path: Path) -> None:
    hidden = UnreadableMetric(5, "processes", "missing", None, None, 0)
    assert replace(series_of(tmp_path), missing={5: [hidden]}).find("held", (5,)) is None
