import pytest

from pertoken.plugins.raise_batch_limit import raise_batch_limit
from tests.fleets import LLAMA_70B, low_batch
from tests.plugins.proposals import proposals, refusal

LIMITED = LLAMA_70B.but(max_num_seqs=8)
PINNED = {"running": 8, "waiting": 12, "kv_use": 0.3}


def test_requests_that_wait_behind_a_low_limit_are_let_in() -> None:
    found = proposals(raise_batch_limit, now=LIMITED, seen=low_batch(**PINNED))
    assert [each.max_num_seqs for each in found] == [16, 32]


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        ({"running": 2, "waiting": 0}, "below its limit of 8"),
        ({"running": 8, "waiting": 0}, "nothing to batch"),
        ({"kv_use": 0.95}, "95% full"),
        ({"preemptions": 3}, "preempted"),
    ],
)
def test_it_refuses_where_the_limit_is_not_what_holds_requests_back(seen: dict[str, float], reason: str) -> None:
    assert reason in refusal(raise_batch_limit, now=LIMITED, seen=low_batch(**(PINNED | seen)))


def test_it_refuses_a_limit_nobody_could_see() -> None:
    assert "not known" in refusal(raise_batch_limit, now=LIMITED.but(max_num_seqs=None), seen=low_batch(**PINNED))
