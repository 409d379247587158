"""Rows of public measurements that leave out what the forecast needs."""

import pytest

from benchmarks.forecast.accuracy import by_shipped_table
from benchmarks.forecast.fit import Evidence, running
from benchmarks.forecast.pairs import reasons
from benchmarks.forecast.performance.measurements import Measurements, measured, paired
from benchmarks.forecast.performance.rows import DISAGGREGATED
from benchmarks.forecast.power import Watts
from pertoken.forecast.capacity import fitting_sequences, kv_tokens
from pertoken.forecast.efficiency import intervals, tag_names
from pertoken.forecast.terms import context

USUAL = {
    "key": "k",
    "model": "meta-llama/Llama-3.1-8B",
    "gpu": "H100-SXM",
    "n_gpus": "1",
    "weight_dtype": "bf16",
    "engine": "vllm 0.12",
    "batch_or_concurrency": "32",
}


DEEPSEEK = {"model": "deepseek-ai/DeepSeek-R1", "params_total_b": "671", "params_active_b": "37"}


def read_as(**cells: str) -> Measurements:
    """One row of an H100 with these cells."""
    return measured([{**USUAL, **cells}])


def test_a_mixture_on_more_ranks_than_attention_has_copies_attention_and_spreads_its_experts() -> None:
    wide = read_as(**DEEPSEEK, gpu="GB200", n_gpus="36", tp="36").candidates
    assert (wide.tp[0], wide.dp[0], wide.shared_experts[0]) == (1, 36, 1)
    ranks = read_as(**DEEPSEEK, n_gpus="8", tp="1", ep="8").candidates
    assert (ranks.tp[0], ranks.dp[0], ranks.shared_experts[0]) == (1, 8, 1)
    twice = read_as(**DEEPSEEK, n_gpus="64", tp="64", ep="8").candidates
    assert (twice.tp[0], twice.dp[0]) == (8, 1)
    one_copy = read_as(**DEEPSEEK, n_gpus="8", tp="1", attn_dp="1", ep="8").candidates
    assert (one_copy.tp[0], one_copy.dp[0], one_copy.shared_experts[0]) == (8, 1, 0)


@pytest.mark.parametrize(
    ("cells", "cache_bytes"),
    [
        ({"engine": "trtllm 1.0", "weight_dtype": "fp8"}, 1),
        ({"engine": "trtllm 1.0", "weight_dtype": "fp8", "kv_dtype": "bf16"}, 2),
        ({"engine": "trtllm 1.0", "weight_dtype": "bf16"}, 2),
        ({"engine": "trtllm 1.0", "weight_dtype": "fp8", "gpu": "A100-80G-SXM"}, 2),
        ({"engine": "vllm 0.12", "weight_dtype": "fp8"}, 2),
    ],
)
def test_only_tensorrt_llm_takes_the_cache_dtype_of_a_narrow_checkpoint(
    cells: dict[str, str], cache_bytes: float
) -> None:
    assert read_as(**cells).candidates.kv_bytes[0] == cache_bytes


def test_the_cache_dtype_missing_from_rows_is_read_from_the_launch_scripts_of_their_source() -> None:
    scripted = {"source": "aic-silicon-inferencex", "weight_dtype": "mxfp4", "model": "openai/gpt-oss-120b"}
    assert read_as(**scripted, gpu="B200-SXM").candidates.kv_bytes[0] == 1
    assert read_as(**scripted, gpu="H200-SXM").candidates.kv_bytes[0] == 2
    assert read_as(**scripted | {"model": "meta-llama/Llama-3.1-70B"}, gpu="H200-SXM").candidates.kv_bytes[0] == 1
    assert read_as(**scripted, gpu="B200-SXM", kv_dtype="bf16").candidates.kv_bytes[0] == 2


