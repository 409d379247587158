import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.forecast.performance.measurements import read
from benchmarks.forecast.power import Watts, by_kind, log_ratios, uncapped_w
from benchmarks.load.unmeasured_watts import unmeasured_busy_w, unmeasured_log_sd
from pertoken.catalog.market import load_market
from pertoken.forecast.candidates import Array
from pertoken.forecast.efficiency import efficiency, steady
from pertoken.forecast.power import (
    CandidateWatts,
    at_clock,
    busy_w,
    clock_bound,
    full_w,
    idle_w,
    log_sd,
    products_share,
    under_cap,
)
from pertoken.forecast.served import Load, resolve
from pertoken.state.deployment import Deployment, Placement

MARKET = load_market()
H100 = CandidateWatts(np.array([70.0]), np.array([700.0]))


def one(value: float) -> Array:
    return np.array([value])


def test_watts_stay_between_idle_and_the_limit() -> None:
    assert H100.idle_w[0] < busy_w(H100, one(1e-5))[0] < busy_w(H100, one(0.6))[0] < 700


def test_a_power_limited_product_draws_as_its_chip_would_until_it_meets_its_limit() -> None:
    free = CandidateWatts(one(50), one(400))
    limited = CandidateWatts(one(50), one(300), one(full_w("A100 80GB PCIe", 300)))
    assert limited.full_w[0] == 400
    assert busy_w(limited, one(1e-4))[0] == pytest.approx(busy_w(free, one(1e-4))[0])
    assert busy_w(limited, one(0.3))[0] == 300 < busy_w(free, one(0.3))[0]
    assert full_w("never seen", 250) == 250


def test_unmeasured_watts_stay_between_idle_and_the_limit_and_change_less_with_the_work() -> None:
    light, heavy = (unmeasured_busy_w("never seen", H100, one(share))[0] for share in (0.02, 0.4))
    assert 70 < light < heavy < 700
    assert heavy / light < busy_w(H100, one(0.4))[0] / busy_w(H100, one(0.02))[0]
    assert unmeasured_log_sd() >= log_sd(slowed=False)


def test_a_device_measured_by_several_sources_draws_their_median() -> None:
    curve, device = (unmeasured_busy_w(name, H100, one(0.1))[0] for name in ("never seen", "H100 SXM5"))
    assert device == pytest.approx(0.94 * curve)


def test_a_batch_spends_fewer_joules_on_a_token() -> None:
    model = MARKET.model("Llama-3.1-8B")
    assert model is not None
    deployment = Deployment(model, "vllm", placement=Placement(accelerator="H100 SXM5"), tp=1, weight_dtype="bf16")
    load = Load(generated_tok_s=500, prompt_len=1000, generated_len=250, running=8)
    candidates = resolve([deployment] * 2, [load] * 2, MARKET)
    device = CandidateWatts(np.repeat(H100.idle_w, 2), np.repeat(H100.limit_w, 2))
    running = np.array([1.0, 32.0])
    token_s = steady(candidates, efficiency(), running).token_s
    watts = busy_w(device, products_share(candidates, running, token_s))
    joules = watts * token_s / running
    assert watts[1] > watts[0]
    assert joules[0] > 8 * joules[1]
    assert 0.05 < joules[1] < 1.0


def test_an_unmeasured_idle_device_draws_an_assumed_share_of_its_limit() -> None:
    assert idle_w("H100 SXM5", 700) == 70
    assert idle_w("never seen", 500) == pytest.approx(60)


def test_a_cap_costs_little_until_the_clock_has_to_fall_far() -> None:
    device = CandidateWatts(one(25), one(350))
    mild, hard = (under_cap(device, one(340), one(0.5), one(cap)) for cap in (280, 190))
    assert mild.power_w[0] == pytest.approx(280) and hard.power_w[0] == pytest.approx(190)
    assert mild.slowdown[0] < 1.15 < 1.3 < hard.slowdown[0]


def test_a_cap_that_does_not_bind_changes_nothing() -> None:
    slowed = under_cap(H100, one(450), one(0.5), one(500))
    assert (slowed.power_w[0], slowed.clock_share[0], slowed.slowdown[0]) == pytest.approx((450, 1, 1))


def test_the_3090_of_the_published_caps_is_met() -> None:
    """MoE model, 200 W: 104.1 of 137.7 tok/s at 199.7 W of 385.8 W (noonghunna/club-3090, Apache-2.0)."""
    slowed = under_cap(CandidateWatts(one(25), one(350)), one(385.8), one(0.43), one(199.7))
    assert 1 / slowed.slowdown[0] == pytest.approx(104.1 / 137.7, rel=0.06)
    assert slowed.clock_share[0] == pytest.approx(1095 / 1935, rel=0.1)


@given(
    limit=st.floats(60, 1500),
    drawn=st.floats(0.2, 1.0),
    cap=st.floats(0.1, 1.2),
    bound=st.floats(0, 1),
    clock=st.floats(0.1, 1.0),
)
def test_lower_caps_and_clocks_never_draw_more_nor_run_faster(
    limit: float, drawn: float, cap: float, bound: float, clock: float
) -> None:
    device = CandidateWatts(one(0.1 * limit), one(limit))
    power = one(drawn * limit)
    high, low = (under_cap(device, power, one(bound), one(value * limit)) for value in (cap, 0.8 * cap))
    assert low.power_w[0] <= high.power_w[0] * (1 + 1e-9) <= power[0] * (1 + 1e-6)
    assert low.slowdown[0] >= high.slowdown[0] * (1 - 1e-9) >= 1 - 1e-9
    locked = at_clock(device, power, one(bound), one(clock))
    assert locked.power_w[0] <= power[0] * (1 + 1e-9) and locked.slowdown[0] >= 1
    assert uncapped_w(device, locked.power_w, one(clock))[0] >= locked.power_w[0]


