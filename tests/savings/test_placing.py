"""Moves placed on whole instances: provider, region, instance, count and price by hand."""

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertoken.advisor.probed import cpu_accelerator
from pertoken.catalog.market import Market, MeasuredRates, load_market
from pertoken.catalog.offers import Offer, Origin
from pertoken.savings.estimate import estimate
from pertoken.savings.placing import NO_PRICE, NOT_OFFERED, NotPlaced, Placed, paid_offer, place
from pertoken.state.deployment import Placement
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service
from pertoken.units import HOURS_PER_MONTH
from tests.deployments import MARKET, model
from tests.examples import examples
from tests.savings.fleets import context, fleet_of, host, llama, low_batch

NANO = 1_000_000_000
DAY = date(2026, 9, 1)


def at(
    instance: str | None, accelerator: str, devices: int | None, region: str | None = "us-east-1", **fields: str
) -> Placement:
    return Placement(
        **{"provider": "aws", "purchase": "on_demand", **fields},
        region=region,
        instance_type=instance,
        accelerator=accelerator,
        devices_per_instance=devices,
    )


P5 = at("p5.48xlarge", "H100 SXM5", 8)
P5_SMALL = at("p5.4xlarge", "H100 SXM5", 1)
TOKYO = replace(P5, region="ap-northeast-1")
LONDON = replace(P5, region="eu-west-2")
P4D = at("p4d.24xlarge", "A100 40GB SXM4", 8)
LAMBDA = Placement("lambda", None, "gpu_1x_h100_sxm5", "H100 SXM5", 1, "on_demand")
LAMBDA_A100 = Placement("lambda", "any", "gpu_8x_a100_80gb_sxm4", "A100 80GB SXM4", 8, "on_demand")
GCP = Placement("gcp", "us-east4", "a3-highgpu-8g", "H100 SXM5", 8, "on_demand")
UNKNOWN = Placement(accelerator="H100 SXM5")


def on(accelerator: str) -> Placement:
    return Placement(accelerator=accelerator)


SPOT = Placement(purchase="spot")
GRAVITON = "Neoverse-V2 (c8g.4xlarge)"


class Move(NamedTuple):
    """A move of replicas of some ranks, and the instances that it takes."""

    name: str
    now: Placement
    to: Placement
    replicas: int
    ranks: int
    expected: str
    """Count, instance, provider and region; or the code of the refusal and a part of its reason."""
    usd_per_hour: float = 0.0
    origin: Origin | None = None


