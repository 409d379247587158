import pytest

from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.catalog.knobs import (
    connector_argument,
    layout,
    like,
    merged,
    model_argument,
    port_argument,
    read_absent,
    read_argv,
    read_word,
    read_words,
    sleep_argument,
    split_arguments,
    table,
)
from pertoken.state.deployment import knobs

VLLM = ("python", "/opt/venv/bin/vllm", "serve", "meta-llama/Llama-3.1-70B-Instruct")
LLAMA = ("/usr/bin/llama-server", "-m", "/models/tiny.gguf")


def test_every_row_names_a_knob_of_a_deployment_and_its_source() -> None:
    assert {row.knob for row in table().knobs} <= set(knobs())
    assert set(table().manual) <= set(knobs())
    assert all(row.source and row.as_of for row in table().knobs)
    assert all(row.source and row.as_of for row in table().arguments)
    for knob in table().knobs:
        assert knob.type in ("int", "count", "float", "bool", "ranks", "word", "json", "member", "present")
        assert knob.flags or knob.off_flags or knob.manual
        assert (knob.type in ("word", "member")) == bool(knob.words) or not (knob.flags or knob.words)
        assert knob.type != "bool" or knob.default is not None
        assert (knob.type in ("json", "member", "present")) == bool(knob.member)
        assert knob.manual or not knob.member


WITHOUT_KNOBS = {
    "dynamo-frontend": "routes requests to workers, whose engines have the knobs",
    "ray": "starts vLLM with the settings of a deployment file, beside a raylet that many models share",
    "triton": "its settings are in the config.pbtxt of each model",
}
"""Engines that no command line sets a knob of, each with the reason."""


def test_every_engine_with_an_adapter_has_knobs_or_a_reason_for_having_none() -> None:
    assert {kind for kind in ADAPTERS if not table().of(kind)} == WITHOUT_KNOBS.keys()
    assert all(row.engine in ADAPTERS for rows in (table().knobs, table().arguments, table().variables) for row in rows)
    assert all(like(engine) != engine and table().of(engine) for engine in table().same)


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


def test_quantization_takes_precedence_over_dtype_for_the_weights() -> None:
    assert read_argv("vllm", (*VLLM, "--dtype", "bfloat16", "-q", "fp8")) == {"weight_dtype": "fp8"}
    assert read_argv("vllm", (*VLLM, "--dtype", "bfloat16", "--quantization", "compressed-tensors")) == {
        "undetermined": "weight_dtype"
    }


def test_dtype_does_not_define_the_weights_of_a_quantized_checkpoint() -> None:
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
def test_values_that_the_engine_decides_or_that_are_not_understood_are_absent(flags: tuple[str, ...]) -> None:
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
    assert read_argv("llama.cpp", (*LLAMA, "-ctk", "q8_0")) == {"undetermined": "kv_dtype"}
    assert read_argv("llama.cpp", (*LLAMA, "-ctv", "q8_0")) == {"undetermined": "kv_dtype"}


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
        (
            "dynamo-trtllm",
            "python -m dynamo.trtllm --model m --tensor-parallel-size 4 --max-batch-size 64",
            "m",
            None,
            {"tp": 4, "max_num_seqs": 64},
        ),
        (
            "dynamo-trtllm",
            "python -m dynamo.trtllm --model-path m --max-seq-len 9 --override-engine-args {}",
            "m",
            None,
            {},
        ),
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


def test_reported_words_become_ours() -> None:
    assert read_word("vllm", "weight_dtype", "torch.bfloat16") == "bf16"
    assert read_word("llama.cpp", "weight_dtype", "Q4_K - Medium") == "int4"
    assert [read_word("llama.cpp", "weight_dtype", word) for word in ("Q6_K", "Q5_K - Medium", "Q2_K - Medium")] == [
        "int6",
        "int5",
        "int2",
    ]
    assert read_word("llama.cpp", "weight_dtype", "TQ1_0 - 1.69 bpw ternary") is None


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
def test_llama_cpp_is_split_over_the_devices_of_its_arguments_or_of_its_processes(
    flags: tuple[str, ...], devices: int, sizes: tuple[int, int] | None
) -> None:
    mode, parts = split_arguments("llama.cpp", (*LLAMA, *flags))
    actual = layout("llama.cpp", mode or "", parts or devices)
    assert actual == ({} if sizes is None else {"tp": sizes[0], "pp": sizes[1], "dp": 1})


def test_only_llama_cpp_is_laid_out_by_its_devices() -> None:
    assert split_arguments("vllm", VLLM) == (None, None)
    assert layout("vllm", "layer", 2) == layout("llama.cpp", "layer", 0) == layout("llama.cpp", "", 2) == {}


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


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--tensor-parallel 8 --gpu-memory-util 0.9", {"tp": 8, "gpu_memory_utilization": 0.9}),
        ("--max-num-seq 32", {"max_num_seqs": 32}),
        ("--pipeline_parallel=2 --enable-prefix", {"pp": 2, "enable_prefix_caching": True}),
        ("--no-enable-prefix", {"enable_prefix_caching": False}),
        ("--data-parallel 4", {}),
        ("-qfp8 -tp=4", {"weight_dtype": "fp8", "tp": 4}),
        ("--kv-cache-dty fp8", {"kv_dtype": "fp8"}),
    ],
)
def test_an_abbreviated_flag_is_read_as_the_engines_own_parser_reads_it(
    flags: str, expected: dict[str, object]
) -> None:
    assert read_argv("vllm", (*VLLM, *flags.split())) == expected


