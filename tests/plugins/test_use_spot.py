from dataclasses import replace

import pytest

from pertoken.catalog.market import load_market
from pertoken.plugins.use_spot import use_spot
from tests.fleets import LLAMA_70B, low_batch
from tests.plugins.proposals import proposals, refusal

TWIN = replace(LLAMA_70B, replicas=2)


def test_a_surplus_replica_may_run_on_spot() -> None:
    assert proposals(use_spot, now=TWIN) == [TWIN.but(purchase="spot")]


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (LLAMA_70B, "only replica"),
        (TWIN.but(purchase="reserved"), "paid as reserved"),
        (TWIN.but(purchase="spot"), "paid as spot"),
        (replace(TWIN, accelerator=None), "not in the catalog"),
    ],
)
def test_it_refuses_a_single_replica_and_devices_not_paid_on_demand(now: object, reason: str) -> None:
    assert reason in refusal(use_spot, now=now)


def test_it_refuses_where_no_spot_offer_is_really_below_on_demand() -> None:
    assert "really below" in refusal(use_spot, now=TWIN, market=load_market("lambda"))


def test_it_refuses_what_served_nothing() -> None:
    assert "served nothing" in refusal(use_spot, now=TWIN, seen=low_batch(busy=0))
