from dataclasses import replace

import numpy as np
import pytest

from benchmarks.load.engine import Engine, engines, request_s, with_first_token
from pertoken.catalog.market import load_market
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.efficiency import efficiency, steady, time_scale
from pertoken.forecast.served import Load, resolve
from pertoken.forecast.terms import TERMS
from pertoken.state.deployment import Deployment
from tests.deployments import deployment

MARKET = load_market()
CHAT = Load(generated_tok_s=500, prompt_len=512, generated_len=256, running=8)
PREFILL, SEQUENCES = TERMS.index("prefill_flops"), TERMS.index("sequences")


def candidates(*deployments: Deployment) -> Candidates:
    return resolve(deployments, [CHAT] * len(deployments), MARKET)


def engine(known: Deployment, shift: Array | float = 0.0) -> Engine:
    return engines(candidates(known), efficiency(), 8192, shift)[0]


def test_a_measured_first_token_scales_prefill_and_the_rest_of_the_step_shrinks_by_as_much() -> None:
    c = candidates(deployment())
    table = time_scale(c, efficiency())
    moved = with_first_token(c, table, 1.0)
    assert moved[0, PREFILL] == pytest.approx(max(table[0, PREFILL], 1.85))
    # 2 x 8.03e9 FLOPs at 989e12: 16.2 µs a prompt token, and as much of the sequences' unit of 10 µs.
    more = (moved[0, PREFILL] - table[0, PREFILL]) * 2 * 8.03e9 / 989e12 / 1e-5
    assert moved[0, SEQUENCES] == pytest.approx(max(table[0, SEQUENCES] - more, 1.0))
    others = [place for place in range(len(TERMS)) if place not in (PREFILL, SEQUENCES)]
    assert (moved[:, others] == table[:, others]).all()


def test_prompts_that_are_slow_already_and_short_sequences_stay_as_they_are() -> None:
    c = candidates(deployment())
    slow = time_scale(c, efficiency())
    slow[0, PREFILL], slow[0, SEQUENCES] = 3.0, 0.5
    assert (with_first_token(c, slow, 1.0) == slow).all()


def test_a_step_takes_longer_with_each_sequence_up_to_the_batch_limit() -> None:
    one = engine(deployment(max_num_seqs=32))
    assert one.limit == 32 and len(one.weights_s) == 33
    assert (np.diff(one.step_s[1:]) > 0).all()
    assert 0 < one.weights_s[1] < one.step_s[1]


def test_decode_of_the_engine_is_that_of_the_serving_model_but_for_prompts_and_sequences() -> None:
    c = candidates(deployment(max_num_seqs=4))
    state = steady(c, efficiency(), np.array([4.0]))
    places = [TERMS.index(name) for name in ("prefill_flops", "prefill_attention", "requests", "sequences")]
    left = state.token_s[0] - state.term_s[0, places].sum()
    moved = with_first_token(c, time_scale(c, efficiency()), float(np.exp(efficiency().base[SEQUENCES])))
    assert engines(c, efficiency(), 8192)[0].step_s[4] == pytest.approx(left + 4e-5 * moved[0, SEQUENCES])


def test_calibration_shifts_every_part() -> None:
    plain, slower = engine(deployment()), engine(deployment(), np.full((1, len(TERMS)), np.log(2)))
    assert slower.step_s[8] == pytest.approx(2 * plain.step_s[8])
    assert slower.prompt_step_s(3, 700) == pytest.approx(2 * plain.prompt_step_s(3, 700))


def test_only_vllm_before_hopper_reads_a_cache_once_for_each_query_head_beside_a_prompt() -> None:
    ampere, hopper = engine(deployment(accelerator="A100 80GB PCIe")), engine(deployment())
    assert hopper.mixed_s == 0
    # 640 tokens of 128 KiB at 1.935e12 bytes/s are 43 µs; four query heads share a cache head of Llama 3.1 8B.
    assert 2 * 43e-6 < ampere.mixed_s < 5 * 43e-6
    assert engine(deployment(accelerator="A100 80GB PCIe", engine="sglang")).mixed_s == 0


def test_sglang_computes_prompts_in_steps_of_their_own() -> None:
    assert engine(deployment()).mixed and not engine(deployment(engine="sglang")).mixed


def test_a_step_with_a_prompt_reads_all_experts_of_a_mixture() -> None:
    one = engine(deployment("Mixtral-8x7B", tp=2))
    assert one.prompt_weights_s > 1.5 * one.weights_s[1]
    dense = engine(deployment())
    assert dense.prompt_weights_s == pytest.approx(dense.weights_s[1])


def test_whole_prompts_and_the_cache_are_those_of_the_candidate() -> None:
    c = candidates(deployment(enable_chunked_prefill=False), deployment())
    whole, chunked = engines(c, efficiency(), 2048)
    assert whole.whole_prompts and not chunked.whole_prompts
    smaller = engines(replace(c, memory_share=c.memory_share / 2), efficiency(), 2048)
    assert smaller[0].kv_tokens < whole.kv_tokens and whole.step_tokens == 2048


def test_a_request_takes_some_milliseconds_beside_the_engine() -> None:
    assert 0.001 < request_s() < 0.05
