"""Sums over a window: of all epochs of a deployment together, and of all intervals."""

from collections import namedtuple
from typing import Any

from pertoken.provenance import Provenance
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.window.reading import Window
from pertoken.window.series import quantile
from pertoken.window.totals import summed
from tests.window.conftest import END, MINUTES

Row = namedtuple("Row", "epoch_id tokens busy_provenance")


def test_sums_of_intervals_add_up_and_the_worst_provenance_counts() -> None:
    first: list[Any] = [Row(1, 10, int(Provenance.COUNTER)), Row(2, None, None)]
    second: list[Any] = [Row(1, 5, int(Provenance.BOUND))]
    by_epoch = summed((first, second))
    assert by_epoch[1] == {"tokens": 15, "busy_provenance": int(Provenance.BOUND)}
    assert by_epoch[2]["tokens"] is None


def test_a_window_cut_in_two_has_the_sums_of_the_whole(recorded_db: StoreLocation) -> None:
    with open_store(recorded_db).read() as connection:
        window = Window(connection, END - 1800, END)
        (deployment_id,) = window.inventory.running
        (epoch_id,) = window.inventory.deployment_of
        whole, cut = (window.totals(window.intervals(cuts)) for cuts in ((), (END - 600,)))
        sums, parts = whole.of(deployment_id), cut.of(deployment_id)
        assert (len(whole.intervals), len(cut.intervals)) == (1, 2)
        details = window.details()
        slices = list(details.slices(epoch_id))
        ttft_s = quantile(details.histogram(deployment_id, "ttft_s"), 0.5)
        unknown = quantile(details.histogram(deployment_id, "no_such_metric"), 0.5)
        assert whole.busy_ms(epoch_id) == sums["busy_ms"] == cut.busy_ms(epoch_id)
    assert sums["generated_tokens"] == parts["generated_tokens"] and sums["generated_tokens"]
    assert sum(row[1] for row in slices) == sums["generated_tokens"]
    assert len(slices) <= MINUTES
    assert ttft_s is not None and unknown is None
