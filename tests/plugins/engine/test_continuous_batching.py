from typing import Any

import pytest

from pertoken.catalog.knobs import flag_commands
from pertoken.plugins.engine.batch_limit import batch_limit
from pertoken.plugins.engine.continuous_batching import ENGINES, continuous_batching
from pertoken.testing import run
from tests.plugins.proposals import chat, proposals, refusal
from tests.savings.fleets import low_batch

QUEUED = {"running": 1, "waiting": 4, "kv_use": 0.05}


def test_requests_that_wait_for_the_one_before_are_batched() -> None:
    services = proposals(continuous_batching, chat(2, max_num_seqs=1), low_batch(**QUEUED))
    assert [[one.max_num_seqs for one in service.deployments] for service in services] == [[8, 8], [32, 32]]


@pytest.mark.parametrize(
    ("fields", "seen", "code"),
    [
        ({"max_num_seqs": 1}, {"waiting": 0}, "no-queue"),
        ({"max_num_seqs": 1}, {"kv_use": 0.95}, "kv-cache-full"),
        ({"max_num_seqs": 1, "gpu_memory_utilization": None}, {"device_memory": 1.58e11}, "memory-full"),
        ({"max_num_seqs": 1, "engine": "ollama"}, {}, "no-flag"),
        ({"max_num_seqs": 64}, {}, "batches-already"),
        ({"max_num_seqs": None}, {}, "limit-unknown"),
    ],
)
def test_it_refuses_without_a_queue_or_headroom(fields: dict[str, Any], seen: dict[str, float], code: str) -> None:
    assert refusal(continuous_batching, chat(**fields), low_batch(**QUEUED | seen))[0] == code


def test_the_batch_limit_leaves_one_request_at_a_time_to_it() -> None:
    assert run(batch_limit, "one-at-a-time").codes == ("one-at-a-time",)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_it_proposes_for_has_a_flag_and_its_undo(engine: str) -> None:
    written = flag_commands(engine, {"max_num_seqs": (1, 8)})
    assert written.apply and written.undo
    assert written.apply[0].startswith("set --") and written.apply[0].endswith(" 8") and written.undo[0].endswith(" 1")