MOVES = (
    # Hardware that the provider does not rent.
    Move("MI300X at AWS", P5, on("MI300X"), 1, 1, f"{NOT_OFFERED} azure lists"),
    Move(
        "MI300X for four pairs at AWS",
        P5,
        on("MI300X"),
        4,
        2,
        f"{NOT_OFFERED} aws us-east-1 lists no instance with 2 devices",
    ),
    Move("RTX A6000 at AWS", P5, on("RTX A6000"), 1, 1, NOT_OFFERED),
    Move("MI300X at Lambda", LAMBDA, on("MI300X"), 1, 1, NOT_OFFERED),
    Move(
        "GH200 at AWS", P5, on("GH200 96GB"), 1, 1, f"{NOT_OFFERED} lambda lists gpu_1x_gh200 in any region at $2.29/h"
    ),
    Move("L40S at Lambda", LAMBDA, on("L40S"), 1, 1, NOT_OFFERED),
    Move(
        "A100 40 GB of Lambda",
        LAMBDA_A100,
        on("A100 40GB SXM4"),
        1,
        1,
        "1 gpu_1x_a100_sxm4 lambda any",
        1.99,
        Origin.OWN_REGION,
    ),
    Move("GH200 at Lambda", LAMBDA, on("GH200 96GB"), 1, 1, "1 gpu_1x_gh200 lambda any", 2.29, Origin.OWN_REGION),
    # Ranks of a replica stay on one instance.
    Move("L40S with four ranks", P4D, on("L40S"), 1, 4, "1 g6e.12xlarge aws us-east-1", 10.4926, Origin.OWN_REGION),
    Move("L40S with one rank", P4D, on("L40S"), 1, 1, "1 g6e.xlarge aws us-east-1", 1.861, Origin.OWN_REGION),
    Move("five single L40S", P4D, on("L40S"), 5, 1, "5 g6e.xlarge aws us-east-1", 9.305, Origin.OWN_REGION),
    Move("L40S with two ranks", P4D, on("L40S"), 1, 2, "1 g6e.12xlarge aws us-east-1", 10.4926, Origin.OWN_REGION),
    Move(
        "two pairs on one instance of four",
        P4D,
        on("L40S"),
        2,
        2,
        "1 g6e.12xlarge aws us-east-1",
        10.4926,
        Origin.OWN_REGION,
    ),
    Move("three pairs of L40S", P4D, on("L40S"), 3, 2, "2 g6e.12xlarge aws us-east-1", 20.9852, Origin.OWN_REGION),
    Move("L40S with eight ranks", P4D, on("L40S"), 1, 8, "1 g6e.48xlarge aws us-east-1", 30.1312, Origin.OWN_REGION),
    Move("H100 with two ranks", P4D, on("H100 SXM5"), 1, 2, "1 p5.48xlarge aws us-east-1", 55.04, Origin.OWN_REGION),
    Move("H100 with one rank", P4D, on("H100 SXM5"), 1, 1, "1 p5.4xlarge aws us-east-1", 6.88, Origin.OWN_REGION),
    Move("nine single H100", P4D, on("H100 SXM5"), 9, 1, "9 p5.4xlarge aws us-east-1", 61.92, Origin.OWN_REGION),
    Move(
        "RTX PRO 6000 with two ranks",
        P4D,
        on("RTX PRO 6000 Blackwell Server"),
        1,
        2,
        "1 g7e.12xlarge aws us-east-1",
        8.28608,
        Origin.OWN_REGION,
    ),
    Move("L4 with two ranks", P5, on("L4"), 1, 2, "1 g6.12xlarge aws us-east-1", 4.6016, Origin.OWN_REGION),
    Move("L4 with eight ranks", P5, on("L4"), 1, 8, "1 g6.48xlarge aws us-east-1", 13.3504, Origin.OWN_REGION),
    Move("five L4 are cheaper one by one", P5, on("L4"), 5, 1, "5 g6.xlarge aws us-east-1", 4.024, Origin.OWN_REGION),
    Move("A10G with four ranks", P5, on("A10G"), 1, 4, "1 g5.12xlarge aws us-east-1", 5.672, Origin.OWN_REGION),
    Move("T4 with one rank", P5, on("T4"), 1, 1, "1 g4dn.xlarge aws us-east-1", 0.526, Origin.OWN_REGION),
    Move("H200 of an H100", P5, on("H200 SXM"), 1, 1, "1 p5en.48xlarge aws us-east-1", 63.296, Origin.OWN_REGION),
    Move("eight H200", P5, on("H200 SXM"), 8, 1, "1 p5en.48xlarge aws us-east-1", 63.296, Origin.OWN_REGION),
    Move("nine H200", P5, on("H200 SXM"), 9, 1, "2 p5en.48xlarge aws us-east-1", 126.592, Origin.OWN_REGION),
    Move("B200 at AWS", P5, on("B200 SXM"), 1, 1, "1 p6-b200.48xlarge aws us-east-1", 113.9328, Origin.OWN_REGION),
    Move("B200 at GCP", GCP, on("B200 SXM"), 4, 1, NOT_OFFERED),
    Move("sixteen ranks on one host", P5, on("H200 SXM"), 1, 16, NO_PRICE),
    # The pair of the own instance and region.
    Move("spot in Virginia", P5, SPOT, 1, 8, "1 p5.48xlarge aws us-east-1", 19.4933, Origin.OWN_INSTANCE),
    Move("spot in Tokyo", TOKYO, SPOT, 1, 8, "1 p5.48xlarge aws ap-northeast-1", 45.9724, Origin.OWN_INSTANCE),
    Move("spot in London", LONDON, SPOT, 1, 8, "1 p5.48xlarge aws eu-west-2", 15.7259, Origin.OWN_INSTANCE),
    Move(
        "two spot replicas in Tokyo",
        TOKYO,
        SPOT,
        2,
        8,
        "2 p5.48xlarge aws ap-northeast-1",
        91.9448,
        Origin.OWN_INSTANCE,
    ),
    Move("spot where none is listed", replace(P5, region="ca-central-1"), SPOT, 1, 8, NOT_OFFERED),
    Move("spot of GCP", GCP, SPOT, 1, 8, "1 a3-highgpu-8g gcp us-east4", 43.9554, Origin.OWN_INSTANCE),
    # Regions and providers.
    Move("another region of AWS", TOKYO, replace(P5), 1, 8, "1 p5.48xlarge aws us-east-1", 55.04, Origin.OWN_PROVIDER),
    Move("L40S outside Virginia", TOKYO, on("L40S"), 1, 1, NOT_OFFERED),
    Move("eight ranks at a provider of single devices", P5, Placement("gmi-cloud", "any"), 1, 8, NOT_OFFERED),
    Move(
        "one rank at another provider",
        P5_SMALL,
        Placement("gmi-cloud", "any"),
        1,
        1,
        "1 H100 SXM gmi-cloud any",
        2.0,
        Origin.OTHER_PROVIDER,
    ),
    Move(
        "an instance by its name",
        P5,
        Placement(instance_type="p5.4xlarge"),
        2,
        1,
        "2 p5.4xlarge aws us-east-1",
        13.76,
        Origin.OWN_REGION,
    ),
    Move(
        "a type too small for its ranks",
        P5_SMALL,
        SPOT,
        1,
        8,
        "1 p5.48xlarge aws us-east-1",
        19.4933,
        Origin.OWN_REGION,
    ),
    # No price.
    Move("owned devices", P5, Placement(purchase="owned"), 1, 8, f"{NO_PRICE} owned devices have no listed price"),
    Move("reserved devices", P5, Placement(purchase="reserved"), 1, 8, f"{NO_PRICE} reserved devices"),
    Move(
        "tokens",
        P5,
        Placement("bedrock", purchase="per_token"),
        1,
        8,
        f"{NO_PRICE} a token price is for a whole service",
    ),
    Move("a device outside the catalog", P5, on("Z9"), 1, 1, f"{NO_PRICE} Z9 is not in the catalog"),
    Move(
        "an unknown provider",
        UNKNOWN,
        on("L40S"),
        1,
        1,
        "1 gpu-l40s-a_1gpu-8vcpu-32gb nebius",
        1.5484,
        Origin.OTHER_PROVIDER,
    ),
    # CPUs of a kind of instance that was probed: one replica an instance.
    Move("probed CPUs", P5_SMALL, on(GRAVITON), 1, 1, "1 c8g.4xlarge aws us-east-1", 0.63808, Origin.OWN_REGION),
    Move("three on probed CPUs", P5, on(GRAVITON), 3, 1, "3 c8g.4xlarge aws us-east-1", 1.91424, Origin.OWN_REGION),
    Move("two ranks on CPUs", P5, on(GRAVITON), 1, 2, f"{NO_PRICE} no listed instance has 2 devices"),
    Move("probed CPUs where none are listed", TOKYO, on(GRAVITON), 1, 1, f"{NOT_OFFERED} ap-northeast-1 lists no"),
    Move(
        "probed CPUs of another provider", GCP, on(GRAVITON), 1, 1, f"{NOT_OFFERED} aws lists c8g.4xlarge in us-east-1"
    ),
    Move("spot of probed CPUs", P5, replace(on(GRAVITON), purchase="spot"), 1, 1, NO_PRICE),
    Move("CPUs that nobody probed", P5, on("Neoverse-V2 (c7g.4xlarge)"), 1, 1, f"{NO_PRICE} Neoverse-V2 (c7g.4xlarge)"),
)
PROBED = MARKET.with_measured(
    [cpu_accelerator(GRAVITON, {("llama.cpp", "int8"): MeasuredRates(1e11, 1e12)}, 2**35, DAY)]
).having(replace(offer, accelerator=GRAVITON) for offer in MARKET.offers("CPU") if offer.instance_type == "c8g.4xlarge")


