from dataclasses import asdict

import pytest

from pertoken.catalog.knobs import (
    Commands,
    commands,
    layout,
    model_argument,
    port_argument,
    read_absent,
    read_argv,
    read_word,
    split_arguments,
    table,
)
from pertoken.state.knobs import knobs
from pertoken.state.model import Model

VLLM = ("python", "/opt/venv/bin/vllm", "serve", "meta-llama/Llama-3.1-70B-Instruct")
LLAMA = ("/usr/bin/llama-server", "-m", "/models/tiny.gguf")


def test_every_row_names_a_knob_of_a_deployment_and_its_source() -> None:
    assert {row.knob for row in table().knobs} <= set(knobs())
    assert set(table().manual) <= set(knobs())
    assert all(row.source and row.as_of for row in table().knobs)
    assert all(row.source and row.as_of for row in table().arguments)
    for knob in table().knobs:
        assert knob.type in ("int", "count", "float", "bool", "ranks", "word", "json")
        assert knob.flags or knob.off_flags or knob.manual
        assert (knob.type == "word") == bool(knob.words) or not (knob.flags or knob.words)
        assert knob.type != "bool" or knob.default is not None
        assert (knob.type == "json") == bool(knob.member) and (knob.type != "json" or knob.manual)


def test_what_is_written_is_read_back() -> None:
    values = {"int": 4, "count": 4096, "float": 0.85}
    for row in table().knobs:
        if row.type in values and row.per is None and row.flags:
            value = values[row.type] * row.unit
            written = commands(row.engine, {row.knob: (None, value)}).apply[0]
            assert read_argv(row.engine, written.split()[1:]) == {row.knob: value}, row
        for word in row.write:
            written = commands(row.engine, {row.knob: (None, word)}).apply[0]
            assert read_argv(row.engine, written.split()[1:]) == {row.knob: word}
        if row.type == "bool":
            for value in (True,) * bool(row.flags) + (False,) * bool(row.off_flags):
                written = commands(row.engine, {row.knob: (None, value)}).apply[0]
                assert read_argv(row.engine, written.split()[1:]) == {row.knob: value}


@pytest.mark.parametrize(
    ("flag", "drafted"),
    [
        ('--speculative-config={"method": "ngram", "num_speculative_tokens": 3}', 3),
        ("--speculative-config.num_speculative_tokens=5", 5),
        ('--speculative-config={"method": "suffix"}', None),
        ('--speculative-config={"num_speculative_tokens": "3"}', None),
        ("--speculative-config={", None),
        ("--speculative-config=[3]", None),
        ("--speculative-config=true", None),
    ],
)
def test_drafted_tokens_are_read_out_of_a_json_argument(flag: str, drafted: int | None) -> None:
    known = {} if drafted is None else {"num_speculative_tokens": drafted}
    assert read_argv("vllm", (*VLLM, flag)) == known


def test_a_member_of_a_json_argument_is_changed_by_hand() -> None:
    change = commands("vllm", {"num_speculative_tokens": (3, 0)})
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
    assert commands(engine, {"num_speculative_tokens": (3, 0)}) == change


def test_a_flag_beside_a_json_argument_is_written_only_where_nothing_was_set() -> None:
    change = commands("vllm", {"num_speculative_tokens": (None, 3), "speculative_method": (None, "ngram")})
    assert change == Commands(
        apply=("set --spec-tokens 3", "set --spec-method ngram"), undo=("remove --spec-tokens", "remove --spec-method")
    )
    assert read_argv("vllm", (*VLLM, "--spec-method", "ngram", "--spec-tokens=3")) == {
        "num_speculative_tokens": 3,
        "speculative_method": "ngram",
    }


def test_vllm_flags_are_read_in_every_spelling() -> None:
    argv = (
        *VLLM, "-tp", "4", "--pipeline_parallel_size=2", "--data-parallel-size", "1", "--dtype", "bfloat16",
        "--max-num-seqs=64", "--max_num_batched_tokens", "8k", "--max-model-len", "25.6k",
        "--gpu-memory-utilization", ".92", "--enforce-eager", "--no-enable-prefix-caching", "--kv-cache-dtype",
        "fp8_e4m3",
    )  # fmt: skip
    assert read_argv("vllm", argv) == {
        "tp": 4,
        "pp": 2,
        "dp": 1,
        "weight_dtype": "bf16",
        "kv_dtype": "fp8",
        "max_num_seqs": 64,
        "max_num_batched_tokens": 8000,
        "max_model_len": 25600,
        "gpu_memory_utilization": 0.92,
        "enforce_eager": True,
        "enable_prefix_caching": False,
    }


