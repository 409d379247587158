"""Energy dollars: of power caps and of less busy time, on owned hardware."""

from dataclasses import replace

from pertoken.savings.context import NOTHING, EnergyPrice
from pertoken.state.service import Service, Slo
from tests.savings.fleets import (
    AWS,
    ONE,
    chat,
    fleet_of,
    host,
    llama,
    low_batch,
    owned,
    priced,
    usd_month,
)


def test_a_power_cap_saves_energy_dollars_of_owned_hardware_and_none_of_rented() -> None:
    rented = priced(ONE, chat(ONE).but(power_cap_w=450))
    assert rented.net == NOTHING and any("whoever pays for the electricity" in reason for reason in rented.against)
    fleet = fleet_of([Service("chat", (llama(1, (10, 11)),))], [host(1, placement=replace(AWS, purchase="owned"))])
    unset = priced(fleet, chat(fleet).but(power_cap_w=350))
    assert unset.unpriced is not None and "energy.usd_per_kwh" in unset.unpriced
    seen = low_batch(power_w=2 * 550)
    owned = priced(fleet, chat(fleet).but(power_cap_w=350), seen=seen, energy=EnergyPrice(120_000_000, 1.3))
    assert owned.net is not None and 0 < owned.net[0] < owned.net[1] < usd_month(0.12)


def test_a_faster_model_on_owned_hardware_saves_the_energy_of_its_busy_time() -> None:
    fleet, power = owned(), EnergyPrice(120_000_000, 1.3)
    seen = low_batch(power_w=2 * 400)
    faster = priced(fleet, chat(fleet).but(weight_dtype="fp8"), seen=seen, energy=power)
    assert faster.net is not None and faster.capacity is not None and faster.capacity[1] > 0
    assert 0 <= faster.net[0] < faster.net[1] < faster.net[2]
    # Less than all that the two devices draw: 800 W at $0.12 a kilowatt-hour and a PUE of 1.3.
    assert faster.net[2] < usd_month(0.8 * 0.12 * 1.3)
    assert any("W while busy after the change" in assumption for assumption in faster.assumptions)
    unset = priced(fleet, chat(fleet).but(weight_dtype="fp8"), seen=seen)
    rented = priced(ONE, chat(ONE).but(weight_dtype="fp8"), seen=seen, energy=power)
    assert unset.net == NOTHING and rented.net == NOTHING


def test_a_power_cap_that_misses_the_objective_is_refused() -> None:
    fleet, seen = owned(), low_batch(power_w=2 * 550)
    known = {"seen": seen, "energy": EnergyPrice(120_000_000, 1.3)}
    estimate = priced(fleet, chat(fleet).but(power_cap_w=350), slo=Slo(tpot_p95_ms=28.1), **known)
    assert estimate.infeasible is not None and "with an SLO of 28 ms" in estimate.infeasible
    assert priced(fleet, chat(fleet).but(power_cap_w=350), slo=Slo(tpot_p95_ms=100.0), **known).infeasible is None
