"""The outcome of a change of knobs for one service, or why it has none."""

import pytest

from pertoken.savings.context import NOTHING
from pertoken.savings.estimate import estimate
from pertoken.state.service import Service
from tests.deployments import model
from tests.savings.fleets import (
    ONE,
    chat,
    context,
    fleet_of,
    host,
    llama,
    priced,
    usd_month,
)

SMALL = model("Llama-3.1-8B")


@pytest.mark.parametrize(
    "knobs",
    [{"kv_offload_bytes": 2**30}, {"ep": 2}, {"sleep": True}, {"engine_version": "0.12"}, {"sm_clock_mhz": 1200}],
)
def test_a_knob_without_a_model_is_unpriced_and_never_zero(knobs: dict[str, object]) -> None:
    estimate = priced(ONE, chat(ONE).but(**knobs))
    assert estimate.unpriced is not None and estimate.net is None and estimate.capacity is None


def test_a_rule_s_own_expectation_prices_busy_time_as_assumed() -> None:
    now = chat(ONE).deployments[0]
    estimate = priced(ONE, now.but(engine_version="0.12").expecting(1.0, 1.25, 1.5, "release notes"))
    assert estimate.net == NOTHING and estimate.capacity is not None
    assert estimate.capacity[1] == pytest.approx(0.6 * usd_month(2 * 6.88) * 0.2, rel=1e-6)
    assert estimate.provenance is not None and estimate.provenance.label == "assumed"


def test_a_layout_that_does_not_start_is_infeasible() -> None:
    estimate = priced(ONE, chat(ONE).but(tp=1))
    assert estimate.infeasible is not None and estimate.infeasible.startswith("it would not start")
    assert estimate.net is None


def test_a_restart_states_the_dollars_paid_while_nothing_is_served() -> None:
    estimate = priced(ONE, chat(ONE).deployments[0].restarted())
    assert estimate.unpriced is not None and estimate.unpriced.endswith("nothing is served, at $13.76 an hour")
    unknown = priced(ONE, chat(ONE).deployments[0].restarted(), price=None)
    assert unknown.unpriced == "a restart changes no bill: it ends the time in which nothing is served"


def test_a_model_that_moves_into_a_slice_is_tried_before_it_is_priced() -> None:
    two = [Service("chat", (llama(1, (10,), model=SMALL),)), Service("code", (llama(2, (20,), "code", model=SMALL),))]
    fleet = fleet_of(two, [host(1, 1), host(2, 1)])
    chat, code = fleet.deployments
    divided = fleet.replace(chat, chat.on_devices((20,))).partition(10, "3g.40gb", "3g.40gb")
    own, other = (partition.partition_id for partition in divided.device(10).partitions)
    after = divided.replace(divided.deployment(1), chat.on_devices((own,)))
    after = after.replace(code, code.on_devices((other,))).release(2)
    priced = estimate(fleet, after, context(fleet))
    assert priced.net is None and "in a slice of a device, which is not forecast" in (priced.unpriced or "")