def test_weights_unpacked_before_each_product_wait_for_the_clock_more_than_others() -> None:
    model = MARKET.model("Llama-3.1-8B")
    assert model is not None
    load = Load(generated_tok_s=50, prompt_len=200, generated_len=250, running=1)
    kinds = [
        Deployment(model, "vllm", placement=Placement(accelerator="H100 SXM5"), tp=1, weight_dtype=dtype)
        for dtype in ("bf16", "int4")
    ]
    candidates = resolve(kinds, [load, load], MARKET)
    bound = clock_bound(candidates, steady(candidates, efficiency(), np.ones(2)))
    assert 0 < bound[0] < bound[1] < 1


HEADER = (
    "key,source,model,params_total_b,params_active_b,n_layers,n_kv_heads,head_dim,weight_dtype,kv_dtype,gpu,n_gpus,"
    "engine,mode,batch_or_concurrency,input_tokens,output_tokens,output_tok_s_total,itl_ms,ttft_ms,power_w_per_gpu,"
    "energy_j_per_output_token,tp,pp,attn_dp,ep,spec,trust,notes,licence,power_limit_w,sm_clock_mhz,accept_len"
)


def test_the_energy_of_a_pair_is_forecast_from_before_and_the_configuration_of_after(tmp_path: Path) -> None:
    shape = "c,Qwen/Qwen3-8B,8.19,8.19,36,8,128,bf16,bf16,H100-SXM,1,vLLM 0.11,online-closed"
    (tmp_path / "m.csv").write_text(
        f"{HEADER}\n"
        f"a,{shape},8,1000,500,900,8.6,,430,0.478,1,1,1,1,,high,,MIT,,,\n"
        f"b,{shape},64,1000,500,4200,15,,520,0.124,1,1,1,1,,high,,MIT,,,\n"
        f"d,{shape},64,1000,500,,,,,,1,1,1,1,,high,,MIT,300,,\n"
    )
    (tmp_path / "p.csv").write_text(
        "kind,before,after,source,model,gpu_before,gpu_after,ratio_output_tok_s,ratio_energy_per_token,trust\n"
        "raise_batch,a,b,c,Qwen/Qwen3-8B,H100-SXM,H100-SXM,4.667,0.2594,high\n"
        "power_cap,b,d,c,Qwen/Qwen3-8B,H100-SXM,H100-SXM,,,high\n"
    )
    measurements, pairs = read(tmp_path / "m.csv", tmp_path / "p.csv")
    tok_s, joules = log_ratios(Watts(measurements), pairs, np.array([math.log(4.667), 0.0]))
    assert math.exp(joules[0]) == pytest.approx(0.2594, rel=0.15)
    assert tok_s[0] == math.log(4.667) and tok_s[1] < 0
    assert math.exp(joules[1]) == pytest.approx(300 / 520 / math.exp(tok_s[1]), rel=1e-6)
    assert by_kind(pairs, joules).keys() == {"raise_batch"}


def test_a_cap_between_draw_and_the_old_cap_changes_nothing_whatever_else_holds_the_clock(tmp_path: Path) -> None:
    shape = "c,Qwen/Qwen3-8B,8.19,8.19,36,8,128,bf16,bf16,H100-SXM,1,vLLM 0.11,online-closed,64,1000,500"
    free = f"z,{shape},4300,15,,560,0.13,1,1,1,1,,high,,MIT,700,1980,"
    held = f"a,{shape},4200,15,,520,0.124,1,1,1,1,,high,,MIT,600,1500,"
    caps = [f"{cap},{shape},,,,,,1,1,1,1,,high,,MIT,{cap},," for cap in (560, 525, 450, 350)]
    (tmp_path / "m.csv").write_text("\n".join([HEADER, free, held, *caps]) + "\n")
    ends = [f"power_cap,a,{cap},c,Qwen/Qwen3-8B,H100-SXM,H100-SXM,,,high" for cap in (560, 525, 450, 350)]
    head = "kind,before,after,source,model,gpu_before,gpu_after,ratio_output_tok_s,ratio_energy_per_token,trust"
    (tmp_path / "p.csv").write_text("\n".join([head, *ends]) + "\n")
    measurements, pairs = read(tmp_path / "m.csv", tmp_path / "p.csv")
    tok_s, _ = log_ratios(Watts(measurements), pairs, np.zeros(4))
    assert tok_s[:2] == pytest.approx(0, abs=1e-9)
    assert tok_s[3] < tok_s[2] < 0


def test_a_device_that_computes_the_same_tokens_in_fp8_draws_no_less() -> None:
    model = MARKET.model("Llama-3.1-8B")
    assert model is not None
    load = Load(generated_tok_s=500, prompt_len=1000, generated_len=250, running=32)
    kinds = [
        Deployment(model, "vllm", placement=Placement(accelerator="H100 SXM5"), tp=1, weight_dtype=dtype)
        for dtype in ("bf16", "fp8")
    ]
    wide, narrow = products_share(resolve(kinds, [load] * 2, MARKET), np.full(2, 32.0), np.full(2, 0.01))
    assert wide == pytest.approx(narrow)
