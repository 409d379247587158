"""Evidence remembers what was read, and reports what was not measured."""

import pytest

from pertoken.evidence import Comparison, Evidence, NotMeasured, Series
from pertoken.metrics import SERIES
from pertoken.provenance import Provenance

RUNNING = Series(2.0, 2.0, 4.0, 5.0, 60, Provenance.REPORTED)


def test_series_are_remembered_in_the_order_of_their_first_reading() -> None:
    seen = Evidence({"running": RUNNING, "waiting": RUNNING})
    assert seen.waiting.p95 == seen.running.p95 == 4.0
    assert seen.has("waiting")
    assert seen.read == ("waiting", "running")
    assert seen.fresh().read == () and seen.fresh() == seen


def test_a_series_that_was_not_measured_names_its_remedy_and_counts_as_read() -> None:
    seen = Evidence({}, {"running": "start an engine"})
    with pytest.raises(NotMeasured, match="running was not measured: start an engine"):
        _ = seen.running
    assert not seen.has("waiting")
    assert seen.read == ("running", "waiting")
    with pytest.raises(NotMeasured) as caught:
        _ = seen.waiting
    assert caught.value.remedy == SERIES["waiting"].remedy
    assert caught.value.sentence == f"requests waiting was not measured: {SERIES['waiting'].remedy}"


def test_a_name_that_is_no_series_is_an_error_that_lists_them() -> None:
    with pytest.raises(ValueError, match="not a series: speed"):
        Evidence({"speed": RUNNING})
    with pytest.raises(AttributeError, match="no series 'speed'; known: "):
        _ = Evidence({}).speed


def test_an_interval_that_holds_1_is_neither_dearer_nor_cheaper() -> None:
    verdicts = {ratio: (Comparison(ratio).dearer, Comparison(ratio).cheaper) for ratio in RATIOS}
    assert verdicts == dict(zip(RATIOS, [(True, False), (False, False), (False, True)], strict=True))
    assert not Comparison(code="few-hours").dearer and not Comparison(code="few-hours").cheaper


RATIOS = ((1.01, 1.1, 1.2), (0.99, 1.1, 1.2), (0.8, 0.9, 0.99))


def test_the_cost_of_the_earlier_epoch_is_known_where_the_ratio_is() -> None:
    assert Comparison((1.1, 1.25, 1.4), 100, 500.0).earlier_s_per_mtok == pytest.approx(400.0)
    assert Comparison(code="few-hours").earlier_s_per_mtok is None