def test_an_abbreviated_size_is_not_taken_for_an_absent_one() -> None:
    assert read_absent("vllm", (*VLLM, "--tensor-parallel", "8")) == {"pp": 1, "dp": 1, "ep": 1}


@pytest.mark.parametrize("line", ["llama-server --ctx 4096 --parall 4", "trtllm-serve m --tp_siz 4"])
def test_engines_without_abbreviations_have_none(line: str) -> None:
    engine = "llama.cpp" if "llama" in line else "trtllm"
    assert read_argv(engine, line.split()) == {}


def test_flags_beside_a_file_of_settings_go_before_it_and_absent_ones_are_unknown() -> None:
    argv = (*VLLM, "--config", "/etc/serve.yaml", "-tp", "4", "--enable-expert-parallel")
    assert read_argv("vllm", argv) == {"tp": 4, "undetermined": "weight_dtype"}
    assert read_absent("vllm", argv) == {}
    quantized = (*VLLM, "--config=/etc/serve.yaml", "-q", "fp8", "--enable-expert-parallel", "-tp", "2", "-dp", "2")
    assert read_argv("vllm", quantized) == {"tp": 2, "dp": 2, "ep": 4, "weight_dtype": "fp8"}


@pytest.mark.parametrize(
    ("engine", "flags", "undetermined"),
    [
        ("vllm", "--quantization bitsandbytes", "weight_dtype"),
        ("vllm", "-q torchao --kv-cache-dtype fp8_ds_mla", "kv_dtype weight_dtype"),
        ("vllm", "--kv-cache-dtype auto --dtype auto", None),
        ("sglang", "--torchao-config int4wo-128", "weight_dtype"),
        ("sglang", "--kv-cache-dtype fp4_e2m1", "kv_dtype"),
        ("sglang", "--quantization unquant", None),
        ("llama.cpp", "-ctk q5_1 -ctv q5_1", "kv_dtype"),
        ("lmdeploy", "--quant-policy 0", None),
        ("lmdeploy", "--quant-policy 42", "kv_dtype"),
    ],
)
def test_a_word_that_is_not_known_leaves_its_knob_undetermined(
    engine: str, flags: str, undetermined: str | None
) -> None:
    assert read_argv(engine, flags.split()).get("undetermined") == undetermined


def test_a_knob_that_another_source_knows_is_not_undetermined() -> None:
    unknown = {"tp": 2, "undetermined": "kv_dtype weight_dtype"}
    assert merged(unknown, {"kv_dtype": "fp8"}) == {"tp": 2, "kv_dtype": "fp8", "undetermined": "weight_dtype"}
    assert merged({"kv_dtype": "fp8"}, {"undetermined": "kv_dtype"}) == {"kv_dtype": "fp8"}
    assert read_words("vllm", {"weight_dtype": "torchao", "kv_dtype": "auto"}) == {"undetermined": "weight_dtype"}


@pytest.mark.parametrize(
    ("engine", "line", "devices"),
    [
        ("vllm", "vllm serve m -tp 2 -dp 4", 8),
        ("vllm", "vllm serve m -dp 4 --data-parallel-rank 0 --data-parallel-address 10.1.1.1", 1),
        ("vllm", "vllm serve m -tp 2 -dp 4 -dpn 3", 2),
        ("vllm", "vllm serve m -dp 16 --data-parallel-external-lb", 1),
        ("vllm", "vllm serve m -dp 2 --data-parallel-multi-port-external-lb --data-parallel-supervisor-port 9", 1),
        ("vllm", "vllm serve m -tp 2 -dp 8 -dpl 4 -dph", 8),
        ("vllm", "vllm serve m -dp 8 --data-parallel-size-local 2 --data-parallel-start-rank 6", 2),
        ("vllm", "vllm serve m -dp 8 --data-parallel-hybrid-lb", None),
        ("vllm", "vllm serve m -dp 8 -dpl 4 --data-parallel-start-rank 0", 8),
        ("vllm", "vllm serve m -dp 8 -dpl 4 --data-parallel-start-rank 4 --headless", 8),
        ("vllm", "vllm serve m -tp 4 --prefill-context-parallel-size 2", None),
        ("vllm", "vllm serve m -tp 4 -pcp 1", 4),
        ("vllm", "vllm serve m -tp 8 --decode-context-parallel-size 8", 8),
        ("sglang", "sglang serve --model m --tp 8 --dp 8 --enable-dp-attention", 8),
        ("sglang", "sglang serve --model m --tp 16 --dp 4 --enable-dp-attention --pp 2", 32),
        ("sglang", "sglang serve --model m --tp 8 --enable-dp-attention", 8),
        ("sglang", "sglang serve --model m --tp 2 --dp 4", 8),
        ("sglang", "sglang serve --model m --tp 6 --dp 4 --enable-dp-attention", None),
        ("trtllm", "trtllm-serve m --tensor_parallel_size 4 --cp_size 2", None),
    ],
)
def test_devices_are_the_ranks_of_the_server_itself(engine: str, line: str, devices: int | None) -> None:
    argv = line.split()
    sizes = {**read_absent(engine, argv), **read_argv(engine, argv)}
    product = None if sizes.get("tp") is None else int(str(sizes["tp"])) * int(str(sizes.get("pp", 1)))
    if product is not None and sizes.get("dp") is not None:
        product *= int(str(sizes["dp"]))
    elif engine == "vllm":
        product = None
    assert product == devices


