import importlib.util
import math
import sys
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.forecast.blend import Pair, blended, learn, left_out, macro, per_kind
from benchmarks.forecast.second_opinion import log_ratio, point
from pertoken.catalog.market import load_market
from pertoken.forecast.second_opinion.opinion import (
    KernelTables,
    OperatingPoint,
    OpinionResult,
    Ratio,
    ask,
    blend,
    log_sd_of,
    weight,
)
from pertoken.forecast.served import Load
from pertoken.forecast.serving import Change, compare
from pertoken.state.deployment import Deployment
from pertoken.state.placement import Placement

LLAMA = OperatingPoint("meta-llama/Llama-3.1-70B-Instruct", "H100 SXM5", "vllm", "bf16", 1024, 512, 32, tp=4)


def asked(point: OperatingPoint) -> dict[str, Any]:
    question = ask(point)
    assert isinstance(question, dict), question
    return question


def test_a_model_is_found_whatever_its_owner_calls_its_variant() -> None:
    for name in ("Llama-3.1-70B", "meta-llama/Meta-Llama-3.1-70B-Instruct-FP8", "org/llama-3.3-70b-instruct"):
        assert asked(replace(LLAMA, model=name))["model"] == "meta-llama/Meta-Llama-3.1-70B"


def test_another_model_of_the_same_family_is_not_taken_for_it() -> None:
    assert ask(replace(LLAMA, model="deepseek-ai/DeepSeek-R1-Distill-Qwen-14B")) == (
        "no kernel tables for the model deepseek-ai/DeepSeek-R1-Distill-Qwen-14B"
    )


def test_models_and_devices_outside_the_tables_are_named() -> None:
    assert ask(replace(LLAMA, engine="llama.cpp")) == "no kernel tables for the engine llama.cpp"
    assert ask(replace(LLAMA, accelerator="MI300X")) == "no kernel tables for MI300X"
    assert ask(replace(LLAMA, weight_dtype="int4")) == (
        "no kernel tables for int4 weights of meta-llama/Llama-3.1-70B-Instruct"
    )


def test_precision_is_asked_for_as_the_published_checkpoint_has_it() -> None:
    assert asked(replace(LLAMA, weight_dtype="fp8", kv_dtype="fp8"))["modes"] == {"gemm": "fp8", "kvcache": "fp8"}
    mixture = replace(LLAMA, model="Qwen/Qwen3-30B-A3B", weight_dtype="fp8")
    assert asked(mixture)["modes"] == {"gemm": "fp8_block", "moe": "fp8_block"}
    deepseek = asked(replace(LLAMA, model="deepseek-ai/DeepSeek-R1", weight_dtype="fp4"))
    assert deepseek["model"] == "nvidia/DeepSeek-V3.1-NVFP4" and deepseek["modes"] == {}


def test_an_environment_without_the_package_is_a_reason_and_not_a_crash() -> None:
    """The real worker in the interpreter of these tests, started with nothing of site-packages."""
    with KernelTables(sys.executable) as tables:
        if importlib.util.find_spec("aiconfigurator"):
            pytest.skip("the package is here")
        opinion = tables.log_ratio(LLAMA, replace(LLAMA, concurrency=64))
    assert opinion == OpinionResult(reason="No module named 'aiconfigurator_core'")


def test_an_interpreter_that_is_none_is_a_reason() -> None:
    with KernelTables("/bin/false") as tables:
        opinion = tables.log_ratio(LLAMA, replace(LLAMA, concurrency=64))
        assert opinion.reason == "/bin/false answers no questions about kernel tables"


@pytest.mark.skipif(not importlib.util.find_spec("aiconfigurator"), reason="needs the extra `kernels`")
def test_a_larger_batch_generates_more_in_the_real_tables() -> None:
    with KernelTables() as tables:
        opinion = tables.log_ratio(LLAMA, replace(LLAMA, concurrency=64))
    assert opinion.log_ratio is not None and math.log(1.2) < opinion.log_ratio < math.log(2)


def test_committed_answers_need_no_package() -> None:
    row = dict.fromkeys(("kv_dtype", "pp", "attn_dp", "ep"), "") | {
        "model": "meta-llama/Llama-3.1-70B",
        "gpu": "H200-SXM",
        "n_gpus": "4",
        "tp": "4.0",
        "pp": "1.0",
        "attn_dp": "1.0",
        "ep": "1.0",
        "engine": "vllm ",
        "weight_dtype": "fp8",
        "batch_or_concurrency": "32.0",
        "input_tokens": "1024.0",
        "output_tokens": "1024.0",
    }
    ratio = log_ratio(row, {**row, "batch_or_concurrency": "64.0"})
    assert ratio is not None and math.log(1.3) < ratio < math.log(2)
    assert log_ratio(row, {**row, "gpu": "Inferentia2"}) is None


