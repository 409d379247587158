"""Costs of a change of provider or region beside its instances: each has a figure or is named as unknown."""

from dataclasses import replace

import pytest

from pertoken.catalog.clouds import transfer_rate
from pertoken.savings.context import Context
from pertoken.savings.estimate import Estimate, estimate
from pertoken.savings.placing import Relocation, Site, moving, relocations, repaid
from pertoken.state.deployment import Commitment, Placement
from pertoken.state.fleet import Fleet
from pertoken.units import HOURS_PER_MONTH, NANO_USD
from tests.advisor.plan.fleets import present, small
from tests.savings.fleets import AWS

H100 = replace(AWS, instance_type="p5.48xlarge", devices_per_instance=8)


def known() -> tuple[Fleet, Context]:
    """One server of eight devices at aws us-east-1 that takes 160 prompt and 40 generated tokens a second."""
    fleet = small((1, 0), devices=8, placement=H100)
    state = present(fleet, prompt_tok_s=160.0, generated_tok_s=40.0)
    return state.fleet, state.context


def moved(to: Placement) -> Estimate:
    fleet, context = known()
    return estimate(fleet, fleet.edit(fleet.services[0].on(to)), context)


def test_weights_prompts_and_answers_that_leave_are_priced_by_the_rate_of_where_they_leave() -> None:
    known_move = moved(Placement(provider="lambda", region="any", purchase="on_demand", instance_type=None))
    out, back = transfer_rate("aws", "internet"), transfer_rate("lambda", "internet")
    assert out is not None and back is not None and back.usd_per_gb == 0
    prompts = 3600 * 160 * 5 * out.usd_per_gb
    assert known_move.moving.nano_usd_per_hour[0] == 0
    assert known_move.moving.nano_usd_per_hour[1] == pytest.approx(prompts)
    assert known_move.moving.once is not None
    model = known()[0].services[0].deployments[0].model
    day = 24 * sum(placed.nano_usd_per_hour[1] for placed in known_move.placed)
    assert known_move.moving.once[1] == pytest.approx(2 * (model.params_total or 0) * out.usd_per_gb + day), "BF16"


def test_data_that_crosses_each_month_is_part_of_the_net_saving() -> None:
    elsewhere = moved(Placement(provider="lambda", region="any", purchase="on_demand", instance_type=None))
    saving = elsewhere.if_confirmed
    assert saving is not None
    fleet, context = known()
    paid = 8 * (context.nano_usd_per_hour[10] or 0)
    bought = sum(placed.nano_usd_per_hour[1] for placed in elsewhere.placed)
    crossing = elsewhere.moving.nano_usd_per_hour[1]
    assert saving.net[1] == pytest.approx((paid - bought - crossing) * HOURS_PER_MONTH)
    assert crossing > 0 and fleet.services


def test_a_rate_that_no_list_states_is_named_and_makes_no_sum() -> None:
    elsewhere = moved(Placement(provider="gmi-cloud", region="any", purchase="on_demand"))
    assert elsewhere.moving.once is not None, "weights leave aws, whose rate is known"
    assert any("costs at gmi-cloud is not known: ask it" in line for line in elsewhere.moving.lines)
    assert any("whether gmi-cloud has a minimum term is not known" in line for line in elsewhere.moving.lines)


def test_tokens_that_were_not_measured_are_named() -> None:
    fleet, context = known()
    blind = replace(context, deployments={})
    lines = relocated_lines(fleet, Placement(provider="lambda", purchase="on_demand"), blind)
    assert any("its tokens were not measured" in line for line in lines)


def relocated_lines(fleet: Fleet, to: Placement, context: Context) -> tuple[str, ...]:
    return estimate(fleet, fleet.edit(fleet.services[0].on(to)), context).moving.lines


def test_another_region_of_a_provider_costs_its_rate_between_regions() -> None:
    elsewhere = moved(Placement(region="us-east-2", purchase="on_demand"))
    rate = transfer_rate("aws", "region")
    assert rate is not None
    crossing = 3600 * (160 * 5 + 40 * 200) * rate.usd_per_gb
    assert elsewhere.moving.nano_usd_per_hour[1] == pytest.approx(crossing)


@pytest.mark.parametrize("to", [Placement(purchase="spot"), Placement(instance_type="p5.4xlarge")])
def test_a_change_within_its_region_moves_no_data(to: Placement) -> None:
    assert moved(to).moving.lines == ()


