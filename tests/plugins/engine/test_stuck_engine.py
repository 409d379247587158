from dataclasses import replace
from typing import Any

import pytest

from pertoken.plugins.engine.stuck_engine import stuck_engine
from pertoken.rule import Fleet, asleep
from pertoken.testing import deployment, evidence, fleet, regime, run, service

SILENT: dict[str, Any] = {"generated_tok_s": 0, "prompt_tok_s": 0, "observed_h": 3, "stuck_h": 0, "device_util": 0}


def one(**fields: Any) -> Fleet:
    return fleet(service("chat", deployment("Llama-3.3-70B", tp=2, **fields)))


def yielded(state: Fleet, **seen: float) -> Any:
    return run(stuck_engine, regime(state, {"chat": evidence(**SILENT | seen)}))


@pytest.mark.parametrize("sign", [{"stuck_h": 0.1}, {"stuck_h": 0.1, "generated_tok_s": 90}, {"device_util": 1.0}])
def test_a_server_that_holds_requests_or_its_devices_but_gives_no_token_is_restarted(sign: dict[str, float]) -> None:
    (proposed,) = yielded(one(), **sign).proposals
    assert proposed.diff.of("deployment", 1) == {"restart": (False, True)}
    assert (proposed.risk, proposed.effort) == ("availability", "medium")


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        ({"stuck_h": 0.5, "asleep": 0.7}, "asleep"),
        ({"generated_tok_s": 0.1}, "serves"),
        ({"device_util": 1.0, "prompt_tok_s": 900}, "serves"),
        ({"device_util": 1.0, "observed_h": 0.4}, "observed-briefly"),
        ({}, "nothing-asked"),
    ],
)
def test_it_refuses_a_server_that_sleeps_serves_or_is_not_asked(seen: dict[str, float], code: str) -> None:
    assert yielded(one(), **seen).codes == (code,)


def test_it_looks_at_the_last_hour_and_a_person_may_have_it_judge_by_less_of_it() -> None:
    assert stuck_engine.window_s == 3600
    silent = regime(one(), {"chat": evidence(**SILENT | {"device_util": 1.0, "observed_h": 0.4})})
    (refused,) = run(stuck_engine, silent).refusals
    assert refused.reason == "it generated no token, but only 0.40 of the required 0.5 h were observed"
    assert run(stuck_engine, silent, observed_h=0.3).proposals


def test_a_planned_sleep_is_not_a_stuck_server() -> None:
    asleep_now = one()
    planned = replace(asleep_now, services=(asleep_now.services[0].scheduled(asleep(range(8))),))
    (refused,) = yielded(planned, stuck_h=0.5).refusals
    assert refused.code == "asleep" and "8 hours of the week" in refused.reason


def test_work_of_other_deployments_on_its_devices_is_not_its_own() -> None:
    shared = fleet(service("chat", deployment(device_ids=(10,))), service("search", deployment(device_ids=(10,))))
    seen = {"chat": evidence(**SILENT | {"device_util": 1.0}), "search": evidence(**SILENT | {"generated_tok_s": 90})}
    assert run(stuck_engine, regime(shared, seen)).codes == ("nothing-asked", "serves")


def test_without_a_view_of_requests_and_devices_it_is_blocked() -> None:
    seen = {"chat": evidence(generated_tok_s=0, observed_h=3)}
    assert run(stuck_engine, regime(one(), seen)).blocked == ("stuck_h",)
