import pytest

from pertoken.plugins.engine.batch_limit import batch_limit
from tests.plugins.proposals import chat, proposals, refusal
from tests.savings.fleets import low_batch

LIMITED = chat(max_num_seqs=8)
PINNED = {"running": 8, "waiting": 12, "kv_use": 0.3}


def test_requests_that_wait_behind_a_low_limit_are_let_in() -> None:
    yielded = proposals(batch_limit, LIMITED, low_batch(**PINNED))
    assert [each.deployments[0].max_num_seqs for each in yielded] == [16, 32]


def test_the_limit_of_a_service_is_that_of_its_replicas_together() -> None:
    four = chat(4, max_num_seqs=8)
    assert refusal(batch_limit, four, low_batch(**PINNED))[0] == "below-limit"
    yielded = proposals(batch_limit, four, low_batch(**(PINNED | {"running": 31})))
    assert [[replica.max_num_seqs for replica in each.deployments] for each in yielded] == [[16] * 4, [32] * 4]


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


def test_it_refuses_a_limit_nobody_could_see() -> None:
    assert refusal(batch_limit, chat(max_num_seqs=None), low_batch(**PINNED))[0] == "limit-unknown"
