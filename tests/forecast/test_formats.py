"""Weight and cache formats, and assumptions about engines."""

import pytest

from pertoken.forecast.formats import (
    defaults,
    engine_tag,
    hardware_tag,
    has_block_kernels,
    kv_bytes_per_value,
    stored_format,
    weight_format,
)


def test_fewer_bits_are_fewer_bytes() -> None:
    bits = [stored.bits for dtype in ("bf16", "fp8", "int4") if (stored := weight_format(dtype))]
    assert bits == sorted(bits, reverse=True) and len(bits) == 3


def test_every_width_of_a_gguf_file_is_a_format_of_its_own() -> None:
    formats = [
        weight_format(stored_format("llama.cpp", dtype)) for dtype in ("int8", "int6", "int5", "int4", "int3", "int2")
    ]
    bits = [stored.bits for stored in formats if stored]
    assert len(bits) == 6 and bits == sorted(set(bits), reverse=True)


@pytest.mark.parametrize(
    ("engine", "format_name", "mixture", "in_blocks"),
    [
        ("vllm", "fp8_block", True, True),
        ("vllm", "fp8", True, False),
        ("vllm", "fp8_block", False, False),
        ("vllm", "fp8-w8a16", True, False),
        ("trtllm", "fp8_block", True, False),
    ],
)
def test_mixtures_in_fp8_with_scales_per_block_have_kernels_of_their_own(
    engine: str, format_name: str, mixture: bool, in_blocks: bool
) -> None:
    assert has_block_kernels(engine, format_name, mixture) is in_blocks


def test_an_unknown_format_is_none_and_an_unseen_cache_dtype_is_16_bit() -> None:
    assert weight_format("fp3") is None
    assert (kv_bytes_per_value(None), kv_bytes_per_value("fp8"), kv_bytes_per_value("fp5")) == (2, 1, None)


def test_engines_and_architectures_without_measurements_have_no_prior() -> None:
    assert engine_tag("trtllm") == "" and engine_tag("vllm") == "vllm" and engine_tag("lmdeploy") is None
    assert hardware_tag("Hopper") == "" and hardware_tag("Gaudi3") is None
    assert defaults().max_num_seqs == 256
