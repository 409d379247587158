"""Advice that rests on earlier epochs, from the rule in its worker to the row that people see."""

from dataclasses import replace

from pertoken.evidence import Evidence
from pertoken.plugins.engine.pin_engine import pin_engine
from pertoken.proof.recommendation import Recommendation, State
from pertoken.rule import Epoch
from pertoken.testing import earlier
from tests.advisor.gathered import advised, gathered
from tests.plugins.proposals import chat
from tests.savings.fleets import context, low_batch

FLEET = chat(engine_version="0.32.0")
(ID,) = (deployment.deployment_id for deployment in FLEET.deployments)


def advice_after(epoch: Epoch) -> Recommendation:
    seen = Evidence(dict(low_batch().items()), epochs=(replace(epoch, deployment_id=ID),))
    known = replace(context(FLEET, seen), services={"chat": seen})
    (row,) = advised(gathered(FLEET, known), pin_engine)
    return row


def test_going_back_is_priced_by_the_matched_hours_and_shows_them() -> None:
    row = advice_after(earlier("0.31.0", (1.28, 1.33, 1.38)))
    assert row.state is State.OPEN
    (variant,) = row.variants
    assert variant.commands == ("install vllm 0.31.0 and restart",)
    assert variant.undo == ("install vllm 0.32.0 again and restart",)
    assert any("1.33 times the tokens per device-second" in assumption for assumption in variant.assumptions)
    (line,) = row.evidence
    assert line.series == "device time per token, now over 0.31.0 until 2026-09-28"
    assert (line.mean, line.n) == (1.33, 150)
    assert line.provenance == "matched hours, 90 % interval 1.28 to 1.38"


def test_where_the_load_differed_the_row_is_a_refusal_with_the_reason() -> None:
    row = advice_after(earlier("0.31.0"))
    assert row.state is State.REFUSED, row.reason
    assert row.refusals[0].code == "load-differs"
    assert [line.missing for line in row.evidence] == ["the load differed"]