def fleet_on(now: Placement, replicas: int = 1, ranks: int | None = None, **knobs: Any) -> Fleet:
    """Return replicas of a 70B, each on a host of its own."""
    devices = now.devices_per_instance or 1
    hosts = [host(number, devices, now) for number in range(1, replicas + 1)]
    deployments = tuple(llama(one.host_id, one.device_ids[: ranks or devices], placement=now, **knobs) for one in hosts)
    return fleet_of([Service("chat", deployments)], hosts)


def placed(move: Move, market: Market = MARKET, **fields: Any) -> Placed | NotPlaced:
    fleet = fleet_on(move.now)
    counts = (move.replicas, move.replicas, move.replicas)
    known = context(fleet, market=market, **({"allowed_regions": frozenset()} | fields))
    return place(fleet, fleet.deployments[0], move.to.over(move.now), counts, move.ranks, known)


@pytest.mark.parametrize("move", MOVES, ids=[move.name for move in MOVES])
def test_a_move_takes_the_cheapest_whole_instances_that_hold_each_replica(move: Move) -> None:
    result = placed(move, PROBED)
    if isinstance(result, NotPlaced):
        assert (move.usd_per_hour == 0 and f"{result.code} {result.reason}".startswith(move.expected)) or (
            move.expected.partition(" ")[2] in result.reason and result.code == move.expected.partition(" ")[0]
        ), result
        return
    offer = result.offer
    words = f"{result.instances[1]} {offer.instance_type} {offer.provider} {offer.region}"
    assert words.startswith(move.expected), result
    assert result.nano_usd_per_hour[1] == pytest.approx(move.usd_per_hour * NANO)
    assert offer.origin is move.origin
    assert offer.origin is not None
    assert (result.to_confirm is None) == (offer.origin <= Origin.OWN_REGION)


