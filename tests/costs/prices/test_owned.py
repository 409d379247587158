"""The cost of owning a server, by hand."""

from dataclasses import replace

import pytest

from pertoken.catalog.owned import terms
from pertoken.costs.prices.owned import Ownership, device_hour, owned_prices, ownership_of
from pertoken.units import NANO_USD

H100 = Ownership(capex_usd=8 * 38_000, nameplate_kw=8 * 1.27, years=4, cost_of_capital=0.10, residual=0.0)
"""The worked case of the facts: $38,000 for each H100 with its share of the server, $1.89 an hour."""
WEEK = 7 * 86_400


def test_the_worked_case_of_an_h100_by_hand() -> None:
    cost = device_hour(H100, 8, power_w=870)
    assert cost.capital == pytest.approx(1.37, abs=0.005)
    assert cost.energy == pytest.approx(0.09, abs=0.005)
    assert cost.colocation == pytest.approx(0.26, abs=0.005)
    assert cost.maintenance == pytest.approx(0.17, abs=0.005)
    assert cost.nano_usd / NANO_USD == pytest.approx(1.89, abs=0.01)


def test_without_interest_capital_is_a_straight_line_and_a_residual_is_not_written_off() -> None:
    plain = Ownership(8 * 8760.0, years=5, cost_of_capital=0, residual=0.2, maintenance=0)
    assert device_hour(plain, 8, None).capital == pytest.approx(0.8 / 5)
    assert device_hour(plain, 8, None).nano_usd == round(0.16 * NANO_USD), "no energy was measured, no room stated"


def test_a_default_is_named_where_it_is_used() -> None:
    assert Ownership(1000).assumed == tuple(name for name in terms() if name != "colo_usd_per_kw_month")
    assert replace(H100, pue=1.1).assumed == ("maintenance", "usd_per_kwh", "colo_usd_per_kw_month")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"capex_usd": 0}, "capex is the price of the server"),
        ({"pue": 0.9}, "pue .* is from 1 to 5"),
        ({"years": 0.5}, "years .* usually 3 to 6"),
        ({"nameplate_kw": -1}, "nameplate_kw"),
    ],
)
def test_a_value_out_of_range_is_named(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ownership(**{"capex_usd": 1000.0, **fields})


def test_a_cost_of_owning_is_read_back_unchanged() -> None:
    assert ownership_of(H100.text) == H100
    assert ownership_of('{"capex_usd": 5, "of_a_newer_pertoken": 1}') == Ownership(5)


def test_a_week_that_is_over_keeps_its_price_when_the_power_of_another_changes() -> None:
    def prices(*power: tuple[int, float]) -> list[tuple[int, int | None]]:
        book_prices = owned_prices("GPU-1", "gpu-1", 8, [(0, H100)], power)
        return [(price.from_ts, price.nano_usd_per_device_hour) for price in book_prices]

    first, second = (10 * WEEK, 400.0), (11 * WEEK, 600.0)
    before, after = prices(first), prices(first, second)
    assert before == after[:1] and after[1][0] == 11 * WEEK
    dearer = 0.2 * 1.3 * 0.08  # kW, PUE, $/kWh
    assert (after[1][1] or 0) - (after[0][1] or 0) == pytest.approx(dearer * NANO_USD, abs=2)


def test_changed_terms_count_from_their_day_and_the_note_names_measured_and_assumed_ones() -> None:
    cheaper = replace(H100, capex_usd=4 * 38_000.0)
    one, other = owned_prices("GPU-1", "gpu-1", 8, [(0, H100), (12 * WEEK, cheaper)], [(10 * WEEK, 400.0)])
    assert (one.from_ts, other.from_ts) == (0, 12 * WEEK)
    assert (other.nano_usd_per_device_hour or 0) < (one.nano_usd_per_device_hour or 0)
    assert one.listed and one.note == (
        "cost of owning gpu-1 ($304,000 for 8 devices, at 400 W measured; assumed: maintenance, usd_per_kwh, pue, "
        "colo_usd_per_kw_month)"
    )
    (unmeasured,) = owned_prices("GPU-1", "gpu-1", 8, [(0, H100)], ())
    assert "without its energy, which was not measured" in (unmeasured.note or "")