def test_a_cache_in_e5m2_is_another_dtype_and_prompts_may_be_computed_whole() -> None:
    argv = (*VLLM, "--kv-cache-dtype", "fp8_e5m2", "--no-enable-chunked-prefill")
    assert read_argv("vllm", argv) == {"kv_dtype": "fp8_e5m2", "enable_chunked_prefill": False}
    assert commands("vllm", {"enable_chunked_prefill": (False, True), "kv_dtype": ("fp8", "fp8_e5m2")}) == Commands(
        apply=("remove --no-enable-chunked-prefill", "set --kv-cache-dtype fp8_e5m2"),
        undo=("set --no-enable-chunked-prefill", "set --kv-cache-dtype fp8"),
    )


def test_quantization_says_more_of_the_weights_than_dtype() -> None:
    assert read_argv("vllm", (*VLLM, "--dtype", "bfloat16", "-q", "fp8")) == {"weight_dtype": "fp8"}
    assert read_argv("vllm", (*VLLM, "--dtype", "bfloat16", "--quantization", "compressed-tensors")) == {}


def test_dtype_says_nothing_of_the_weights_of_a_quantized_checkpoint() -> None:
    assert read_argv("vllm", ("vllm", "serve", "org/Llama-3.1-70B-FP8", "--dtype", "bfloat16")) == {}
    assert read_argv("vllm", ("vllm", "serve", "org/Qwen-AWQ", "--dtype", "half")) == {}


@pytest.mark.parametrize(
    "flags",
    [
        ("--dtype", "auto"),
        ("--kv-cache-dtype", "auto"),
        ("--max-model-len", "-1"),
        ("--max-num-seqs", "many"),
        ("--max-num-seqs", "0"),
        ("--max-num-seqs",),
        ("--gpu-memory-utilization", "1.5"),
        ("--max-num-seqs", "64", "--max-num-seqs", "auto"),
    ],
)
def test_what_the_engine_decides_or_nobody_understands_is_absent(flags: tuple[str, ...]) -> None:
    assert read_argv("vllm", (*VLLM, *flags)) == {}


def test_the_last_of_several_settings_counts() -> None:
    argv = (*VLLM, "-tp", "4", "--tensor-parallel-size", "8", "--enforce-eager", "--no-enforce-eager")
    assert read_argv("vllm", argv) == {"tp": 8, "enforce_eager": False}


def test_llama_cpp_context_is_divided_among_its_slots() -> None:
    assert read_argv("llama.cpp", (*LLAMA, "-np", "4", "-c", "4096", "-b", "512")) == {
        "max_num_seqs": 4,
        "max_model_len": 1024,
        "max_num_batched_tokens": 512,
    }
    assert read_argv("llama.cpp", (*LLAMA, "-np", "4", "-c", "4096", "-kvu")) == {"max_num_seqs": 4}
    assert read_argv("llama.cpp", (*LLAMA, "-c", "4096")) == {}


def test_llama_cpp_cache_types_must_agree() -> None:
    assert read_argv("llama.cpp", (*LLAMA, "-ctk", "q8_0", "-ctv", "q8_0")) == {"kv_dtype": "int8"}
    assert read_argv("llama.cpp", (*LLAMA, "-ctk", "q8_0")) == {}


def test_the_model_and_the_port_are_found() -> None:
    assert model_argument("vllm", VLLM) == "meta-llama/Llama-3.1-70B-Instruct"
    assert model_argument("vllm", ("vllm", "serve", "--model", "m")) == "m"
    assert model_argument("vllm", ("python", "-m", "vllm.entrypoints.openai.api_server", "--model=m")) == "m"
    assert model_argument("vllm", ("vllm", "serve")) is None
    assert model_argument("llama.cpp", LLAMA) == "/models/tiny.gguf"
    assert port_argument("vllm", VLLM) == 8000
    assert port_argument("vllm", (*VLLM, "--port", "18000")) == 18000
    assert port_argument("vllm", (*VLLM, "--port", "no")) is None
    assert port_argument("llama.cpp", LLAMA) == 8080
    assert port_argument("other", ()) is None
    assert model_argument("other", ()) is None


