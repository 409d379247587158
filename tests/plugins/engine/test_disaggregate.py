from typing import Any

import pytest

from pertoken.plugins.engine.disaggregate import disaggregate
from pertoken.rule import Fleet
from pertoken.state.service import Slo
from pertoken.testing import Result, deployment, evidence, fleet, regime, run, series, service

SLO = Slo(ttft_p95_ms=800.0, tpot_p95_ms=40.0)
BUSY: dict[str, Any] = {
    "busy": 0.9,
    "computed_tok_s": 12_000.0,
    "ttft_s": series(0.7, p95=1.4, max=3),
    "tpot_s": series(0.03, p95=0.06, max=0.3),
}


def ran(replicas: int = 4, slo: Slo = SLO, seen: dict[str, Any] | None = None, **knobs: Any) -> Result:
    of: dict[str, Any] = {"tp": 4, "weight_dtype": "fp8"} | knobs
    made = service("chat", *[deployment("Llama-3.3-70B", **of)] * replicas, slo=slo)
    known = evidence(**{**BUSY, **(seen or {})})
    return run(disaggregate, regime(fleet(made), {"chat": known}))


def roles(result: Result) -> list[str | None]:
    (proposed,) = result.proposals
    assert isinstance(proposed.state, Fleet)
    return [deployment.role for deployment in proposed.state.service("chat").deployments]


def test_replicas_are_divided_by_the_time_that_prompts_take() -> None:
    assert roles(ran()) == ["prefill", "prefill", "decode", "decode"]
    assert roles(ran(seen={"computed_tok_s": 7_000.0})) == ["prefill", "decode", "decode", "decode"]


def test_a_split_excludes_what_changes_the_same_replicas() -> None:
    (proposed,) = ran().proposals
    assert (proposed.risk, proposed.effort) == ("latency", "high")
    assert set(proposed.excludes) == {"right-size-parallelism", "chunked-prefill"}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"replicas": 3}, "small-fleet"),
        ({"replicas": 1, "tp": 16}, "small-fleet"),
        ({"engine": "tgi"}, "engine-cannot"),
        ({"role": "decode"}, "split-already"),
        ({"seen": {"busy": 0.0}}, "no-load"),
        ({"slo": Slo(ttft_p95_ms=800.0)}, "no-objectives"),
        ({"slo": Slo(ttft_p95_ms=5000.0, tpot_p95_ms=500.0)}, "slo-kept"),
        ({"seen": {"computed_tok_s": 500.0}}, "one-sided"),
        ({"seen": {"computed_tok_s": 60_000.0}}, "one-sided"),
    ],
)
def test_it_refuses_small_fleets_kept_objectives_and_one_sided_loads(fields: dict[str, Any], code: str) -> None:
    result = ran(**fields)
    assert result.codes == (code,) and not result.proposals


def test_without_latencies_it_is_blocked() -> None:
    made = service("chat", *[deployment("Llama-3.3-70B", tp=4)] * 4, slo=SLO)
    without_latencies = regime(fleet(made), {"chat": evidence(busy=0.9, computed_tok_s=9000.0)})
    assert run(disaggregate, without_latencies).blocked == ("ttft_s",)
