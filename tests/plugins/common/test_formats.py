"""Formats of weights and of the KV cache by device and engine."""

import pytest

from pertoken.plugins.common import smaller_formats, stores_kv_in_fp8
from tests.deployments import MARKET


@pytest.mark.parametrize(
    ("device", "engine", "few", "formats"),
    [
        ("H100 SXM5", "vllm", False, ["fp8"]),
        ("H100 SXM5", "vllm", True, ["fp8", "int4"]),
        ("A100 80GB SXM4", "vllm", False, ["int8"]),
        ("B200 SXM", "sglang", False, ["fp8", "fp4"]),
        ("H100 SXM5", "llama.cpp", False, ["int8", "int4"]),
    ],
)
def test_a_device_gains_by_the_formats_it_computes_in_and_by_four_bits_for_few_requests(
    device: str, engine: str, few: bool, formats: list[str]
) -> None:
    accelerator = MARKET.accelerator(device)
    assert accelerator is not None
    assert smaller_formats(engine, accelerator, few=few) == formats


@pytest.mark.parametrize(
    ("device", "engine", "stores"),
    [
        ("H100 SXM5", "vllm", True),
        ("MI300X", "vllm", True),
        ("MI300X", "tgi", False),
        ("A100 80GB SXM4", "vllm", False),
        ("H100 SXM5", "llama.cpp", False),
    ],
)
def test_an_fp8_cache_needs_an_engine_with_the_flag_and_a_device_that_computes_in_fp8(
    device: str, engine: str, stores: bool
) -> None:
    accelerator = MARKET.accelerator(device)
    assert accelerator is not None
    assert stores_kv_in_fp8(engine, accelerator) is stores