@pytest.mark.parametrize(
    ("engine", "line", "model", "port", "knobs"),
    [
        (
            "sglang",
            "python -m sglang.launch_server --model-path m --tp 2 --disable-radix-cache --max-running-requests 64",
            "m",
            30000,
            {"tp": 2, "enable_prefix_caching": False, "max_num_seqs": 64},
        ),
        (
            "trtllm",
            "python /bin/trtllm-serve org/m --tp_size 4 --max_batch_size=256 --port 9000",
            "org/m",
            9000,
            {"tp": 4, "max_num_seqs": 256},
        ),
        ("trtllm", "trtllm-serve serve org/m --max_seq_len 4096", "org/m", 8000, {"max_model_len": 4096}),
        ("triton", "tritonserver --model-repository=/models", "/models", 8002, {}),
        ("tgi", "text-generation-launcher --model-id m --num-shard 2 -p 80", "m", 80, {"tp": 2}),
        ("lmdeploy", "lmdeploy serve api_server m --tp 2 --quant-policy 8", "m", 23333, {"tp": 2, "kv_dtype": "int8"}),
        ("dynamo-vllm", "python -m dynamo.vllm --model m -tp 2", "m", None, {"tp": 2}),
        ("dynamo-frontend", "python -m dynamo.frontend --http-port 8080", None, 8080, {}),
        ("ray", "/x/raylet --metrics_export_port=8080", None, 8080, {}),
        ("ollama", "ollama serve", None, 11434, {}),
    ],
)
def test_every_engine_is_read_by_its_command_line(
    engine: str, line: str, model: str | None, port: int | None, knobs: dict[str, object]
) -> None:
    argv = line.split()
    assert (model_argument(engine, argv), port_argument(engine, argv)) == (model, port)
    assert read_argv(engine, argv) == knobs


def test_what_an_engine_can_only_switch_one_way_is_taken_back_by_leaving_the_flag_out() -> None:
    assert commands("sglang", {"enable_prefix_caching": (False, True)}) == Commands(
        apply=("remove --disable-radix-cache",), undo=("set --disable-radix-cache",)
    )
    assert commands("sglang", {"enforce_eager": (None, False)}).apply == ("remove --disable-cuda-graph",)
    assert commands("trtllm", {"tp": (4, 2)}).apply == ("set --tp_size 2",)


def test_reported_words_become_ours() -> None:
    assert read_word("vllm", "weight_dtype", "torch.bfloat16") == "bf16"
    assert read_word("llama.cpp", "weight_dtype", "Q4_K - Medium") == "int4"
    assert [read_word("llama.cpp", "weight_dtype", word) for word in ("Q6_K", "Q5_K - Medium", "Q2_K - Medium")] == [
        "int6",
        "int5",
        "int2",
    ]
    assert read_word("llama.cpp", "weight_dtype", "TQ1_0 - 1.69 bpw ternary") is None


