from dataclasses import asdict

import pytest

from pertoken.catalog.knobs import Commands, flag_commands, read_argv, table
from pertoken.state.deployment import Model
from tests.catalog.test_knobs import LLAMA, VLLM


def test_written_values_are_read_back() -> None:
    values = {"int": 4, "count": 4096, "float": 0.85}
    for row in table().knobs:
        if row.type in values and row.per is None and row.flags:
            value = values[row.type] * row.unit
            written = flag_commands(row.engine, {row.knob: (None, value)}).apply[0]
            assert read_argv(row.engine, written.split()[1:]) == {row.knob: value}, row
        for word in row.write:
            written = flag_commands(row.engine, {row.knob: (None, word)}).apply[0]
            assert read_argv(row.engine, written.split()[1:]) == {row.knob: word}
        if row.type == "bool":
            for value in (True,) * bool(row.flags) + (False,) * bool(row.off_flags):
                written = flag_commands(row.engine, {row.knob: (None, value)}).apply[0]
                assert read_argv(row.engine, written.split()[1:]) == {row.knob: value}


def test_a_member_of_a_json_argument_is_changed_by_hand() -> None:
    change = flag_commands("vllm", {"num_speculative_tokens": (3, 0)})
    assert change == Commands(
        manual=("set num_speculative_tokens of --speculative-config (or --spec-tokens) from 3 to 0; for 0 remove it",)
    )


@pytest.mark.parametrize(
    ("engine", "change"),
    [
        ("sglang", Commands(manual=("remove every --speculative flag",))),
        ("llama.cpp", Commands(manual=("remove --spec-type and every --spec-draft flag",))),
        ("tgi", Commands(("set --speculate 0",), ("set --speculate 3",))),
    ],
)
def test_drafting_ends_by_removing_its_flags_where_0_is_no_value_of_them(engine: str, change: Commands) -> None:
    assert flag_commands(engine, {"num_speculative_tokens": (3, 0)}) == change


def test_a_flag_beside_a_json_argument_is_written_only_where_nothing_was_set() -> None:
    change = flag_commands("vllm", {"num_speculative_tokens": (None, 3), "speculative_method": (None, "ngram")})
    assert change == Commands(
        apply=("set --spec-tokens 3", "set --spec-method ngram"), undo=("remove --spec-tokens", "remove --spec-method")
    )
    assert read_argv("vllm", (*VLLM, "--spec-method", "ngram", "--spec-tokens=3")) == {
        "num_speculative_tokens": 3,
        "speculative_method": "ngram",
    }


def test_a_cache_in_e5m2_is_another_dtype_and_prompts_may_be_computed_whole() -> None:
    argv = (*VLLM, "--kv-cache-dtype", "fp8_e5m2", "--no-enable-chunked-prefill")
    assert read_argv("vllm", argv) == {"kv_dtype": "fp8_e5m2", "enable_chunked_prefill": False}
    assert flag_commands(
        "vllm", {"enable_chunked_prefill": (False, True), "kv_dtype": ("fp8", "fp8_e5m2")}
    ) == Commands(
        apply=("remove --no-enable-chunked-prefill", "set --kv-cache-dtype fp8_e5m2"),
        undo=("set --no-enable-chunked-prefill", "set --kv-cache-dtype fp8"),
    )


def test_a_one_way_flag_is_undone_by_leaving_it_out() -> None:
    assert flag_commands("sglang", {"enable_prefix_caching": (False, True)}) == Commands(
        apply=("remove --disable-radix-cache",), undo=("set --disable-radix-cache",)
    )
    assert flag_commands("sglang", {"enforce_eager": (None, False)}).apply == ("remove --disable-cuda-graph",)
    assert flag_commands("trtllm", {"tp": (4, 2)}).apply == ("set --tp_size 2",)


def test_changes_become_flags_and_their_undo() -> None:
    changes = {
        "tp": (2, 1),
        "weight_dtype": ("bf16", "fp8"),
        "max_num_seqs": (None, 256),
        "enforce_eager": (True, False),
        "enable_prefix_caching": (False, True),
        "gpu_memory_utilization": (0.9, 0.95),
    }
    assert flag_commands("vllm", changes) == Commands(
        apply=(
            "set --tensor-parallel-size 1",
            "set --quantization fp8",
            "set --max-num-seqs 256",
            "remove --enforce-eager",
            "remove --no-enable-prefix-caching",
            "set --gpu-memory-utilization 0.95",
        ),
        undo=(
            "set --tensor-parallel-size 2",
            "remove --quantization",
            "remove --max-num-seqs",
            "set --enforce-eager",
            "set --no-enable-prefix-caching",
            "set --gpu-memory-utilization 0.9",
        ),
    )