@pytest.mark.parametrize(
    ("cells", "drafted"),
    [
        ({"engine": "trtllm 1.2.0rc6.post3"}, 3),
        ({"engine": "trtllm 1.2.0rc6.post3", "attn_dp": "8", "ep": "8"}, 1),
        ({"engine": "trtllm 1.1.0rc2.post2", "notes": "measured=2026-01-14"}, 3),
        ({"engine": "trtllm 1.1.0rc2.post2", "notes": "measured=2025-12-15"}, 0),
        ({"engine": "trtllm 1.2.0rc6.post2", "notes": "measured=2026-02-03"}, 0),
        ({"engine": "trtllm 1.2.0rc6.post3", "model": "openai/gpt-oss-120b"}, 0),
        ({"engine": "trtllm 1.2.0rc6.post3", "source": "elsewhere"}, 0),
    ],
)
def test_rows_with_speculation_are_read_from_the_change_log_of_their_source(
    cells: dict[str, str], drafted: int
) -> None:
    """A drafted token is accepted with the chance that gives 1.8 tokens a step where one is drafted."""
    usual = {"source": "aic-silicon-inferencex", "model": "deepseek-ai/DeepSeek-R1", "gpu": "B200-SXM", "n_gpus": "8"}
    read = read_as(**usual | cells).candidates
    assert read.drafted_len[0] == drafted
    assert read.accepted_len[0] == pytest.approx(sum(0.8**place for place in range(drafted + 1)))


def test_the_stated_draft_of_a_row_is_used() -> None:
    cells = {"source": "aic-silicon-inferencex", "model": "deepseek-ai/DeepSeek-R1", "spec": "mtp", "accept_len": "2.1"}
    read = read_as(**cells, engine="trtllm 1.2.0rc6.post3", notes="k=2").candidates
    assert (read.drafted_len[0], read.accepted_len[0]) == (2, 2.1)


def test_a_server_splits_its_model_over_all_devices_unless_it_is_audited_or_runs_replicas() -> None:
    for cells, layout in (
        ({}, (4, 1)),
        ({"notes": "replicas; PCIe"}, (1, 4)),
        ({"source": "mlperf-v4.1"}, (1, 4)),
        ({"tp": "2"}, (2, 2)),
    ):
        read = read_as(**cells, n_gpus="4").candidates
        assert (read.tp[0], read.dp[0]) == layout


def test_int8_of_bitsandbytes_own_benchmark_decomposes_no_outliers_unless_stated() -> None:
    own = "transformers 4.46.3 + bitsandbytes 0.44.1"
    for engine, dtype, tag in (
        (own, "int8-bnb", "int8-bnb-whole"),
        (own, "int8-bnb-decomp", "int8-bnb"),
        ("transformers 4.30.2 + bitsandbytes 0.41.1", "int8-bnb", "int8-bnb"),
    ):
        tags = read_as(engine=engine, weight_dtype=dtype).candidates.tags[0]
        assert {name for name, held in zip(tag_names(), tags, strict=True) if held and "int8" in name} == {tag}


@pytest.mark.parametrize(
    ("engine", "old"),
    [
        ("transformers 4.46.3 + bitsandbytes 0.44.1", 1),
        ("transformers 4.30.2 + bitsandbytes 0.41.1", 1),
        ("transformers (2024-04)", 1),
        ("transformers 4.46.3 + bitsandbytes 0.45.0.dev", 0),
        ("transformers 4.51 + bitsandbytes 0.48.2", 0),
    ],
)
def test_int8_of_bitsandbytes_is_marked_where_its_version_is_before_the_rewrite(engine: str, old: float) -> None:
    place = tag_names().index("bitsandbytes-before-0.45")
    assert read_as(engine=engine, weight_dtype="int8-bnb").candidates.tags[0, place] == old
    assert read_as(engine=engine, weight_dtype="int4-bnb").candidates.tags[0, place] == 0


def test_tensorrt_edge_llm_shares_kernels_with_tensorrt_llm_but_not_its_constants() -> None:
    edge, server = (
        read_as(engine=name, weight_dtype="fp4", gpu="B200-SXM") for name in ("TensorRT-Edge-LLM", "trtllm")
    )
    place = tag_names().index("trtllm-edge")
    assert (edge.candidates.tags[0, place], server.candidates.tags[0, place]) == (1, 0)
    assert edge.paths[0] == server.paths[0]


