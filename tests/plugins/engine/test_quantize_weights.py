from dataclasses import replace
from typing import Any

import pytest

from pertoken.plugins.engine.quantize_weights import quantize_weights
from pertoken.rule import FEWEST, Placement, Skip
from tests.plugins.proposals import chat, proposals, refusal
from tests.savings.fleets import low_batch


def tried(count: int = 1, running: float = 2, **fields: Any) -> set[tuple[str, int]]:
    yielded = proposals(quantize_weights, chat(count, **fields), low_batch(running=running))
    return {(service.deployments[0].weight_dtype, service.deployments[0].tp) for service in yielded}


def test_a_16_bit_model_on_an_h100_may_go_to_fp8_and_to_fewer_devices() -> None:
    assert tried() == {("fp8", 2), ("fp8", 1), ("int4", 2), ("int4", 1)}


def test_several_replicas_may_also_become_fewer() -> None:
    yielded = proposals(quantize_weights, chat(4))
    assert {service.replicas for service in yielded} == {None, FEWEST}
    assert all(len({deployment.weight_dtype for deployment in service.deployments}) == 1 for service in yielded)
    assert {proposal.replicas for proposal in proposals(quantize_weights, chat(1))} == {None}


def test_under_load_four_bit_weights_are_left_out() -> None:
    assert tried(running=60) == {("fp8", 2), ("fp8", 1)}
    assert ("int4", 2) in tried(count=4, running=60)


def test_an_a100_gets_int8_since_it_has_no_fp8() -> None:
    a100 = Placement(accelerator="A100 80GB SXM4")
    assert tried(running=60, placement=a100) == {("int8", 2), ("int8", 1)}


def test_a_blackwell_may_go_to_four_bit_floats_and_never_to_its_slow_int8() -> None:
    assert tried(running=60, placement=Placement(accelerator="B300 SXM"), tp=1) == {("fp8", 1), ("fp4", 1)}


def test_llama_cpp_on_cpus_gets_the_formats_of_its_files_without_a_known_device() -> None:
    on_cpus = chat(engine="llama.cpp", weight_dtype="fp16", placement=Placement(), tp=None, pp=None, dp=None)
    assert [proposal.deployments[0].weight_dtype for proposal in proposals(quantize_weights, on_cpus)] == [
        "int8",
        "int4",
    ]


def test_llama_cpp_gets_the_formats_of_its_files() -> None:
    assert {dtype for dtype, _ in tried(engine="llama.cpp")} == {"int8", "int4"}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"weight_dtype": "fp8"}, "already-quantized"),
        ({"weight_dtype": None}, "dtype-unknown"),
        ({"placement": Placement()}, "device-unknown"),
    ],
)
def test_it_refuses_quantized_and_unknown_weights(fields: dict[str, Any], code: str) -> None:
    assert refusal(quantize_weights, chat(2, **fields))[0] == code


def test_it_refuses_hardware_without_eight_bit_products_under_load() -> None:
    v100 = chat(placement=Placement(accelerator="V100 SXM2 32GB"))
    assert refusal(quantize_weights, v100, low_batch(running=60))[0] == "no-format"


def test_it_refuses_a_format_that_no_source_lists_for_its_engine_and_device() -> None:
    for device, engine in (("V100 SXM2 32GB", "vllm"), ("MI210", "vllm")):
        seen = proposals(quantize_weights, chat(placement=Placement(accelerator=device), engine=engine, tp=1))
        dtypes = {state.deployments[0].weight_dtype for state in seen if not isinstance(state, Skip)}
        assert "int4" not in dtypes and "format-not-run" in {state.code for state in seen if isinstance(state, Skip)}
    assert ("fp8", 2) not in tried(engine="trtllm", placement=Placement(accelerator="A100 80GB SXM4"))


def test_it_refuses_replicas_that_differ() -> None:
    fleet = chat(2)
    first, second = fleet.services[0].deployments
    mixed = replace(fleet.services[0], deployments=(first, second.but(weight_dtype="fp8")))
    assert refusal(quantize_weights, replace(fleet, services=(mixed,)))[0] == "replicas-differ"
