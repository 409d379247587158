from typing import Any

import pytest

from pertoken.catalog.knobs import flag_commands
from pertoken.plugins.engine.shorter_context import shorter_context
from pertoken.rule import Proposal
from pertoken.testing import deployment, fleet, regime, run, series, service
from pertoken.testing.builders import evidence

SLOTS: dict[str, Any] = {"engine": "llama.cpp", "max_num_seqs": 2, "max_model_len": 32_768}
QUEUE = series(3.0, p95=6, max=9)


def ran(*, longest: float = 900, waiting: Any = QUEUE, **fields: Any) -> Any:
    chat = service("chat", *[deployment(**{**SLOTS, **fields})] * 2)
    seen = evidence(prompt_len=series(300, max=longest), generated_len=series(50, max=100), waiting=waiting)
    return run(shorter_context, regime(fleet(chat), {"chat": seen}))


def knobs(result: Any) -> Any:
    (proposed,) = result.proposals
    assert (proposed.risk, proposed.effort) == ("availability", "medium")
    return proposed.diff.knobs(2)


def test_the_context_is_divided_into_more_slots_of_the_same_memory() -> None:
    assert knobs(ran()) == {"max_num_seqs": (2, 32), "max_model_len": (32_768, 2048)}
    assert knobs(ran(longest=7000)) == {"max_num_seqs": (2, 4), "max_model_len": (32_768, 16_384)}


def test_a_limit_that_is_no_power_of_two_never_needs_more_memory_than_before() -> None:
    changed = knobs(ran(max_model_len=10_000))
    assert changed == {"max_num_seqs": (2, 8), "max_model_len": (10_000, 2048)}


def test_the_longest_request_is_named_in_what_speaks_against_it() -> None:
    chat = service("chat", deployment(**SLOTS))
    seen = evidence(prompt_len=series(300, max=900), generated_len=series(50, max=100), waiting=QUEUE)
    (proposed,) = shorter_context(seen=seen, service=chat)
    assert isinstance(proposed, Proposal)
    assert "2,048 tokens are refused: the longest seen has 1,000" in proposed.against[0]
    assert set(proposed.excludes) == {"batch-limit", "continuous-batching"}


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"engine": "vllm"}, "pages"),
        ({"engine": "sglang"}, "pages"),
        ({"max_model_len": None}, "limit-unknown"),
        ({"max_num_seqs": None}, "limit-unknown"),
        ({"longest": 9000}, "context-used"),
        ({"max_model_len": 2048}, "context-used"),
        ({"waiting": 0.0}, "no-queue"),
    ],
)
def test_it_refuses_where_nothing_is_reserved_used_or_awaited(changed: dict[str, Any], code: str) -> None:
    assert ran(**changed).codes == (code,)


def test_replicas_with_other_limits_are_refused() -> None:
    mixed = service("chat", deployment(**SLOTS), deployment(**{**SLOTS, "max_num_seqs": 4}))
    result = run(shorter_context, regime(fleet(mixed), {"chat": evidence(waiting=QUEUE)}))
    assert result.codes == ("replicas-differ",)


def test_llama_cpp_divides_the_same_context_among_more_slots() -> None:
    written = flag_commands("llama.cpp", {"max_num_seqs": (2, 16), "max_model_len": (32_768, 4096)})
    assert written.apply == ("set --parallel 16", "set --ctx-size 65536")
    assert written.undo == ("set --parallel 2", "set --ctx-size 65536") and not written.manual
