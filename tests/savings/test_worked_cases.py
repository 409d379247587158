"""The worked cases of docs/how-the-numbers-are-made.md: each figure on the page is what the code computes."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pertoken.costs.prices.stored import Ownership, device_hour
from pertoken.savings.estimate import Estimate
from pertoken.savings.outcome import busy_cost
from pertoken.state.deployment import Placement
from pertoken.state.service import Service
from pertoken.units import NANO_USD
from tests.deployments import MARKET
from tests.savings.fleets import AWS, FOUR, ONE, PAIR, chat, context, fleet_of, host, llama, low_batch, priced

PAGE = Path(__file__).parents[2] / "docs" / "how-the-numbers-are-made.md"
Figures = dict[str, float]


def usd(estimate: Estimate) -> Figures:
    assert estimate.net is not None and estimate.capacity is not None
    return {
        "bankable_usd_per_month": estimate.net[1] / NANO_USD,
        "capacity_usd_per_month": estimate.capacity[1] / NANO_USD,
        "hosts_released": len(estimate.released),
    }


def half_idle_host() -> Figures:
    dollars = usd(priced(ONE, chat(ONE).but(weight_dtype="fp8")))
    assert dollars.pop("capacity_usd_per_month") > 0  # by the forecast, whose fit changes: no figure of the page
    return dollars


def four_replicas() -> Figures:
    busy = low_batch(generated_tok_s=1200, busy_generated_tok_s=1300, running=60, prompt_tok_s=4800, requests_s=3.0)
    return usd(priced(FOUR, chat(FOUR).but(weight_dtype="fp8").resized(), seen=busy))


def part_of_an_instance() -> Figures:
    one = host(1, 8, replace(AWS, instance_type="p5.48xlarge"))
    deployments = tuple(llama(at, one.device_ids[2 * at : 2 * at + 2]) for at in range(4))
    fleet = fleet_of([Service("chat", deployments)], [one])
    return usd(priced(fleet, chat(fleet).resized()))


def committed_host() -> Figures:
    fleet = fleet_of([], [host(1, placement=replace(AWS, purchase="reserved"))])
    return usd(priced(fleet, fleet.release(1)))


def spot_without_discount() -> Figures:
    market = MARKET.having([PAIR, replace(PAIR, purchase="spot")])
    estimate = priced(FOUR, chat(FOUR).on(Placement(purchase="spot"), all_but=1), market=market)
    return {"bankable_usd_per_month": 0.0 if estimate.net is None else estimate.net[1] / NANO_USD}


def owned_gpu() -> Figures:
    terms: dict[str, Any] = {"years": 4.0, "cost_of_capital": 0.08, "residual": 0.1, "maintenance": 0.05, "pue": 1.3}
    cost = device_hour(Ownership(300_000, usd_per_kwh=0.1, **terms), 8, 500.0)
    return {
        "capital_usd": cost.capital,
        "maintenance_usd": cost.maintenance,
        "energy_usd": cost.energy,
        "device_hour_usd": cost.nano_usd / NANO_USD,
    }


def a100_or_h100() -> Figures:
    """Decode of 16-bit weights reads memory: dollars for a terabyte read at full bandwidth."""
    at = ("aws", "us-east-1")
    return {
        "a100_usd_per_1000_tb": usd_per_1000_tb("A100 80GB SXM4", listed("A100 80GB SXM4", *at)),
        "h100_usd_per_1000_tb": usd_per_1000_tb("H100 SXM5", listed("H100 SXM5", *at)),
    }


def mi300x() -> Figures:
    """Return the same at a hyperscaler's list price, and at what a neocloud asks for over three years."""
    return {
        "azure_usd_per_1000_tb": usd_per_1000_tb("MI300X", listed("MI300X", "azure", "eastus2")),
        "neocloud_usd_per_1000_tb": usd_per_1000_tb("MI300X", 1.55),
        "h100_at_aws_usd_per_1000_tb": usd_per_1000_tb("H100 SXM5", listed("H100 SXM5", "aws", "us-east-1")),
        "h100_at_lambda_usd_per_1000_tb": usd_per_1000_tb("H100 SXM5", listed("H100 SXM5", "lambda", "any")),
    }


def listed(accelerator: str, provider: str, region: str) -> float:
    """Dollars of a device-hour, the cheapest there."""
    offers = (offer for offer in MARKET.offers(accelerator) if (offer.provider, offer.region) == (provider, region))
    return next(offers).nano_usd_per_device_hour / NANO_USD


def usd_per_1000_tb(accelerator: str, usd_per_hour: float) -> float:
    device = MARKET.accelerator(accelerator)
    assert device is not None
    return 1000 * usd_per_hour / 3600 / (device.memory_bytes_per_s / 1e12)


def shared_device() -> Figures:
    both = [Service("chat", (llama(1, (10, 11)),)), Service("code", (llama(2, (10, 11), "code"),))]
    fleet = fleet_of(both, [host(1)])
    known = replace(context(fleet), deployments={1: low_batch(busy=0.9), 2: low_batch(busy=0.6)})

    def hourly(number: int) -> float:
        one = fleet.deployment(number)
        return busy_cost(fleet, one, one.device_ids, known).nano_usd_per_hour / NANO_USD

    return {
        "chat_usd_per_hour": hourly(1),
        "code_usd_per_hour": hourly(2),
        "together_usd_per_hour": hourly(1) + hourly(2),
    }


CASES: dict[str, Callable[[], Figures]] = {
    case.__name__.replace("_", "-"): case
    for case in (
        half_idle_host, four_replicas, part_of_an_instance, committed_host, spot_without_discount, owned_gpu,
        a100_or_h100, mi300x, shared_device,
    )
}  # fmt: skip


def on_the_page() -> dict[str, Figures]:
    blocks = re.findall(r"^```worked ([a-z0-9-]+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return {
        name: {key.strip(): float(value) for key, value in (line.split("=") for line in text.splitlines())}
        for name, text in blocks
    }


def test_every_case_stands_on_the_page() -> None:
    assert set(on_the_page()) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_the_page_has_the_figures_that_the_code_computes(name: str) -> None:
    assert on_the_page()[name] == pytest.approx(CASES[name](), rel=1e-4, abs=1e-6)