@pytest.mark.parametrize(
    ("engine", "line", "model"),
    [
        ("vllm", "vllm serve --tensor-parallel-size 8 org/m", "org/m"),
        ("vllm", "vllm serve --port=80 --enforce-eager org/m", "org/m"),
        ("vllm", "vllm serve --trust-remote-code -tp 2 org/m --port 9", "org/m"),
        ("vllm", "vllm serve --served-model-name a b", None),
        ("vllm", "vllm serve --port 9 --chat-template x.jinja", None),
        ("vllm", "vllm serve org/m --model other/m", "org/m"),
        ("vllm", "vllm serve --tensor-parallel 2 org/m", "org/m"),
        ("lmdeploy", "lmdeploy serve api_server --tp 2 org/m", "org/m"),
        ("trtllm", "trtllm-serve --tp_size 8 org/m", "org/m"),
        ("trtllm", "trtllm-serve serve --port 8000 org/m", "org/m"),
        ("trtllm", "trtllm-serve disaggregated -c disagg.yaml", None),
        ("trtllm", "trtllm-serve disaggregated_mpi_worker -c disagg.yaml", None),
        ("trtllm", "mpirun -n 2 trtllm-serve disaggregated -c disagg.yaml", None),
    ],
)
def test_a_model_is_found_among_flags_and_never_taken_from_their_values(
    engine: str, line: str, model: str | None
) -> None:
    assert model_argument(engine, line.split()) == model


@pytest.mark.parametrize(
    ("engine", "flags", "role"),
    [
        ("vllm", '--kv-transfer-config {"kv_connector":"NixlConnector","kv_role":"kv_producer"}', "prefill"),
        ("vllm", '--kv-transfer-config={"kv_connector":"P2pNcclConnector","kv_role":"kv_consumer"}', "decode"),
        ("vllm", '--kv-transfer-config {"kv_connector":"NixlConnector","kv_role":"kv_both"}', None),
        ("vllm", "--kv-transfer-config.kv_role kv_producer --kv-transfer-config.kv_connector NixlConnector", "prefill"),
        ("vllm", "--kv-transfer-config {", None),
        ("dynamo-vllm", "--model m --is-prefill-worker", "prefill"),
        ("dynamo-vllm", "--model m --disaggregation-mode decode", "decode"),
        ("sglang", "--disaggregation-mode prefill", "prefill"),
        ("trtllm", "m --server_role CONTEXT", "prefill"),
        ("trtllm", "m --server_role generation", "decode"),
        ("dynamo-trtllm", "--disaggregation-mode decode", "decode"),
        ("dynamo-trtllm", "--disaggregation-mode prefill_and_decode", None),
    ],
)
def test_the_part_of_a_server_that_shares_its_requests_is_read(engine: str, flags: str, role: str | None) -> None:
    assert read_argv(engine, flags.split()).get("role") == role


@pytest.mark.parametrize(
    ("value", "connector"),
    [
        ('{"kv_connector":"NixlConnector","kv_role":"kv_both"}', "NixlConnector"),
        (
            '{"kv_connector":"MultiConnector","x":{"connectors":[{"kv_connector":"MooncakeConnector"}]}}',
            "MooncakeConnector",
        ),
        ('{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}', None),
        ('{"kv_connector":"MooncakeStoreConnector"}', None),
    ],
)
def test_a_connector_to_other_servers_differs_from_one_to_a_cache(value: str, connector: str | None) -> None:
    assert connector_argument("vllm", ("vllm", "serve", "m", "--kv-transfer-config", value)) == connector
    assert connector_argument("dynamo-vllm", ("python", "-m", "dynamo.vllm", "--model", "m")) is None


@pytest.mark.parametrize(
    ("flags", "seconds"), [("--sleep-idle-seconds 300", 300), ("--sleep-idle-seconds -1", None), ("", None)]
)
def test_the_time_after_which_a_server_sleeps_is_read(flags: str, seconds: int | None) -> None:
    assert sleep_argument("llama.cpp", (*LLAMA, *flags.split())) == seconds