def test_an_unchanged_kind_of_instance_costs_what_its_host_costs() -> None:
    fleet = fleet_on(P5)
    result = place(fleet, fleet.deployments[0], P5, (1, 2, 3), 8, context(fleet, price=2 * NANO))
    assert isinstance(result, Placed) and result.offer == paid_offer(
        fleet, fleet.deployments[0], context(fleet, price=2 * NANO)
    )
    assert result.nano_usd_per_hour == (16 * NANO, 32 * NANO, 48 * NANO) and not result.listed


def test_a_discount_on_the_present_device_holds_for_no_other_one() -> None:
    for price in (NANO, 7 * NANO):
        fleet = fleet_on(P5_SMALL)
        moved = on("L4").over(P5_SMALL)
        result = place(fleet, fleet.deployments[0], moved, (1, 1, 1), 1, context(fleet, price=price))
        assert isinstance(result, Placed) and result.nano_usd_per_hour[1] == pytest.approx(0.8048 * NANO)


def test_a_price_that_a_person_set_for_the_destination_replaces_the_list() -> None:
    paid = Offer("aws", "g6.xlarge", "L4", 1, "us-east-1", "on_demand", 5 * NANO, DAY, "set", origin=Origin.SET)
    result = placed(Move("", P5_SMALL, on("L4"), 1, 1, ""), MARKET.having([paid]))
    assert isinstance(result, Placed) and result.offer == paid and result.to_confirm is None
    assert paid in MARKET.having([paid, replace(paid, as_of=date(2026, 9, 20), origin=None)]).offers("L4")


def test_a_listing_of_low_confidence_is_taken_only_where_there_is_no_other() -> None:
    low = Offer("aws", "g6.cheap", "L4", 1, "us-east-1", "on_demand", 1, DAY, "a rumour", confidence="low")
    result = placed(Move("", P5_SMALL, on("L4"), 1, 1, ""), MARKET.having([low]))
    assert isinstance(result, Placed) and result.offer.instance_type == "g6.xlarge"
    alone = placed(Move("", P5_SMALL, on("L4"), 1, 1, ""), replace(MARKET, all_offers=(low,)))
    assert isinstance(alone, Placed) and alone.offer.instance_type == "g6.cheap"


def test_another_region_enters_totals_once_it_is_allowed() -> None:
    move = Move("", TOKYO, on("L40S"), 1, 4, "")
    refused = placed(move)
    assert isinstance(refused, NotPlaced) and refused.code == NOT_OFFERED
    allowed = placed(move, allowed_regions=frozenset({"us-east-1"}))
    assert isinstance(allowed, Placed) and allowed.to_confirm is None and allowed.offer.origin is Origin.OWN_PROVIDER
    named = placed(Move("", TOKYO, Placement(region="us-east-1"), 1, 8, ""))
    assert isinstance(named, Placed) and "market.allowed_regions" in (named.to_confirm or "")


