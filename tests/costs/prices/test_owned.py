"""The cost of owning a server, by hand."""

from dataclasses import replace
from typing import Any

import pytest

from pertoken.catalog.instances import terms
from pertoken.costs.prices.stored import Ownership, device_hour, owned_prices, ownership_of, paid_power_w
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
    unused = ("colo_usd_per_kw_month", "operations_hours", "usd_per_operations_hour")
    assert Ownership(1000).assumed == tuple(name for name in terms() if name not in unused)
    assert "usd_per_operations_hour" in Ownership(1000, operations_hours=20).assumed
    assert replace(H100, pue=1.1).assumed == ("maintenance", "usd_per_kwh", "colo_usd_per_kw_month")


def test_a_device_pays_for_its_part_of_the_power_of_its_server() -> None:
    at_plug = replace(H100, at_plug=True)
    assert paid_power_w(H100, 8, 400.0, 700.0) == 400.0, "terms of an older version are of the devices alone"
    assert paid_power_w(at_plug, 8, 400.0, 700.0) == pytest.approx(0.37 * 700 + 1.095 * 400)
    assert paid_power_w(at_plug, 8, 400.0, None) == 400.0 and paid_power_w(at_plug, 8, None, 700.0) is None
    assert paid_power_w(replace(at_plug, node_w=5600.0), 8, None, 700.0) == 700.0
    notes = [
        owned_prices("GPU-1", "gpu-1", 8, [(0, stated)], [(0, 400.0)], limit)[0].note or ""
        for stated, limit in ((at_plug, 700.0), (at_plug, None), (replace(at_plug, node_w=8000.0), 700.0))
    ]
    assert "at 697 W of the server's power at the plug, modelled" in notes[0]
    assert "without the rest of the server" in notes[1] and "at 1000 W" in notes[2] and "measured" in notes[2]


def test_power_recorded_at_the_plug_takes_the_place_of_the_model_week_by_week() -> None:
    at_plug = replace(H100, at_plug=True, pue=1.0, usd_per_kwh=0.1)
    assert paid_power_w(at_plug, 8, 400.0, 700.0, plug_w=8000.0) == 1000.0
    assert paid_power_w(replace(at_plug, node_w=5600.0), 8, 400.0, 700.0, plug_w=8000.0) == 700.0, "a person knows best"
    plug = [(WEEK, 8000.0), (2 * WEEK, 4000.0)]
    prices = owned_prices("GPU-1", "gpu-1", 8, [(0, at_plug)], [(0, 400.0)], 700.0, plug)
    assert [price.from_ts for price in prices] == [0, 2 * WEEK], (
        "the first week that was measured stands for those before"
    )
    assert "at 1000 W of the server's power at the plug, measured" in (prices[0].note or "")
    at_1000_w, at_500_w = (price.nano_usd_per_device_hour or 0 for price in prices)
    assert at_1000_w - at_500_w == pytest.approx(0.05 * NANO_USD)


def test_people_who_run_a_server_are_a_part_of_its_cost() -> None:
    cost = device_hour(replace(H100, operations_hours=87.6, usd_per_operations_hour=80.0), 8, None)
    assert cost.operations == pytest.approx(0.1)
    assert cost.nano_usd - device_hour(H100, 8, None).nano_usd == pytest.approx(NANO_USD / 10)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"capex_usd": 0}, "capex is the price of the server"),
        ({"pue": 0.9}, "pue .* is from 1 to 5"),
        ({"years": 0.5}, "years .* usually 3 to 6"),
        ({"nameplate_kw": -1}, "nameplate_kw"),
        ({"node_w": 0}, "node_w is the mean power"),
    ],
)
def test_a_value_out_of_range_is_named(fields: dict[str, Any], message: str) -> None:
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
