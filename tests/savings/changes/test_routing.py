"""A service split over its deployment and a smaller one: a break-even, never money."""

from pertoken.savings.estimate import Estimate
from pertoken.state.fleet import Fleet
from tests.deployments import model
from tests.savings.fleets import FOUR, ONE, chat, priced


def routed(fleet: Fleet) -> Estimate:
    now = chat(fleet).deployments[0]
    small = now.but(model=model("Qwen3-1.7B")).serving_share(0.4)
    return priced(fleet, fleet.replace(now, now.serving_share(0.6), small))


def test_routing_names_the_share_from_which_it_pays_and_saves_no_dollars() -> None:
    found = routed(FOUR)
    assert found.bankable is None and found.unpriced is not None
    assert "is not measured: label a sample, then route" in found.unpriced
    assert any("must be evaluated on your own tasks" in line for line in found.against)


def test_a_smaller_model_that_needs_as_many_devices_pays_at_no_share() -> None:
    found = routed(ONE)
    assert found.infeasible is not None and "no share it could take pays for them" in found.infeasible


def test_disaggregation_is_measured_in_a_trial() -> None:
    now = chat(ONE).deployments[0]
    found = priced(ONE, ONE.replace(now, now.but(role="prefill"), now.but(role="decode")))
    assert found.unpriced is not None and "measure them in a trial" in found.unpriced
