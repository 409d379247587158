from dataclasses import replace

import pytest

from pertoken.plugins.quantize_weights import quantize_weights
from tests.fleets import LLAMA_70B, low_batch
from tests.plugins.proposals import proposals, refusal


def tried(**arguments: object) -> set[tuple[str, int]]:
    return {(each.weight_dtype, each.tp) for each in proposals(quantize_weights, **arguments)}


def test_a_16_bit_model_on_an_h100_may_go_to_fp8_and_to_fewer_devices() -> None:
    assert tried() == {("fp8", 2), ("fp8", 1), ("int4", 2), ("int4", 1)}


def test_under_load_four_bit_weights_are_left_out() -> None:
    assert tried(seen=low_batch(running=60)) == {("fp8", 2), ("fp8", 1)}


def test_an_a100_gets_int8_since_it_has_no_fp8() -> None:
    a100 = replace(LLAMA_70B, accelerator="A100 80GB SXM4")
    assert tried(now=a100, seen=low_batch(running=60)) == {("int8", 2), ("int8", 1)}


def test_a_blackwell_may_go_to_four_bit_floats_and_never_to_its_slow_int8() -> None:
    b300 = replace(LLAMA_70B, accelerator="B300 SXM", tp=1)
    assert tried(now=b300, seen=low_batch(running=60)) == {("fp8", 1), ("fp4", 1)}


def test_llama_cpp_gets_the_formats_of_its_files() -> None:
    assert {dtype for dtype, _ in tried(now=replace(LLAMA_70B, engine="llama.cpp"))} == {"int8", "int4"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"weight_dtype": "fp8"}, "quantized already (fp8)"),
        ({"weight_dtype": None}, "dtype of its weights is not known"),
        ({"accelerator": None}, "not in the catalog"),
    ],
)
def test_it_refuses_what_is_quantized_or_unknown(changes: dict[str, object], reason: str) -> None:
    assert reason in refusal(quantize_weights, now=LLAMA_70B.but(**changes))


def test_it_refuses_hardware_without_eight_bit_products_under_load() -> None:
    v100 = replace(LLAMA_70B, accelerator="V100 SXM2 32GB")
    assert "no 8-bit format" in refusal(quantize_weights, now=v100, seen=low_batch(running=60))