def test_changes_become_flags_and_their_undo() -> None:
    changes = {
        "tp": (2, 1),
        "weight_dtype": ("bf16", "fp8"),
        "max_num_seqs": (None, 256),
        "enforce_eager": (True, False),
        "enable_prefix_caching": (False, True),
        "gpu_memory_utilization": (0.9, 0.95),
    }
    assert commands("vllm", changes) == Commands(
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
    written = commands("llama.cpp", {"kv_dtype": (None, "int8")})
    assert written.apply == ("set --cache-type-k q8_0 --cache-type-v q8_0",)
    assert written.undo == ("remove --cache-type-k --cache-type-v",)


def test_more_slots_of_llama_cpp_need_more_context() -> None:
    written = commands("llama.cpp", {"max_num_seqs": (4, 8)})
    assert (written.apply, written.undo) == (("set --parallel 8",), ("set --parallel 4",))
    assert "from 4 to 8" in written.manual[0]


def test_what_no_flag_expresses_becomes_a_sentence() -> None:
    changes = {
        "model": (Model("big"), Model("small")),
        "weight_dtype": ("bf16", "int4"),
        "tp": (1, 2),
    }
    written = commands("llama.cpp", changes)
    assert written.apply == written.undo == ()
    assert written.manual == (
        "serve small instead of big",
        "serve a GGUF file of the model with int4 weights: llama.cpp takes the weight type from the file",
        "change tp from 1 to 2: no flag of llama.cpp is known for it",
    )
    assert commands("vllm", {"weight_dtype": ("int4", "fp8")}).apply == ()
    assert asdict(commands("vllm", {})) == asdict(Commands())


@pytest.mark.parametrize(
    ("flags", "devices", "sizes"),
    [
        ((), 1, (1, 1)),
        ((), 4, (1, 4)),
        (("-sm", "row"), 2, (2, 1)),
        (("--split-mode", "none"), 4, (1, 1)),
        (("--tensor-split", "3,1"), 4, (1, 2)),
        (("-ts", "1/0/2", "-sm", "row"), 4, (2, 1)),
        (("-sm", "new"), 2, None),
    ],
)
def test_llama_cpp_is_split_over_the_devices_it_says_or_holds(
    flags: tuple[str, ...], devices: int, sizes: tuple[int, int] | None
) -> None:
    mode, parts = split_arguments("llama.cpp", (*LLAMA, *flags))
    actual = layout("llama.cpp", mode or "", parts or devices)
    assert actual == ({} if sizes is None else {"tp": sizes[0], "pp": sizes[1], "dp": 1})


def test_only_llama_cpp_is_laid_out_by_its_devices() -> None:
    assert split_arguments("vllm", VLLM) == (None, None)
    assert layout("vllm", "layer", 2) == layout("llama.cpp", "layer", 0) == layout("llama.cpp", "", 2) == {}


@pytest.mark.parametrize("old", [None, False])
def test_a_switch_that_no_flag_moves_is_a_sentence_and_never_an_empty_command(old: bool | None) -> None:
    change = commands("trtllm", {"enable_prefix_caching": (old, True)})
    assert (change.apply, change.undo) == ((), ())
    assert change.manual == (
        "set enable_block_reuse of kv_cache_config in the file of --extra_llm_api_options to True",
    )


def test_a_size_is_written_in_the_unit_of_its_flag_and_read_back_in_bytes() -> None:
    gib = 2**30
    written = commands("vllm", {"kv_offload_bytes": (None, 64 * gib)})
    assert written.apply == ("set --kv-offloading-size 64",) and written.undo == ("remove --kv-offloading-size",)
    assert read_argv("vllm", [*VLLM, "--kv-offloading-size", "64"])["kv_offload_bytes"] == 64 * gib
    assert commands("llama.cpp", {"kv_offload_bytes": (None, 8 * gib)}).apply == ("set --cache-ram 8192",)
    assert "64 GiB" in commands("sglang", {"kv_offload_bytes": (None, 64 * gib)}).manual[0]


def test_names_and_roles_are_set_by_hand_or_by_flag_as_the_engine_has_it() -> None:
    assert "for each of law, medicine" in commands("vllm", {"lora_adapters": (None, ("law", "medicine"))}).manual[0]
    assert commands("sglang", {"role": (None, "prefill")}).apply == ("set --disaggregation-mode prefill",)
    assert "NixlConnector" in commands("vllm", {"role": (None, "decode")}).manual[0]
    assert commands("vllm", {"sleep": (None, True)}).apply == ("set --enable-sleep-mode",)


def test_a_flag_that_holds_the_context_of_all_slots_is_written_with_their_number() -> None:
    change = commands("llama.cpp", {"max_num_seqs": (1, 8)}, {"max_model_len": 2048})
    assert change == Commands(
        apply=("set --parallel 8", "set --ctx-size 16384"), undo=("set --parallel 1", "set --ctx-size 2048")
    )
    assert read_argv("llama.cpp", (*LLAMA, *" ".join(change.apply).replace("set ", "").split())) == {
        "max_num_seqs": 8,
        "max_model_len": 2048,
    }
    unknown = commands("llama.cpp", {"max_num_seqs": (1, 8)}, {"max_model_len": None})
    assert unknown.apply == ("set --parallel 8",) and unknown.manual[0].startswith("scale --ctx-size with the slots")


@pytest.mark.parametrize(
    ("argv", "ep"),
    [
        (("--enable-expert-parallel", "-tp", "4", "-dp", "2"), 8),
        (("-tp", "4", "--enable-expert-parallel"), 4),
        (("-tp", "4", "--enable-expert-parallel", "--no-enable-expert-parallel"), 1),
    ],
)
def test_vllm_splits_experts_over_all_its_ranks(argv: tuple[str, ...], ep: int) -> None:
    assert read_argv("vllm", argv)["ep"] == ep
    assert read_absent("vllm", ("-tp", "4"))["ep"] == 1
    assert "ep" not in read_absent("vllm", argv)


def test_experts_of_vllm_are_split_by_a_flag_without_a_value() -> None:
    change = commands("vllm", {"ep": (1, 8)})
    assert (change.apply, change.undo) == (("set --enable-expert-parallel",), ("remove --enable-expert-parallel",))