def test_a_replica_joins_instances_only_where_it_spans_hosts_today() -> None:
    hosts = [host(1, 8, P5), host(2, 8, P5)]
    wide = llama(1, (*hosts[0].device_ids, *hosts[1].device_ids), placement=P5, tp=8, pp=2)
    fleet = fleet_of([Service("chat", (wide,))], hosts)
    moved = on("H200 SXM").over(P5)
    result = place(fleet, wide, moved, (1, 1, 1), 16, context(fleet))
    assert isinstance(result, Placed) and result.instances == (2, 2, 2)
    assert any("spans 2 instances" in line for line in result.lines(context(fleet)))


PAGE = Path(__file__).parents[2] / "docs" / "prices.md"


@pytest.mark.parametrize(
    ("move", "sentence"),
    [
        (Move("a 70B to L40S", P4D, on("L40S"), 1, 4, ""), "the bill falls by $8,369 a month"),
        (Move("a 70B to H100", P4D, on("H100 SXM5"), 1, 2, ""), "the bill rises by $24,150"),
        (Move("smaller instances", P5, P5_SMALL, 2, 1, ""), "the bill falls by $30,134"),
    ],
)
def test_the_worked_examples_of_the_page_are_what_placing_computes(move: Move, sentence: str) -> None:
    instances = placed(move)
    assert isinstance(instances, Placed)
    (paid,) = (offer.nano_usd_per_hour for offer in MARKET.offers_at(move.now))
    usd_per_hour = paid / NANO, instances.nano_usd_per_hour[1] / NANO
    change = (usd_per_hour[1] - usd_per_hour[0]) * HOURS_PER_MONTH
    assert f"the bill {'rises' if change > 0 else 'falls'} by ${abs(change):,.0f}" == sentence.removesuffix(" a month")
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert sentence in page and all(f"${price:.2f}" in page for price in usd_per_hour)


def test_the_price_is_stated_with_instance_region_source_and_date() -> None:
    fleet = fleet_on(P4D)
    result = placed(Move("", P4D, on("L40S"), 2, 2, ""))
    assert isinstance(result, Placed)
    (line,) = result.lines(context(fleet))
    assert line.startswith("1 × g6e.12xlarge at aws us-east-1 at $10.49/h (AWS Pricing API capture of 2026-08-17")
    assert "2026-08-17); stale: listed up to 35 days ago" in line
    assert "Name=instance-type,Values=g6e.12xlarge --region us-east-1` lists where it is offered" in line
    assert result.against == ("2 replicas share an instance: they fail together",)


# -- H100 to H200 in full -------------------------------------------------------------------------------------------


def fp8(devices: int, placement: Placement, **fields: Any) -> Fleet:
    """Return a 70B in FP8 on one host; it uses two of its devices."""
    return fleet_on(placement, ranks=2, weight_dtype="fp8", max_model_len=8192, **fields)


def test_a_70b_in_fp8_on_two_h100_moves_to_one_h200_where_single_ones_are_rented() -> None:
    pair = Placement("nebius", "eu-north1", "gpu-h100-sxm_2gpu", "H100 SXM5", 2, "on_demand")
    fleet = fp8(2, pair)
    (service,) = fleet.services
    moved = service.on(on("H200 SXM")).but(tp=1).resized()
    seen = low_batch(busy=0.3, running=1)
    result = estimate(fleet, fleet.edit(moved), context(fleet, seen, price=2_950_000_000, market=MARKET))
    (bought,) = result.placed
    assert bought.offer.instance_type == "gpu-h200-sxm_1gpu-16vcpu-200gb" and bought.instances[1] == 1
    assert result.net is not None
    assert result.net[1] == round(730 * (2 * 2.95 - 3.5) * NANO), "two H100 less one H200"
    assert result.net[0] < result.net[1] < result.net[2] <= 730 * 2 * 2.95 * NANO


def test_the_same_move_raises_the_bill_where_h200_are_rented_by_eight() -> None:
    fleet = fp8(2, P5)
    (service,) = fleet.services
    moved = service.on(on("H200 SXM")).but(tp=1).resized()
    result = estimate(fleet, fleet.edit(moved), context(fleet, low_batch(), market=MARKET))
    assert result.net is not None and result.net[1] == pytest.approx(-730 * (63.296 - 55.04) * NANO)


# -- every dollar is of named offers --------------------------------------------------------------------------------

