"""Evidence series: each with a unit and a remedy."""

from pertoken.metrics import SERIES


def test_each_series_has_a_unit_and_a_remedy_for_when_it_was_not_measured() -> None:
    assert all(series.unit and series.remedy for series in SERIES.values())
