from dataclasses import replace
from typing import Any

import pytest

from pertoken.evidence import Evidence
from pertoken.plugins.requests.output_budget import Options, output_budget
from pertoken.rule import Demand, Fleet
from pertoken.testing import run, series
from tests.plugins.proposals import chat, proposals, refusal
from tests.savings.fleets import low_batch
from tests.state.fleets import measured as counted

LENGTHS = series(900, p50=420, p95=2400, max=8000)


def served(output_len: float | None = 900) -> Fleet:
    service = chat()
    demand = Demand(output_len=None if output_len is None else counted(output_len))
    return replace(service, services=(replace(service.services[0], demand=demand),))


def seen(**changed: Any) -> Evidence:
    known = dict(low_batch(busy=0.6).items()) | {
        "generated_len": LENGTHS,
        "max_tokens": series(32_768),
        "ended_by_length": series(0.004),
    }
    return Evidence(known | {name: series(value) for name, value in changed.items()})


def test_outputs_that_run_on_end_at_a_budget_by_their_measured_lengths() -> None:
    (after,) = proposals(output_budget, served(), seen())
    shorter = after.demand.output_len
    assert not shorter.confirmed and "none above 2,400 tokens, which cuts 5% of its outputs" in shorter.source
    # Of each 1000 outputs 50 lose 2,800 tokens on average, of 1.1 million that the linear quantiles add up to.
    assert shorter.value == pytest.approx(900 * 0.873, rel=0.01)


def test_a_tighter_budget_keeps_less() -> None:
    values = [
        run(output_budget, "unbounded", cut=cut).proposals[0].diff.changes[0].after.value for cut in (0.01, 0.05, 0.2)
    ]
    assert values[0] > values[1] > values[2]


def test_a_number_that_a_person_supplies_is_priced_whatever_limits_there_are() -> None:
    (change,) = run(output_budget, "bandwidth-bound", kept=0.7).proposals[0].diff.changes
    assert change.after.confirmed and change.after.value == pytest.approx(280)


@pytest.mark.parametrize(
    ("output_len", "changed", "code"),
    [
        (900, {"busy": 0.01}, "hardly-busy"),
        (900, {"ended_by_length": 0.08}, "truncated"),
        (900, {"max_tokens": 9000.0}, "budget-fits"),
        (None, {}, "length-unknown"),
    ],
)
def test_it_refuses_a_budget_that_limits_no_request_or_already_cuts_outputs(
    output_len: float | None, changed: dict[str, float], code: str
) -> None:
    assert refusal(output_budget, served(output_len), seen(**changed), options=Options())[0] == code