ACCELERATORS = ("L4", "L40S", "H100 SXM5", "H200 SXM", "A100 40GB SXM4", "MI300X", "RTX A6000", "B200 SXM")
STARTS = (P5, P5_SMALL, TOKYO, P4D, LAMBDA_A100, GCP, UNKNOWN)


@given(
    now=st.sampled_from(STARTS),
    accelerator=st.sampled_from(ACCELERATORS),
    ranks=st.sampled_from((1, 2, 4, 8)),
    replicas=st.integers(1, 6),
    price=st.integers(1, 20 * NANO),
    spot=st.booleans(),
)
def test_every_bankable_dollar_is_the_bill_that_leaves_less_the_bill_of_named_offers(
    now: Placement, accelerator: str, ranks: int, replicas: int, price: int, spot: bool
) -> None:
    fleet = fleet_on(now, replicas, model=model("Qwen3-1.7B"))
    (service,) = fleet.services
    to = Placement(accelerator=accelerator, purchase="spot" if spot else None)
    moved = service.on(to).but(tp=ranks)
    if moved == service:
        return
    known = context(fleet, low_batch(), price=price, market=MARKET)
    result = estimate(fleet, fleet.edit(moved), known)
    saving = result.if_confirmed or result.saving
    if saving is None or saving.net[1] <= 0:
        return
    money = saving.net
    leaves = price * len(fleet.devices) * 730
    bought = sum(round(placed.nano_usd_per_hour[1]) for placed in result.placed) * 730
    crosses = result.moving.nano_usd_per_hour[1] * 730
    assert result.placed and money[1] == pytest.approx(leaves - bought - crosses, abs=730)
    assert money[0] <= money[1] <= money[2] <= leaves
    listed = {(offer.key, offer.nano_usd_per_device_hour) for offer in load_market().all_offers}
    for placed in result.placed:
        assert (placed.offer.key, placed.offer.nano_usd_per_device_hour) in listed or not placed.listed
        assert placed.offer.n_devices >= ranks
    assert result.if_confirmed is None or result.saving is None


@given(
    starts=st.lists(st.sampled_from((P5, P5_SMALL, GCP, LAMBDA_A100)), min_size=2, max_size=3),
    shared=st.booleans(),
    moves=st.lists(st.sampled_from((on("L40S"), on("L4"), SPOT, Placement(region="us-east-2"), None)), min_size=3),
    price=st.integers(NANO, 20 * NANO),
)
@settings(max_examples=examples(40), deadline=None)
def test_the_net_of_several_services_is_the_hosts_that_leave_less_named_offers_and_data_that_crosses(
    starts: list[Placement], shared: bool, moves: list[Placement | None], price: int
) -> None:
    if shared and starts[0] != P5_SMALL:
        hosts = [host(1, starts[0].devices_per_instance or 1, starts[0])]
        held = [(hosts[0], hosts[0].device_ids[number]) for number in range(len(starts))]
    else:
        hosts = [host(number, start.devices_per_instance or 1, start) for number, start in enumerate(starts, 1)]
        held = [(one, one.device_ids[0]) for one in hosts]
    services = [
        Service(f"chat-{number}", (llama(number, (key,), placement=one.placement, model=model("Qwen3-1.7B")),))
        for number, (one, key) in enumerate(held, 1)
    ]
    fleet = fleet_of(services, hosts)
    after = fleet
    for service, to in zip(fleet.services, moves, strict=False):
        moved = service if to is None else service.on(to)
        after = after if moved == service else after.edit(moved.but(tp=1))
    if after == fleet:
        return
    result = estimate(fleet, after, context(fleet, low_batch(), price=price, market=MARKET))
    saving = result.if_confirmed or result.saving
    if saving is None:
        return
    leaves = sum(price * len(one.device_ids) for one in fleet.hosts if one.name in result.released)
    bought = sum(round(instances.nano_usd_per_hour[1]) for instances in result.placed)
    crosses = result.moving.nano_usd_per_hour[1]
    assert saving.net[1] == pytest.approx((leaves - bought - crosses) * 730, abs=730)
    listed = {(offer.key, offer.nano_usd_per_device_hour) for offer in load_market().all_offers}
    for instances in result.placed:
        assert (instances.offer.key, instances.offer.nano_usd_per_device_hour) in listed or not instances.listed
