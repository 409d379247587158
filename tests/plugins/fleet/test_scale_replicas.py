from typing import Any

import pytest

from pertoken.plugins.fleet.scale_replicas import scale_replicas
from pertoken.rule import FEWEST, Service
from pertoken.state.service import Slo
from pertoken.testing import deployment, fleet, regime, run, service
from pertoken.testing.builders import evidence

IDLE = {"observed_h": 24.0, "busy": 0.1, "running": 1.2, "waiting": 0.0, "kv_use": 0.05, "ttft_s": 0.2, "tpot_s": 0.02}


def chat(replicas: int = 3, **fields: Any) -> Service:
    return service("chat", *[deployment()] * replicas, **fields)


def ran(replicas: Service, **seen: float) -> Any:
    return run(scale_replicas, regime(fleet(replicas), {"chat": evidence(**{**IDLE, **seen})}))


def test_replicas_that_idle_are_resized_and_the_number_is_left_to_pricing() -> None:
    (proposed,) = ran(chat()).proposals
    assert isinstance(proposed.state, Service)
    assert (proposed.state.replicas, proposed.risk, proposed.effort) == (FEWEST, "latency", "low")
    assert proposed.excludes == ("route-requests",)


def test_busy_replicas_with_nearly_empty_batches_are_resized_too() -> None:
    assert ran(chat(), busy=0.95, running=3).proposals
    assert ran(chat(), busy=0.95, running=100).codes == ("busy",)


def test_one_service_is_proposed_at_a_time() -> None:
    two = fleet(chat(2), service("code", *[deployment()] * 2))
    seen = evidence(**IDLE)
    results = run(scale_replicas, regime(two, {"chat": seen, "code": seen})).proposals
    changed = [[change.target for change in proposed.diff.changes] for proposed in results]
    assert changed == [["chat"], ["code"]]


@pytest.mark.parametrize(
    ("fields", "codes"),
    [
        ({"min_replicas": 3}, ("at-minimum",)),
        ({"min_replicas": 2, "spare_replicas": 1}, ("at-minimum",)),
        ({"min_replicas": 2}, ()),
        ({"slo": Slo(ttft_p95_ms=150)}, ("slo-missed",)),
        ({"slo": Slo(tpot_p95_ms=15)}, ("slo-missed",)),
        ({"slo": Slo(ttft_p95_ms=500, tpot_p95_ms=50)}, ()),
    ],
)
def test_minimum_spare_replicas_and_objectives_are_kept(fields: dict[str, Any], codes: tuple[str, ...]) -> None:
    result = ran(chat(**fields))
    assert (result.codes, bool(result.proposals)) == (codes, not codes)


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        ({"observed_h": 3}, "observed-briefly"),
        ({"busy": 0}, "no-load"),
        ({"waiting": 2}, "requests-wait"),
        ({"busy": 0.9, "kv_use": 0.6}, "kv-cache-full"),
    ],
)
def test_it_refuses_what_speaks_against_fewer_replicas(seen: dict[str, float], code: str) -> None:
    assert ran(chat(), **seen).codes == (code,)


def test_it_refuses_one_replica_and_replicas_that_differ() -> None:
    assert ran(chat(1)).codes == ("at-minimum",)
    mixed = service("chat", deployment(), deployment(weight_dtype="fp8"))
    assert ran(mixed).codes == ("replicas-differ",)


def test_batches_of_unknown_limits_count_as_full() -> None:
    unknown = service("chat", *[deployment(max_num_seqs=None)] * 2)
    assert ran(unknown, busy=0.9).codes == ("busy",)
