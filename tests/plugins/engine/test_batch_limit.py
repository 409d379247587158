from dataclasses import replace

import pytest

from pertoken.plugins.engine.batch_limit import batch_limit
from pertoken.rule import Fleet
from pertoken.state.service import Slo
from tests.plugins.proposals import chat, proposals, refusal
from tests.savings.fleets import low_batch

LIMITED = chat(max_num_seqs=8)
PINNED = {"running": 8, "waiting": 12, "kv_use": 0.3}


def test_requests_that_wait_behind_a_low_limit_are_let_in() -> None:
    yielded = proposals(batch_limit, LIMITED, low_batch(**PINNED))
    assert [service.deployments[0].max_num_seqs for service in yielded] == [16, 32]


def test_the_limit_of_a_service_is_that_of_its_replicas_together() -> None:
    four = chat(4, max_num_seqs=8)
    assert refusal(batch_limit, four, low_batch(**PINNED))[0] == "below-limit"
    yielded = proposals(batch_limit, four, low_batch(**(PINNED | {"running": 31})))
    assert [[replica.max_num_seqs for replica in service.deployments] for service in yielded] == [[16] * 4, [32] * 4]


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        ({"running": 2, "waiting": 0}, "below-limit"),
        ({"running": 8, "waiting": 0}, "no-queue"),
        ({"kv_use": 0.95}, "kv-cache-full"),
        ({"preemptions": 3}, "preemptions"),
    ],
)
def test_it_refuses_where_the_limit_is_not_what_holds_requests_back(seen: dict[str, float], code: str) -> None:
    assert refusal(batch_limit, LIMITED, low_batch(**(PINNED | seen)))[0] == code


def test_it_refuses_an_unknown_limit() -> None:
    assert refusal(batch_limit, chat(max_num_seqs=None), low_batch(**PINNED))[0] == "limit-unknown"


def test_a_larger_batch_gets_steps_that_hold_a_token_of_each_request() -> None:
    (first, second) = proposals(batch_limit, chat(max_num_seqs=8, max_num_batched_tokens=20), low_batch(**PINNED))
    assert [service.deployments[0].max_num_batched_tokens for service in (first, second)] == [20, 32]


def test_steps_that_are_full_of_tokens_while_requests_wait_are_enlarged() -> None:
    chat_service = chat(max_num_seqs=64, max_num_batched_tokens=2048)
    full = {"running": 8, "waiting": 12, "kv_use": 0.3, "step_tokens": 2040}
    yielded = proposals(batch_limit, chat_service, low_batch(**full))
    settings = [
        (service.deployments[0].max_num_seqs, service.deployments[0].max_num_batched_tokens) for service in yielded
    ]
    assert settings == [(64, 4096), (64, 8192)]
    assert refusal(batch_limit, chat_service, low_batch(**full | {"waiting": 0}))[0] == "no-queue"
    assert refusal(batch_limit, chat_service, low_batch(**full | {"step_tokens": 900}))[0] == "below-limit"


def missing_objective(**knobs: int | None) -> Fleet:
    chat_service = chat(2, **knobs)
    return replace(chat_service, services=(replace(chat_service.services[0], slo=Slo(tpot_p95_ms=50)),))


def test_a_batch_that_misses_its_tpot_objective_gets_a_limit_below_the_running_requests() -> None:
    slow = low_batch(running=80, tpot_s=0.07)
    chat_service = missing_objective(max_num_seqs=256, max_num_batched_tokens=8192)
    assert [proposal.deployments[0].max_num_seqs for proposal in proposals(batch_limit, chat_service, slow)] == [30, 20]
    full = proposals(batch_limit, chat_service, low_batch(running=80, tpot_s=0.07, step_tokens=8000))
    assert [service.deployments[0].max_num_batched_tokens for service in full] == [8192, 8192, 4096]
    assert refusal(batch_limit, chat_service, low_batch(running=80, tpot_s=0.04))[0] == "below-limit"
    assert refusal(batch_limit, chat(2, max_num_seqs=256), slow)[0] == "below-limit", "no objective is set"


def test_a_single_request_that_misses_its_objective_is_no_batch_to_make_smaller() -> None:
    code, reason = refusal(batch_limit, missing_objective(max_num_seqs=8), low_batch(running=2, tpot_s=0.07))
    assert code == "smallest-batch"
    tpot = "its TPOT is 70 ms (p95), above its objective of 50 ms"
    assert reason == f"{tpot}, but only 2.0 requests run: there is no batch to shrink"


def test_a_batch_of_which_many_requests_are_preempted_is_made_smaller() -> None:
    thrashing = {"running": 60, "kv_use": 0.98, "requests_s": 0.5}
    chat_service = chat(max_num_seqs=256)
    lowered = proposals(batch_limit, chat_service, low_batch(**thrashing, preemptions=450))
    assert [service.deployments[0].max_num_seqs for service in lowered] == [45, 30]
    assert refusal(batch_limit, chat_service, low_batch(**thrashing, preemptions=40))[0] == "below-limit"
