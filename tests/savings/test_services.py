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
def test_a_knob_that_nobody_can_price_is_unpriced_and_never_zero(knobs: dict[str, object]) -> None:
    found = priced(ONE, chat(ONE).but(**knobs))
    assert found.unpriced is not None and found.bankable is None and found.capacity is None


def test_a_rule_s_own_expectation_prices_busy_time_as_assumed() -> None:
    now = chat(ONE).deployments[0]
    found = priced(ONE, now.but(engine_version="0.12").expecting(1.0, 1.25, 1.5, "release notes"))
    assert found.bankable == NOTHING and found.capacity is not None
    assert found.capacity[1] == pytest.approx(0.6 * usd_month(2 * 6.88) * 0.2, rel=1e-6)
    assert found.provenance is not None and found.provenance.label == "assumed"


def test_a_layout_that_does_not_start_is_infeasible() -> None:
    found = priced(ONE, chat(ONE).but(tp=1))
    assert found.infeasible is not None and found.infeasible.startswith("it would not start")
    assert found.bankable is None


def test_a_restart_names_what_is_paid_while_nothing_is_served() -> None:
    found = priced(ONE, chat(ONE).deployments[0].restarted())
    assert found.unpriced is not None and found.unpriced.endswith("nothing is served, at $13.76 an hour")
    unknown = priced(ONE, chat(ONE).deployments[0].restarted(), price=None)
    assert unknown.unpriced == "a restart changes no bill: it ends the time in which nothing is served"


def test_a_model_that_moves_into_a_slice_is_tried_before_it_is_priced() -> None:
    two = [Service("chat", (llama(1, (10,), model=SMALL),)), Service("code", (llama(2, (20,), "code", model=SMALL),))]
    fleet = fleet_of(two, [host(1, 1), host(2, 1)])
    chat, code = fleet.deployments
    divided = fleet.replace(chat, chat.on_devices((20,))).partition(10, "3g.40gb", "3g.40gb")
    here, there = (each.partition_id for each in divided.device(10).partitions)
    after = divided.replace(divided.deployment(1), chat.on_devices((here,)))
    after = after.replace(code, code.on_devices((there,))).release(2)
    found = estimate(fleet, after, context(fleet))
    assert found.bankable is None and "in a slice of a device, which is not forecast" in (found.unpriced or "")
