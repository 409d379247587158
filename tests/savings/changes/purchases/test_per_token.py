"""The two bills of a service: devices by the hour against an API by the token."""

from dataclasses import replace

import pytest

from pertoken.savings.estimate import Estimate
from pertoken.state.deployment import Commitment, Deployment, Placement
from pertoken.state.fleet import Fleet
from tests.deployments import model
from tests.savings.fleets import (
    AWS,
    DAY_S,
    FOUR,
    NOW_TS,
    ONE,
    chat,
    fleet_of,
    host,
    llama,
    low_batch,
    priced,
    usd_month,
)

BEDROCK = Placement(provider="bedrock", purchase="per_token")
LISTED = 0.72
"""Dollars of a Mtok, in and out, of Llama 3.3 70B at Bedrock."""
CONFIRMED = frozenset({"bedrock"})


def moved(fleet: Fleet, **fields: object) -> Estimate:
    return priced(fleet, chat(fleet).on(BEDROCK), **fields)


def api_usd_per_hour(tok_s: float) -> float:
    return tok_s * 3600 / 1e6 * LISTED


def test_confirmed_it_saves_the_hosts_it_releases_less_the_tokens_by_hand() -> None:
    estimate = moved(ONE, token_apis=CONFIRMED)
    prompts_leave = 160 * 3600 * 5e-9 * 0.09
    saved = 2 * 6.88 - api_usd_per_hour(160 + 40) - prompts_leave
    assert estimate.net is not None and estimate.released == ("gpu-1",)
    assert estimate.net[1] == pytest.approx(usd_month(saved), rel=1e-9)
    assert estimate.provenance is not None and estimate.provenance.label == "listed"


def test_unconfirmed_it_shows_the_break_even_and_no_dollars_that_could_be_totalled() -> None:
    estimate = moved(ONE)
    assert (estimate.net, estimate.capacity) == (None, None)
    assert estimate.to_confirm is not None and "market.token_apis" in estimate.to_confirm
    confirmed = moved(ONE, token_apis=CONFIRMED)
    assert estimate.if_confirmed == confirmed.saving and confirmed.to_confirm is None
    times = 2 * 6.88 / api_usd_per_hour(200)
    assert estimate.break_even is not None and f"pays below {times:.2g} times its tokens" in estimate.break_even
    assert "of full batches" in estimate.break_even and "$0.720/Mtok in" in estimate.break_even


def test_above_the_break_even_serving_it_here_is_cheaper_and_that_is_the_answer() -> None:
    busy = low_batch(prompt_tok_s=6000, generated_tok_s=1500, busy_generated_tok_s=2500, running=60)
    estimate = moved(ONE, seen=busy, token_apis=CONFIRMED)
    assert estimate.infeasible is not None and "serving it here is cheaper" in estimate.infeasible
    assert "27 Mtok an hour cost" in estimate.infeasible


def test_its_break_even_is_where_both_bills_are_one() -> None:
    even = 2 * 6.88 / api_usd_per_hour(200)
    below, above = (low_batch(prompt_tok_s=160 * x, generated_tok_s=40 * x) for x in (0.99 * even, 1.01 * even))
    assert moved(ONE, seen=below, token_apis=CONFIRMED).infeasible is None
    assert "cheaper" in (moved(ONE, seen=above, token_apis=CONFIRMED).infeasible or "")


def test_a_part_of_an_instance_releases_nothing_so_that_the_api_only_costs_more() -> None:
    p5 = replace(AWS, instance_type="p5.48xlarge", devices_per_instance=8)
    services = chat(ONE)
    other = llama(2, (12, 13), "code", placement=p5)
    fleet = fleet_of(
        [
            replace(services, deployments=(llama(1, (10, 11), placement=p5),)),
            replace(services, name="code", deployments=(other,)),
        ],
        [host(1, 8, p5)],
    )
    estimate = moved(fleet, token_apis=CONFIRMED)
    assert (
        estimate.infeasible is not None and "the bill falls once the rest is moved elsewhere too" in estimate.infeasible
    )


def test_a_committed_host_stays_paid_for() -> None:
    p5 = replace(AWS, instance_type="p5.48xlarge")
    fleet = fleet_of([replace(chat(ONE), deployments=(llama(1, (10, 11), placement=p5),))], [host(1, placement=p5)])
    committed = fleet.commit(Commitment("aws", "us-east-1", "p5.48xlarge", 1, 10**9, NOW_TS + DAY_S))
    estimate = moved(committed, token_apis=CONFIRMED)
    assert estimate.infeasible is not None and "covered by a commitment" in estimate.infeasible


def test_a_stale_token_price_is_marked_beside_the_dollars() -> None:
    estimate = moved(ONE, token_apis=CONFIRMED, now_ts=NOW_TS + 90 * DAY_S)
    assert any("stale: listed up to" in assumption for assumption in estimate.assumptions)
    assert "stale: listed up to" in (moved(ONE, now_ts=NOW_TS + 90 * DAY_S).break_even or "")


def test_a_model_that_no_api_lists_has_no_price() -> None:
    unlisted: Deployment = replace(chat(ONE).deployments[0], model=model("Qwen3-8B"))
    fleet = replace(ONE, services=(replace(chat(ONE), deployments=(unlisted,)),))
    assert "no token price of this model is in the catalog" in (moved(fleet).infeasible or "")
    other = priced(ONE, chat(ONE).on(Placement(provider="nobody", purchase="per_token")))
    assert "azure-ai, bedrock, cerebras, groq, nebius, novita, together, vertex list some" in (other.infeasible or "")


def test_a_move_to_an_api_is_priced_alone() -> None:
    both = chat(FOUR).on(BEDROCK).but(weight_dtype="fp8")
    assert "priced alone" in (priced(FOUR, both).unpriced or "")
