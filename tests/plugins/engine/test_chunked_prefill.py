from typing import Any

import pytest

from pertoken.catalog.knobs import flag_commands
from pertoken.plugins.engine.chunked_prefill import chunked_prefill
from pertoken.testing import deployment, fleet, regime, run, series, service
from pertoken.testing.builders import evidence

SMOOTH = series(0.02, p50=0.02, p95=0.03, max=0.04)
SPIKY = series(0.03, p50=0.02, p95=0.1, max=0.4)
BASE: dict[str, Any] = {
    "waiting": 0.0,
    "running": 20.0,
    "kv_use": 0.3,
    "cached_share": 0.25,
    "prompt_len": series(6000, p95=16_000),
}


def ran(tpot: Any = SMOOTH, *, seen: dict[str, Any] | None = None, **fields: Any) -> Any:
    chat = service("chat", *[deployment(**fields)] * 2)
    return run(chunked_prefill, regime(fleet(chat), {"chat": evidence(tpot_s=tpot, **{**BASE, **(seen or {})})}))


def knobs(result: Any) -> Any:
    (proposed,) = result.proposals
    assert (proposed.risk, proposed.effort, proposed.excludes) == ("latency", "medium", ("batch-limit",))
    return proposed.diff.knobs(2)


def test_prompts_that_interrupt_decoding_are_computed_in_smaller_chunks() -> None:
    assert knobs(ran(SPIKY)) == {"max_num_batched_tokens": (8192, 2048)}
    assert knobs(ran(SPIKY, max_num_seqs=4096)) == {"max_num_batched_tokens": (8192, 4096)}


def test_prompts_that_are_computed_whole_and_interrupt_decoding_are_chunked() -> None:
    assert knobs(ran(SPIKY, enable_chunked_prefill=False)) == {"enable_chunked_prefill": (False, True)}
    assert ran(enable_chunked_prefill=False).codes == ("no-interference",)


def test_prompts_that_wait_for_a_place_in_a_step_are_computed_in_larger_chunks() -> None:
    assert knobs(ran(seen={"waiting": 0.8})) == {"max_num_batched_tokens": (8192, 16384)}
    assert knobs(ran(seen={"waiting": 0.8}, max_num_batched_tokens=2048)) == {"max_num_batched_tokens": (2048, 4096)}


def test_without_interference_it_refuses_with_the_figures() -> None:
    (refusal, *_) = ran().refusals
    assert refusal.code == "no-interference" and "1.9 times its median" in refusal.reason


@pytest.mark.parametrize(
    ("tpot", "seen", "fields", "code"),
    [
        (SPIKY, {"prompt_len": 300}, {}, "short-prompts"),
        (SPIKY, {}, {"max_num_batched_tokens": 2048}, "chunks-small"),
        (SMOOTH, {"waiting": 3, "running": 250}, {}, "batch-limit"),
        (SMOOTH, {"waiting": 3}, {"max_num_seqs": None}, "batch-limit"),
        (SMOOTH, {"waiting": 3, "kv_use": 0.95}, {}, "kv-cache-full"),
        (SMOOTH, {"waiting": 3, "prompt_len": 300}, {}, "short-prompts"),
        (SMOOTH, {"waiting": 3, "prompt_len": 60_000}, {"max_num_batched_tokens": 16384}, "chunks-large"),
        (SMOOTH, {"waiting": 3, "queue_s": 0.01, "ttft_s": 0.5}, {}, "short-queue"),
        (SPIKY, {}, {"max_num_batched_tokens": None}, "budget-unknown"),
        (SPIKY, {}, {"engine": "tgi"}, "engine-decides"),
        (SPIKY, {}, {"engine": "trtllm", "enable_chunked_prefill": None}, "chunking-unknown"),
    ],
)
def test_it_refuses_where_chunks_are_not_the_cause(
    tpot: Any, seen: dict[str, Any], fields: dict[str, Any], code: str
) -> None:
    assert ran(tpot, seen=seen, **fields).codes == (code,)


def test_replicas_with_other_budgets_are_refused() -> None:
    mixed = service("chat", deployment(), deployment(max_num_batched_tokens=2048))
    result = run(chunked_prefill, regime(fleet(mixed), {"chat": evidence(tpot_s=SPIKY, **BASE)}))
    assert result.codes == ("replicas-differ",)


@pytest.mark.parametrize(
    ("engine", "changes", "apply", "undo"),
    [
        ("vllm", {"max_num_batched_tokens": (8192, 2048)}, "set --max-num-batched-tokens 2048", "8192"),
        ("vllm", {"enable_chunked_prefill": (False, True)}, "remove --no-enable-chunked-prefill", "--no-enable"),
        ("sglang", {"max_num_batched_tokens": (8192, 2048)}, "set --chunked-prefill-size 2048", "8192"),
        ("trtllm", {"max_num_batched_tokens": (8192, 2048)}, "set --max_num_tokens 2048", "8192"),
        ("llama.cpp", {"max_num_batched_tokens": (8192, 2048)}, "set --batch-size 2048", "8192"),
    ],
)
def test_each_engine_has_its_flags_and_their_undo(engine: str, changes: Any, apply: str, undo: str) -> None:
    written = flag_commands(engine, changes)
    assert written.apply == (apply,) and undo in written.undo[0]