def test_an_api_gets_prompts_and_no_weights() -> None:
    fleet, context = known()
    after = fleet.edit(fleet.services[0].on(Placement(provider="bedrock", purchase="per_token")))
    (move,) = relocations(fleet, after, ())
    assert move == Relocation("chat-1", Site("aws", "us-east-1"), Site("bedrock"), move.moved, is_api=True)
    costs = moving(fleet, after, (), {"chat-1": 7.0}, context)
    assert not any("weights" in line for line in costs.lines)
    assert any("what data to the internet costs at bedrock is not known" in line for line in costs.lines)
    assert costs.once == (7, 7 * 24, 7 * 72), "tokens at the API while the servers still run"


def test_a_move_is_repaid_by_its_net_saving_in_whole_days() -> None:
    once, net = (0, 73 * NANO_USD, 100 * NANO_USD), (0, 730 * NANO_USD, 900 * NANO_USD)
    assert repaid(once, net) == "moving costs $73.00 once, which its net saving repays in 3 days"
    assert repaid(None, net) is None and repaid(once, (-1, 0, 1)) is None


EDITS = {
    "another provider": Placement(provider="lambda", region="any", purchase="on_demand"),
    "another region": Placement(region="us-east-2", purchase="on_demand"),
    "spot of another region": Placement(region="us-west-2", purchase="spot"),
    "another device of another provider": Placement(provider="azure", accelerator="A100 SXM 80GB"),
    "a serverless API": Placement(provider="bedrock", purchase="per_token"),
}
TOPICS = (
    ("prompts and answers of ",),
    ("both sides run while traffic moves", "nothing more is paid while its traffic moves"),
    ("has a minimum term", "bills an instance for", "asks for a minimum"),
)
"""What each change of provider or region states, by words that one of its lines has."""


def states_all(lines: tuple[str, ...], *, is_api: bool = False) -> bool:
    """Return whether data, weights (of an API none), both sides running and the minimum term have a line each."""
    topics = TOPICS if is_api else (("weights of ",), *TOPICS)
    return all(any(words in line for line in lines for words in topic) for topic in topics)


@pytest.mark.parametrize("all_but", [0, 1])
@pytest.mark.parametrize("edit", EDITS)
def test_each_kind_of_edit_that_changes_provider_or_region_has_a_line_of_each_cost(edit: str, all_but: int) -> None:
    fleet = small((2, 0), (1, 2), placement=H100)
    context = present(fleet, prompt_tok_s=160.0, generated_tok_s=40.0).context
    after = fleet.edit(fleet.services[0].on(EDITS[edit], all_but=all_but))
    costs = moving(fleet, after, (), {}, context)
    assert states_all(costs.lines, is_api=EDITS[edit].purchase == "per_token"), costs.lines
    assert {move.service for move in relocations(fleet, after, ())} == {"chat-1"}


def test_services_that_leave_a_host_together_have_lines_of_their_own() -> None:
    fleet = small((1, 0), (1, 1), placement=H100)
    context = present(fleet).context
    after = fleet
    for service in fleet.services:
        after = after.edit(service.on(EDITS["another region"]))
    costs = moving(fleet, after.release(1), (), {}, context)
    assert {move.service for move in relocations(fleet, after, ())} == {"chat-1", "chat-2"}
    assert states_all(costs.lines)


def test_a_merge_on_the_server_of_another_provider_is_a_move_of_the_other_part() -> None:
    fleet = small((1, 0), (1, 2), placement=H100)
    elsewhere = replace(H100, provider="lambda", region="us-east-3")
    second = replace(fleet.hosts[1], placement=elsewhere)
    moved_part = replace(fleet.deployments[1], placement=elsewhere)
    services = (fleet.services[0], replace(fleet.services[1], deployments=(moved_part,)))
    fleet = Fleet(services, (fleet.hosts[0], second), fleet.devices)
    after = fleet.merge(fleet.deployments, moved_part)
    (move,) = relocations(fleet, after, ())
    assert (move.service, move.destination) == ("chat-1", Site("lambda", "us-east-3"))
    assert states_all(moving(fleet, after, (), {}, present(fleet).context).lines)


def test_a_commitment_and_fewer_replicas_move_nothing() -> None:
    fleet = small((2, 0), placement=H100)
    made = Commitment("aws", "us-east-1", "p5.48xlarge", 1, 7, years=1)
    for after in (fleet.commit(made), fleet.edit(fleet.services[0].scaled_to(1))):
        assert relocations(fleet, after, ()) == ()
