"""Effect of a change of prices on the dollars so far."""

from pathlib import Path

from pertoken.costs.prices.book import Price
from pertoken.costs.repricing import read_prices, repriced
from tests.scenario import H100, LOW_BATCH_70B, seed
from tests.values import new_store

END = 1_790_000_000 // 3600 * 3600
NANO = 10**9


def test_a_new_price_changes_the_dollars_of_the_devices_it_names_since_it_is_in_force(tmp_path: Path) -> None:
    where = seed(new_store(tmp_path), LOW_BATCH_70B, gpus=2, usd_per_hour=2.0, minutes=60, end_ts=END)
    known = read_prices(where, END)
    assert {device.name for device in known.named("H100")} == {H100}
    assert not known.unpriced("H100") and known.unpriced("B200")
    later = known.having(Price("H100", 4 * NANO, END - 1800, END, "someone", None, seq=known.seq + 1))
    (change,) = repriced(where, known.book, later, END - 1800, END)
    assert (change.name, len(change.devices)) == (H100, 2)
    assert change.before is not None and change.after == 2 * change.before
    assert abs(change.device_ms - 2 * 1800 * 1000) <= 2 * 60_000


def test_prices_of_a_database_in_which_nothing_was_recorded_are_known(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    where.file("telemetry").unlink()
    known = read_prices(where, END)
    assert (known.devices, known.seq, known.book.prices) == ((), 0, ())
    assert repriced(where, known.book, known.book, 0, END) == ()
