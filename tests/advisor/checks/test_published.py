"""Published facts refuse proposals of any rule."""

from dataclasses import replace

from pertoken.advisor.checks.published import refusal
from pertoken.rule import Placement
from tests.deployments import MARKET
from tests.savings.fleets import replicas

V100 = Placement(accelerator="V100 SXM2 32GB")


def test_a_format_that_does_not_run_on_a_device_is_refused_whichever_side_of_it_changes() -> None:
    before = replicas(1)
    (chat,) = before.services
    for service in (chat.on(V100), chat.but(weight_dtype="int4").on(V100), chat.but(engine="an-engine-of-our-own")):
        reason = refusal(before, before.edit(service), MARKET)
        assert reason is not None and reason.code == "format-not-run"
    for service in (chat.but(weight_dtype="fp8"), chat.on(Placement(accelerator="L40S")), chat.but(tp=1)):
        assert refusal(before, before.edit(service), MARKET) is None


def test_what_runs_already_is_not_questioned() -> None:
    fleet = replicas(1)
    (now,) = fleet.services[0].deployments
    before = fleet.replace(now, replace(now, engine="an-engine-of-our-own", weight_dtype="int4"))
    (chat,) = before.services
    assert refusal(before, before.edit(chat.but(max_num_seqs=64)), MARKET) is None