def test_an_engine_with_a_cache_of_fixed_size_reads_all_of_it() -> None:
    cells = {"input_tokens": "1000", "output_tokens": "400"}
    static, paged = (read_as(engine=name, **cells).candidates for name in ("Transformers NeuronX 2.18.0", "vllm 0.12"))
    assert context(static)[0] == 1400 and context(paged)[0] == 1200
    computed = [float((c.prompt_len * (1 - c.cached_share))[0]) for c in (static, paged)]
    assert computed == pytest.approx([1000, 1000])


def test_neuron_stores_weights_in_8_bits_and_multiplies_in_16() -> None:
    cells = {"gpu": "Trainium1", "n_gpus": "16", "weight_dtype": "int8"}
    stored = read_as(**cells, engine="Transformers NeuronX 2.18").candidates
    assert stored.weight_bits[0] < 9 and stored.weight_only[0] == 1
    assert read_as(weight_dtype="int8").candidates.weight_only[0] == 0


def test_a_server_split_into_prefill_and_decode_fits_nothing_and_is_predicted_where_its_layout_stays() -> None:
    cells = {"source": "aic-silicon-inferencex", "gpu": "GB200"} | DEEPSEEK
    rows = [
        {**USUAL, **cells, "key": key, "output_tok_s_total": "9000", "trust": "high", "n_gpus": n, "tp": n}
        for key, n in (("a", "72"), ("b", "72"), ("c", "36"))
    ]
    rows.append({**rows[0], "key": "d", "source": "trtllm-docs-v1.0"})
    measurements = measured(rows)
    assert [DISAGGREGATED in doubt for doubt in measurements.doubts] == [True, True, True, False]
    changes = [{"kind": "raise_batch", "before": "a", "after": "b"}, {"kind": "tp_change", "before": "a", "after": "c"}]
    pairs = paired(rows, [{**change, "trust": "high", "ratio_output_tok_s": "1"} for change in changes])
    assert [DISAGGREGATED in why for why in reasons(measurements, pairs)] == [False, True]
    assert (Evidence(measurements, pairs).row_weight > 0).tolist() == [False, False, False, True]


def test_a_row_whose_weights_exceed_its_devices_fits_nothing() -> None:
    rows = [
        {**USUAL, "key": gpu, "gpu": gpu, "model": "meta-llama/Llama-3.1-70B", "params_total_b": "70.6"}
        | {"n_gpus": "1", "tp": "1", "output_tok_s_total": "900", "trust": "high", "source": gpu}
        for gpu in ("H100-SXM", "H200-SXM")
    ]
    measurements = measured(rows)
    assert (Evidence(measurements, paired(rows, [])).row_weight > 0).tolist() == [False, True]


def test_a_cache_that_a_row_states_limits_how_many_requests_run() -> None:
    cells = {"model": "Qwen/Qwen2.5-32B", "params_total_b": "32.5", "params_active_b": "32.5", "n_layers": "64"}
    cells |= {"n_kv_heads": "8", "head_dim": "128", "gpu": "A100-80G-SXM", "n_gpus": "2", "mode": "burst"}
    cells |= {"input_tokens": "1024", "output_tokens": "1024", "batch_or_concurrency": "100"}
    stated = read_as(**cells, notes="test6; KV cache 8.2GiB/GPU; burst of N")
    assert kv_tokens(stated.candidates)[0] == pytest.approx(2 * 8.2 * 2**30 / (2 * 64 * 8 * 128 * 2), rel=1e-6)
    assert running(stated)[0] == pytest.approx(43.7, abs=0.2) and running(read_as(**cells))[0] == 100


