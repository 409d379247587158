from typing import Any

import pytest

from pertoken.catalog.knobs import flag_commands
from pertoken.plugins.engine.quantize_kv import quantize_kv
from pertoken.rule import FEWEST, Placement, Service
from pertoken.testing import deployment, evidence, fleet, regime, run, service

FULL = {"kv_use": 0.95, "preemptions": 12.0}


def ran(count: int = 1, seen: dict[str, float] = FULL, **fields: Any) -> Any:
    chat = service("chat", *[deployment(**{"served": "Llama-3.3-70B", "tp": 2, **fields})] * count)
    return run(quantize_kv, regime(fleet(chat), {"chat": evidence(**seen)}))


def on(accelerator: str | None) -> Placement:
    return Placement("aws", "us-east-1", accelerator=accelerator, purchase="on_demand")


def test_a_full_cache_is_stored_in_8_bits_also_on_fewer_replicas() -> None:
    only, fewer = ran(2).proposals
    for proposal in (only, fewer):
        assert isinstance(proposal.state, Service)
        assert proposal.diff.knobs(1) == {"kv_dtype": ("bf16", "fp8")}
        assert (proposal.risk, proposal.effort) == ("quality", "medium")
    assert (only.state.replicas, fewer.state.replicas) == (None, FEWEST)


def test_preemptions_alone_are_evidence_and_room_is_none() -> None:
    assert ran(seen={"kv_use": 0.5, "preemptions": 3}).proposals
    assert ran(seen={"kv_use": 0.5, "preemptions": 0}).codes == ("kv-cache-room",)
    assert ran(seen={"kv_use": 0.4, "preemptions": 3}).codes == ("kv-cache-room",)
    assert "not counted" in ran(seen={"kv_use": 0.5}).refusals[0].reason
    assert ran(seen={}).blocked == ("kv_use",)


@pytest.mark.parametrize(
    ("engine", "accelerator", "outcome"),
    [
        ("vllm", "H100 SXM5", "fp8"),
        ("sglang", "L4", "fp8"),
        ("vllm", "MI300X", "fp8"),
        ("trtllm", "H100 SXM5", "fp8"),
        ("tgi", "H100 SXM5", "fp8"),
        ("llama.cpp", None, "int8"),
        ("ollama", "A10G", "int8"),
        ("lmdeploy", "A100 80GB SXM4", "int8"),
        ("vllm", "A100 80GB SXM4", "no-format"),
        ("vllm", "MI250X", "no-format"),
        ("vllm", "Gaudi 3 OAM", "no-format"),
        ("tgi", "MI300X", "no-format"),
        ("vllm", None, "device-unknown"),
        ("transformers", "H100 SXM5", "engine-cannot"),
    ],
)
def test_the_format_is_one_that_the_engine_has_on_that_device(
    engine: str, accelerator: str | None, outcome: str
) -> None:
    result = ran(engine=engine, placement=on(accelerator))
    dtypes = [proposal.diff.knobs(1)["kv_dtype"][1] for proposal in result.proposals]
    assert [*dtypes, *result.codes] == [outcome]


def test_a_cache_that_is_quantized_or_small_already_is_left() -> None:
    assert ran(kv_dtype="fp8").codes == ("already-quantized",)
    assert ran(served="DeepSeek-V3", tp=8).codes == ("small-cache",)


def test_an_unset_cache_dtype_has_16_bits_unless_a_quantized_checkpoint_may_set_it() -> None:
    assert ran(kv_dtype=None, weight_dtype="bf16").proposals
    assert ran(kv_dtype=None, weight_dtype="fp8").codes == ("dtype-unknown",)
    assert ran(kv_dtype=None, weight_dtype="int4", engine="llama.cpp").proposals


@pytest.mark.parametrize(
    ("engine", "new", "apply", "undo"),
    [
        ("vllm", "fp8", ("set --kv-cache-dtype fp8",), ("remove --kv-cache-dtype",)),
        ("sglang", "fp8", ("set --kv-cache-dtype fp8_e4m3",), ("remove --kv-cache-dtype",)),
        ("tgi", "fp8", ("set --kv-cache-dtype fp8_e4m3fn",), ("remove --kv-cache-dtype",)),
        ("lmdeploy", "int8", ("set --quant-policy 8",), ("remove --quant-policy",)),
        (
            "llama.cpp",
            "int8",
            ("set --cache-type-k q8_0 --cache-type-v q8_0",),
            ("remove --cache-type-k --cache-type-v",),
        ),
    ],
)
def test_each_engine_has_its_flags_and_their_undo(
    engine: str, new: str, apply: tuple[str, ...], undo: tuple[str, ...]
) -> None:
    written = flag_commands(engine, {"kv_dtype": (None, new)})
    assert (written.apply, written.undo) == (apply, undo)


@pytest.mark.parametrize(
    ("engine", "new", "words"),
    [
        ("trtllm", "fp8", "kv_cache_config.dtype to fp8"),
        ("ollama", "int8", "OLLAMA_FLASH_ATTENTION=1"),
        ("llama.cpp", "int8", "--flash-attn"),
    ],
)
def test_a_setting_without_a_flag_is_a_sentence(engine: str, new: str, words: str) -> None:
    assert words in flag_commands(engine, {"kv_dtype": (None, new)}).manual[0]
