"""Strict count of the constants that tune the forecast."""

from pertoken.forecast.efficiency import table
from tools.constants import counted, exempt, literals, table_values, unused

MAX_CONSTANTS = 74
"""A new one replaces another."""


def test_no_constant_is_added_to_the_forecast() -> None:
    assert counted().total() <= MAX_CONSTANTS, "print them with `python -m tools.constants`"


def test_each_fitted_constant_counts_and_each_exemption_is_of_a_number_that_is_there() -> None:
    fitted = [place for place in counted() if place.startswith("efficiency.toml: terms.")]
    assert len(fitted) == table()["fit"]["parameters"]
    assert not unused()
    assert "calibration.py: POINT_SD" in counted() and "served.py: PCIE_BYTES_PER_S" not in counted()


def test_every_number_of_the_package_is_counted_or_exempt_for_a_reason() -> None:
    places = {*table_values(), *literals()}
    assert set(counted()) <= places
    assert set(exempt()) == {"facts", "storage", "measured", "mathematics", "numerics"}