def test_cells_that_are_no_numbers_take_defaults() -> None:
    row = dict.fromkeys(("kv_dtype", "tp", "pp", "attn_dp", "ep", "input_tokens", "output_tokens"), "") | {
        "model": "x",
        "gpu": "y",
        "n_gpus": "8",
        "engine": "vLLM 0.11 (x)",
        "weight_dtype": "bf16",
        "batch_or_concurrency": "peak",
    }
    cell = point(row)
    assert (cell.tp, cell.concurrency, cell.engine) == (8, None, "vllm")


def test_a_blend_lies_between_the_two_and_widens_where_they_disagree() -> None:
    ours = Ratio(math.log(1.5), 0.1)
    near, far = (blend(ours, OpinionResult(log_ratio=math.log(ratio)), ["move_gpu"]) for ratio in (1.55, 3.0))
    assert ours.log < near.log < math.log(1.55)
    assert ours.log < far.log < math.log(3.0)
    assert far.log_sd > near.log_sd
    assert blend(ours, OpinionResult(reason="not covered"), ["move_gpu"]) == ours


def test_the_tables_never_speak_alone() -> None:
    assert 0 < weight() <= 0.8
    assert log_sd_of(["move_gpu", "raise_batch"]) == max(log_sd_of([kind]) for kind in ("move_gpu", "raise_batch"))
    assert log_sd_of(["never seen"]) == log_sd_of([]) > 0


def test_an_opinion_that_was_wrong_before_the_change_weighs_less() -> None:
    ours, opinion = Ratio(0.0, 0.1), OpinionResult(log_ratio=1.0, log_tok_s=math.log(1000))
    near, far = (blend(ours, opinion, ["move_gpu"], seen_tok_s=seen).log for seen in (950, 400))
    assert 0 < far < near < blend(ours, opinion, ["move_gpu"]).log == pytest.approx(weight())


class Fixed:
    """An opinion with the same result for every change, which records its questions."""

    def __init__(self, opinion: OpinionResult) -> None:
        self.opinion = opinion
        self.asked: list[tuple[OperatingPoint, OperatingPoint]] = []

    def log_ratio(self, before: OperatingPoint, after: OperatingPoint) -> OpinionResult:
        self.asked.append((before, after))
        return self.opinion


def test_a_comparison_takes_a_second_opinion_into_account() -> None:
    market = load_market()
    model = market.model("Llama-3.1-8B")
    assert model is not None
    now = Deployment(model, "vllm", placement=Placement(accelerator="H100 SXM5"), tp=1, weight_dtype="bf16")
    to = now.but(weight_dtype="fp8")
    load = Load(generated_tok_s=500, prompt_len=1000, generated_len=250, running=8)
    high, silent = Fixed(OpinionResult(log_ratio=math.log(3))), Fixed(OpinionResult(reason="not covered"))
    alone, both, unheard = (compare(now, to, load, market, opinion=fixed) for fixed in (None, high, silent))
    assert isinstance(alone, Change) and isinstance(both, Change) and isinstance(unheard, Change)
    assert alone.ratio[1] < both.ratio[1] < 3
    assert both.ratio[2] / both.ratio[0] > alone.ratio[2] / alone.ratio[0]
    assert unheard.ratio == pytest.approx(alone.ratio)
    [(before, after)] = high.asked
    assert (before.concurrency, before.accelerator, before.weight_dtype) == (8, "H100 SXM5", "bf16")
    assert after == replace(before, weight_dtype="fp8")


def pair(kind: str, gpu: str, measured: float, ours: float, tables: float) -> Pair:
    return Pair(kind, "source", "model", gpu, gpu, measured, ours, tables)


def test_the_learned_weight_is_the_one_that_was_right() -> None:
    pairs = [pair("move_gpu", str(place), 0.3, 0.0, 0.6) for place in range(20)]
    learned = learn(pairs)
    assert learned.weight == 0.5 and learned.log_sd["move_gpu"] == pytest.approx(0.3)
    assert blended(pairs, learn(pairs)) == pytest.approx([0.3] * 20)


def test_weights_are_scored_where_they_were_not_learned() -> None:
    """Two GPUs, on one of which the tables are right and on the other wrong: neither predicts the other."""
    pairs = [pair("move_gpu", "A", 0.5, 0.0, 0.5)] * 4 + [pair("move_gpu", "B", 0.0, 0.0, 0.5)] * 4
    weights = left_out(pairs, lambda pair: pair.gpu_after)
    assert weights[0] == pytest.approx(0.0) and weights[-1] == pytest.approx(0.4)


def test_every_cluster_weighs_the_same_in_the_errors() -> None:
    many = [pair("move_gpu", "A", 0.0, 0.0, 0.0)] * 99 + [pair("move_gpu", "B", 0.0, math.log(2), 0.0)]
    errors = per_kind(many, [pair.ours for pair in many])
    assert errors["move_gpu"][0] == 100 and errors["move_gpu"][2] == pytest.approx(1.0)
    assert macro(errors) == (errors["move_gpu"][1], errors["move_gpu"][2])
