"""Evidence remembers what was read, and reports what was not measured."""

import pytest

from pertoken.evidence import Evidence, NotMeasured, Series
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


def test_a_name_that_is_no_series_is_an_error_that_lists_them() -> None:
    with pytest.raises(ValueError, match="not a series: speed"):
        Evidence({"speed": RUNNING})
    with pytest.raises(AttributeError, match="no series 'speed'; known: "):
        _ = Evidence({}).speed
