from itertools import permutations
from typing import Literal

import numpy as np
import pytest

from benchmarks.forecast.folds import MACRO
from pertoken.forecast.efficiency import (
    Intervals,
    efficiency,
    intervals,
    kernel_path,
    path_sources,
    rows_times,
    table,
    tag_names,
    tag_row,
)
from pertoken.forecast.terms import TERMS


def test_the_table_names_the_data_that_it_was_fitted_on() -> None:
    fit = table()["fit"]
    assert fit["source"] and fit["as_of"] and fit["rows"] > 1000 and fit["pairs"] > 1000


def test_every_term_has_a_constant_and_only_known_tags_adjust_it() -> None:
    assert set(table()["terms"]) == set(TERMS)
    assert all(set(row.get("by", {})) <= set(tag_names()) for row in table()["terms"].values())
    assert np.isfinite(efficiency().base).all() and np.isfinite(efficiency().by_tag).all()


def test_tags_of_a_candidate_add_up() -> None:
    plain, quantized = (efficiency().log_scale(np.array([tag_row(held)])) for held in ((), ("int4-awq", "ampere")))
    places = [tag_names().index(literal) for literal in ("int4-awq", "ampere")]
    assert quantized - plain == pytest.approx(efficiency().by_tag[places].sum(axis=0)[None])


@pytest.mark.parametrize("layout", ["C", "F"])
def test_a_product_of_a_row_has_the_same_digits_beside_any_other_rows(layout: Literal["C", "F"]) -> None:
    random = np.random.default_rng(1)
    rows, by = random.normal(size=(97, 44)), np.asarray(random.normal(size=(44, 14)), order=layout)
    whole = rows_times(rows, by)
    assert whole == pytest.approx(rows @ by)
    for n in (1, 2, 3, 8, 50):
        parts = [rows_times(rows[first : first + n], by) for first in range(0, len(rows), n)]
        assert (np.concatenate(parts) == whole).all()


def test_an_unknown_tag_is_refused() -> None:
    with pytest.raises(ValueError, match="astrology"):
        tag_row(["astrology"])


def test_errors_of_two_kinds_add_in_quadrature_and_none_is_below_the_floor() -> None:
    one, other = (intervals().half_width([kind], 0.0) for kind in ("tp_change", "quantize_fp8"))
    assert intervals().half_width(["tp_change", "quantize_fp8"], 0.0) == pytest.approx(np.hypot(one, other))
    assert intervals().half_width(["tp_change", "quantize_fp8"], 5.0) < 1.2 * intervals().half_width(
        ["quantize_fp8"], 5.0
    )
    assert intervals().half_width([], 0.1) == 0
    widths = intervals()
    assert intervals().half_width(["tp_change"], 0.0) == pytest.approx(widths.floor)
    assert intervals().half_width(["astrology"], 0.0) == widths.unmeasured > 0.5


def test_an_interval_widens_with_uncertainty_and_disagreement() -> None:
    widths = Intervals(0.2, 1.0, 2.0, 0.7, frozenset({"tp_change"}))
    assert widths.half_width(["tp_change"], 0.0) == pytest.approx(0.2)
    assert widths.half_width(["tp_change"], 0.4, 0.3) == pytest.approx(np.sqrt(0.04 + 0.16 + 0.36))
    assert widths.half_width(["tp_change"], np.array([0.0, 1.0])).shape == (2,)


def test_kernels_are_named_by_the_engines_that_share_them_and_the_stored_format() -> None:
    on = "Ampere"
    assert kernel_path("vllm", "int4", on) == kernel_path("sglang", "int4", on) != kernel_path("eager", "int4", on)
    assert kernel_path("llama.cpp", "gguf-q4", on) == kernel_path("ollama", "int8-w8a16", on)
    assert kernel_path("vllm", "fp16", on) == kernel_path("llama.cpp", "bf16", on)
    assert kernel_path("vllm", "fp8", "Ada") == kernel_path("vllm", "fp8", "Blackwell")
    assert path_sources(kernel_path("vllm", "fp8", "Hopper")) > 5 and path_sources("batching astrology") == 0


def test_kernels_of_another_maker_are_a_path_of_their_own_and_unmeasured_ones_have_no_source() -> None:
    paths = [kernel_path("vllm", "fp8", arch) for arch in ("Hopper", "CDNA3", "NeuronCore-v2")]
    assert paths == ["batching fp8", "batching fp8 amd", "batching fp8 neuron"]
    assert [bool(path_sources(path)) for path in paths] == [True, True, False]
    assert not path_sources(kernel_path("vllm", "int4", "CDNA3"))


def test_16_bits_are_one_path_on_every_architecture_with_a_prior() -> None:
    paths = [kernel_path("vllm", "bf16", arch) for arch in ("Hopper", "CDNA3", "NeuronCore-v2", "TPU", "Gaudi3")]
    assert paths == ["16-bit", "16-bit", "16-bit", "16-bit TPU", "16-bit Gaudi3"]
    assert [bool(path_sources(path)) for path in paths] == [True, True, True, True, False]


def test_the_order_of_kinds_changes_no_digit() -> None:
    kinds = ("chunked_prefill", "consolidate", "move_gpu")
    widths = {float(intervals().half_width(some, 0.05)) for some in permutations(kinds)}
    assert len(widths) == 1


def test_every_kind_of_the_accuracy_average_is_measured() -> None:
    assert set(MACRO) <= intervals().measured