def test_tensorrt_llm_starts_a_request_only_with_room_for_its_whole_length() -> None:
    cells = {"input_tokens": "512", "output_tokens": "3072", "batch_or_concurrency": "", "kv_dtype": "bf16"}
    cells |= {"model": "meta-llama/Llama-3.1-70B", "weight_dtype": "fp8"}
    read = read_as(**cells, engine="trtllm 1.0").candidates
    assert fitting_sequences(read)[0] == pytest.approx(kv_tokens(read)[0] / 3584)
    other = read_as(**cells).candidates
    assert fitting_sequences(other)[0] == pytest.approx(kv_tokens(other)[0] / 2048)


def test_a_batch_given_to_a_paged_engine_waits_where_it_does_not_fit() -> None:
    long = {"input_tokens": "8192", "output_tokens": "8192", "batch_or_concurrency": "512", "mode": "fixed batch"}
    assert running(read_as(**long))[0] < 512
    assert running(read_as(**long, engine="eager transformers"))[0] == 512
    assert running(read_as(**long, notes="batch=measured avg"))[0] == 512


@pytest.mark.parametrize(
    ("gpu", "version", "notes", "slow"),
    [
        ("A100-80G-SXM", "0.6.3", "", True),
        ("A100-80G-SXM", "0.6.3", "KV fp8_e5m2", False),
        ("A100-80G-SXM", "0.11", "", False),
        ("H100-SXM", "0.6.3", "", False),
    ],
)
def test_a_cache_in_fp8_is_slow_under_an_old_engine_on_hardware_that_does_not_convert_it(
    gpu: str, version: str, notes: str, slow: bool
) -> None:
    lines = [
        {
            **read_as(gpu=gpu, engine=f"vllm {version}").rows[0],
            "key": name,
            "output_tok_s_total": "2500",
            "kv_dtype": name,
            "notes": notes,
        }
        for name in ("bf16", "fp8")
    ]
    ends = {"before": "bf16", "after": "fp8", "kind": "kv_fp8", "source": "s", "model": "m"}
    measurements = measured(lines)
    predicted, half, why = by_shipped_table(measurements, paired(lines, [ends]), Watts(measurements))
    assert not why[0]
    # Where the cache has room there is next to nothing to gain.
    assert predicted.log_ratio[0] < -0.2 if slow else abs(predicted.log_ratio[0]) < 0.1
    assert (half[0] >= intervals().unmeasured) == slow


@pytest.mark.parametrize(
    ("notes", "cached"),
    [
        ("after: prefix caching off -> on, 16 conc shared prefixes, hit rate 66.5%", 0.665),
        ("before: prefix caching off -> on, 16 conc shared prefixes, hit rate 66.5%", 0.0),
        ("hit rate 40 %", 0.4),
        ("prefix caching on", 0.0),
    ],
)
def test_hits_of_the_prefix_cache_are_read_where_a_row_states_them(notes: str, cached: float) -> None:
    assert read_as(notes=notes).candidates.cached_share[0] == cached


def test_the_prefix_cache_of_a_server_that_only_decodes_is_not_forecast() -> None:
    cells = {"notes": "decode-side radix cache off -> on", "output_tok_s_total": "500"}
    lines = [{**read_as(**cells).rows[0], "key": key} for key in ("off", "on")]
    pairs = paired(lines, [{"before": "off", "after": "on", "kind": "prefix_cache", "source": "s", "model": "m"}])
    measurements = measured(lines)
    assert "only decodes" in by_shipped_table(measurements, pairs, Watts(measurements))[2][0]


def test_prompts_are_unchunked_where_a_row_states_it() -> None:
    assert read_as(notes="chunked prefill off").candidates.whole_prompts[0] == 1
    assert read_as(notes="chunked prefill on").candidates.whole_prompts[0] == 0


def test_an_unknown_device_is_read_as_one_of_its_make() -> None:
    rates = [read_as(gpu=name).candidates.fp16_flops[0] for name in ("Apple-Metal", "Foo-9000", "some ARM CPU")]
    assert rates[0] < rates[1] / 5 and rates[2] < rates[0]
    assert all("not known" in read_as(gpu=name).doubts[0] for name in ("Apple-Metal", "Foo-9000"))