def test_a_second_flag_that_must_agree_is_written_too() -> None:
    written = flag_commands("llama.cpp", {"kv_dtype": (None, "int8")})
    assert written.apply == ("set --cache-type-k q8_0 --cache-type-v q8_0",)
    assert written.undo == ("remove --cache-type-k --cache-type-v",)


def test_more_slots_of_llama_cpp_need_more_context() -> None:
    written = flag_commands("llama.cpp", {"max_num_seqs": (4, 8)})
    assert (written.apply, written.undo) == (("set --parallel 8",), ("set --parallel 4",))
    assert "from 4 to 8" in written.manual[0]


def test_a_change_without_a_flag_becomes_a_sentence() -> None:
    changes = {
        "model": (Model("big"), Model("small")),
        "weight_dtype": ("bf16", "int4"),
        "tp": (1, 2),
    }
    written = flag_commands("llama.cpp", changes)
    assert written.apply == written.undo == ()
    assert written.manual == (
        "serve small instead of big",
        "serve a GGUF file of the model with int4 weights: llama.cpp takes the weight type from the file",
        "change tp from 1 to 2: no flag of llama.cpp is known for it",
    )
    assert flag_commands("vllm", {"weight_dtype": ("int4", "fp8")}).apply == ()
    assert asdict(flag_commands("vllm", {})) == asdict(Commands())


@pytest.mark.parametrize("old", [None, False])
def test_a_switch_that_no_flag_moves_is_a_sentence_and_never_an_empty_command(old: bool | None) -> None:
    change = flag_commands("trtllm", {"enable_prefix_caching": (old, True)})
    assert (change.apply, change.undo) == ((), ())
    assert change.manual == (
        "set enable_block_reuse of kv_cache_config in the file of --extra_llm_api_options to True",
    )


def test_a_size_is_written_in_the_unit_of_its_flag_and_read_back_in_bytes() -> None:
    gib = 2**30
    written = flag_commands("vllm", {"kv_offload_bytes": (None, 64 * gib)})
    assert written.apply == ("set --kv-offloading-size 64",) and written.undo == ("remove --kv-offloading-size",)
    assert read_argv("vllm", [*VLLM, "--kv-offloading-size", "64"])["kv_offload_bytes"] == 64 * gib
    assert flag_commands("llama.cpp", {"kv_offload_bytes": (None, 8 * gib)}).apply == ("set --cache-ram 8192",)
    assert "64 GiB" in flag_commands("sglang", {"kv_offload_bytes": (None, 64 * gib)}).manual[0]


def test_names_and_roles_are_set_by_hand_or_by_flag_as_the_engine_has_it() -> None:
    assert (
        "for each of law, medicine" in flag_commands("vllm", {"lora_adapters": (None, ("law", "medicine"))}).manual[0]
    )
    assert flag_commands("sglang", {"role": (None, "prefill")}).apply == ("set --disaggregation-mode prefill",)
    assert "NixlConnector" in flag_commands("vllm", {"role": (None, "decode")}).manual[0]
    assert flag_commands("vllm", {"sleep": (None, True)}).apply == ("set --enable-sleep-mode",)


def test_a_flag_that_holds_the_context_of_all_slots_is_written_with_their_number() -> None:
    change = flag_commands("llama.cpp", {"max_num_seqs": (1, 8)}, {"max_model_len": 2048})
    assert change == Commands(
        apply=("set --parallel 8", "set --ctx-size 16384"), undo=("set --parallel 1", "set --ctx-size 2048")
    )
    assert read_argv("llama.cpp", (*LLAMA, *" ".join(change.apply).replace("set ", "").split())) == {
        "max_num_seqs": 8,
        "max_model_len": 2048,
    }
    unknown = flag_commands("llama.cpp", {"max_num_seqs": (1, 8)}, {"max_model_len": None})
    assert unknown.apply == ("set --parallel 8",) and unknown.manual[0].startswith("scale --ctx-size with the slots")


def test_experts_of_vllm_are_split_by_a_flag_without_a_value() -> None:
    change = flag_commands("vllm", {"ep": (1, 8)})
    assert (change.apply, change.undo) == (("set --enable-expert-parallel",), ("remove --enable-expert-parallel",))
