"""Weight formats by engine and architecture."""

import tomllib
from datetime import date
from importlib.resources import files

import pytest

from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.catalog.engine_lines import not_run, runs
from pertoken.catalog.knobs import like
from pertoken.catalog.market import load_market
from pertoken.state.deployment import WEIGHT_BYTES

ROWS = tomllib.loads(files("pertoken.catalog").joinpath("engine_formats.toml").read_text())["runs"]


def test_every_row_has_a_source_and_a_date_and_names_architectures_and_dtypes_of_the_catalog() -> None:
    architectures = {device.arch for device in load_market().accelerators} | {"Apple", "CPU", "x86"}
    for row in ROWS:
        assert row["source"] and isinstance(row["as_of"], date)
        assert set(row["architectures"]) <= architectures and set(row["formats"]) <= set(WEIGHT_BYTES)


def test_every_engine_that_serves_and_every_architecture_has_a_row() -> None:
    engines = {engine for row in ROWS for engine in row["engines"]}
    assert {kind for kind in ADAPTERS if kind != "dynamo-frontend" and like(kind) not in engines} == set()
    listed = {arch for row in ROWS for arch in row["architectures"]}
    assert {device.arch.removesuffix("+Grace") for device in load_market().accelerators} <= listed


@pytest.mark.parametrize(
    ("engine", "dtype", "arch"),
    [
        ("vllm", "int4", "Volta"),
        ("vllm", "fp8", "Gaudi3"),
        ("vllm", "fp16", "Volta"),
        ("vllm", "bf16", "Turing"),
        ("vllm", "int4", "CDNA3"),
        ("vllm", "int8", "Blackwell"),
        ("vllm", "int4", "Gaudi3"),
        ("trtllm", "fp8", "Ampere"),
        ("trtllm", "fp4", "Hopper"),
        ("sglang", "fp4", "Hopper"),
        ("tgi", "bf16", "Turing"),
        ("an-engine-of-our-own", "bf16", "Hopper"),
    ],
)
def test_a_combination_without_a_source_is_not_run(engine: str, dtype: str, arch: str) -> None:
    reason = not_run(engine, dtype, arch)
    assert not runs(engine, dtype, arch) and reason is not None
    assert engine in reason and dtype in reason and arch in reason


@pytest.mark.parametrize(
    ("engine", "dtype", "arch"),
    [
        ("vllm", "fp8", "Hopper+Grace"),
        ("dynamo-vllm", "int4", "Ampere"),
        ("nim", "fp8", "Ada"),
        ("lmdeploy", "int4", "Volta"),
        ("llama.cpp", "int5", "Volta"),
        ("ollama", "int4", "CPU"),
        ("trtllm", "fp4", "Blackwell"),
        ("tei", "fp16", "Turing"),
    ],
)
def test_a_listed_combination_runs_also_inside_another_engine(engine: str, dtype: str, arch: str) -> None:
    assert runs(engine, dtype, arch) and not_run(engine, dtype, arch) is None


def test_a_dtype_or_a_device_that_is_unknown_is_not_refused_for_its_format() -> None:
    assert not_run("vllm", None, "Volta") is None and not_run("vllm", "int4", None) is None
    assert load_market().not_run("vllm", "int4", None) is None
    assert load_market().not_run("vllm", "int4", "V100 SXM2 16GB") is not None
