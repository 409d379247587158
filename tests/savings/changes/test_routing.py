"""A service split over its deployments and a smaller one: a break-even, and money for a supplied share alone."""

from pertoken.catalog.market import load_market
from pertoken.savings.estimate import Estimate
from pertoken.state.deployment import Placement
from pertoken.state.fleet import Fleet
from pertoken.state.service import Slo
from tests.deployments import model
from tests.savings.fleets import FOUR, ONE, chat, low_batch, priced


def routed(fleet: Fleet) -> Estimate:
    now = chat(fleet).deployments[0]
    small = now.but(model=model("Qwen3-1.7B")).serving_share(0.4)
    return priced(fleet, fleet.replace(now, now.serving_share(0.6), small))


def test_routing_names_the_share_from_which_it_pays_and_saves_no_dollars() -> None:
    estimate = routed(FOUR)
    assert estimate.net is None and estimate.unpriced is not None
    assert "is not measured: label a sample, then route" in estimate.unpriced
    assert any("must be evaluated on your own tasks" in line for line in estimate.against)


def test_a_smaller_model_that_needs_as_many_devices_pays_at_no_share() -> None:
    estimate = routed(ONE)
    assert estimate.infeasible is not None and "no share it could take pays for them" in estimate.infeasible


def test_disaggregation_is_measured_in_a_trial() -> None:
    now = chat(ONE).deployments[0]
    estimate = priced(ONE, ONE.replace(now, now.but(role="prefill"), now.but(role="decode")))
    assert estimate.unpriced is not None and "try them for a week" in estimate.unpriced


def test_a_small_model_on_a_cheap_device_elsewhere_is_paid_for_at_its_own_price() -> None:
    now = chat(FOUR).deployments[0]
    placement = Placement(accelerator="L4", purchase="on_demand")
    small = now.but(model=model("Llama-3.1-8B"), weight_dtype="fp8", tp=1, max_model_len=4096).on(placement)

    def at(share: float) -> Estimate:
        split = FOUR.replace(now, now.serving_share((1 - share) / 4), small.serving_share(share))
        return priced(FOUR, split, slo=Slo(tpot_p95_ms=100.0), market=load_market("aws"))

    estimate = at(0.2)
    assert estimate.net is None and estimate.break_even is not None
    share = float(estimate.break_even.partition("once it takes ")[2].partition("%")[0])
    assert share < 10, "an L4 costs a small part of four pairs of H100"
    assert any(line.startswith("1 × g6.xlarge at aws us-east-1 at $0.805/h") for line in estimate.assumptions)


def test_a_small_model_must_hold_its_share_of_the_load_and_the_token_time() -> None:
    now = chat(FOUR).deployments[0]
    small = now.but(model=model("Llama-3.1-8B"), tp=1, max_model_len=4096).on(Placement(accelerator="L4"))
    split = FOUR.replace(now, now.serving_share(0.2), small.serving_share(0.2))
    slow = priced(FOUR, split, slo=Slo(tpot_p95_ms=10.0))
    assert slow.infeasible is not None and "with an SLO of 10 ms" in slow.infeasible
    busy = low_batch(generated_tok_s=3000, busy_generated_tok_s=3300, running=100, prompt_tok_s=12000, requests_s=8)
    full = priced(FOUR, split, seen=busy, slo=Slo(tpot_p95_ms=500.0), market=load_market("aws"))
    assert full.break_even is not None and "it holds up to " in full.break_even


def shared(fleet: Fleet, share: float, source: str | None) -> Estimate:
    """Return a small model on an L4 beside the replicas of a fleet, which takes this share."""
    now = chat(fleet).deployments[0]
    small = now.but(model=model("Llama-3.1-8B"), weight_dtype="fp8", tp=1, max_model_len=4096)
    small = small.on(Placement(accelerator="L4", purchase="on_demand")).serving_share(share, source=source)
    split = fleet.replace(now, now.serving_share((1 - share) / len(chat(fleet).deployments)), small)
    return priced(fleet, split, slo=Slo(tpot_p95_ms=100.0), market=load_market("aws"))


def test_a_share_that_a_person_supplied_gives_back_the_replicas_the_rest_does_not_need() -> None:
    estimate = shared(FOUR, 0.2, "by a labelled sample of 500")
    assert estimate.unpriced is None and estimate.break_even is None
    assert estimate.net is not None and estimate.released and estimate.replicas is not None
    assert estimate.replicas[1] == 4 - len(estimate.released)
    whole = priced(FOUR, FOUR.edit(chat(FOUR).scaled_to(estimate.replicas[1])))
    assert whole.net is not None
    assert 0 < estimate.net[1] < whole.net[1], "the new device is paid for"
    assert any("20% of the requests as well, by a labelled sample of 500" in line for line in estimate.assumptions)


def test_a_supplied_share_that_releases_no_replica_frees_busy_time_and_costs_a_device() -> None:
    estimate = shared(ONE, 0.2, "by a labelled sample of 500")
    assert estimate.unpriced is None and estimate.saving is not None and estimate.saving.pays_more
    assert estimate.saving.capacity[1] > 0
    assert any("the bill would rise by" in line for line in estimate.against)


def test_the_same_share_as_a_guess_has_no_money_in_it() -> None:
    estimate = shared(FOUR, 0.2, None)
    assert estimate.net is None and estimate.capacity is None and estimate.break_even is not None
