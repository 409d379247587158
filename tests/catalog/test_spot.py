from datetime import date

import pytest

from pertoken.catalog.instances import interruption_rate, interruption_rates


def test_every_rate_is_a_band_of_a_share_with_source_and_date() -> None:
    rates = interruption_rates()
    assert rates and all(0 <= rate.low < rate.high <= 1 and rate.source for rate in rates)
    assert all(date(2025, 1, 1) < rate.as_of <= date(2026, 12, 31) for rate in rates)
    keys = [(rate.provider, rate.family) for rate in rates]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("provider", "instance_type", "family"),
    [
        ("aws", "p5.48xlarge", "p5"),
        ("aws", "p5en.48xlarge", None),
        ("aws", "g6e.xlarge", "g6e"),
        ("gcp", "p5.48xlarge", None),
        ("aws", None, None),
        (None, None, None),
    ],
)
def test_a_rate_is_that_of_the_instance_family_of_its_cloud(
    provider: str | None, instance_type: str | None, family: str | None
) -> None:
    rate = interruption_rate(provider, instance_type)
    assert (rate and rate.family) == family
