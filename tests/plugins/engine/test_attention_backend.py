from typing import Any

import pytest

from pertoken.catalog.knobs import flag_commands, read_argv, read_environment
from pertoken.catalog.market import load_market
from pertoken.plugins.engine.attention_backend import attention_backend
from pertoken.rule import Proposal
from pertoken.state.deployment import Placement
from pertoken.testing import deployment, fleet, regime, run, service
from pertoken.testing.builders import evidence


def ran(count: int = 1, **fields: Any) -> Any:
    accelerator = fields.pop("accelerator", "H100 SXM5")
    seen = evidence(prompt_len=fields.pop("prompt_len", 6000), cached_share=0.25)
    replica = deployment(**{"placement": Placement(accelerator=accelerator), **fields})
    return run(attention_backend, regime(fleet(service("chat", *[replica] * count)), {"chat": seen}))


@pytest.mark.parametrize("present", ["generic", "plain"])
def test_a_setting_that_keeps_an_engine_from_flash_attention_is_undone_on_all_replicas(present: str) -> None:
    (proposed,) = ran(2, attention_backend=present).proposals
    assert proposed.diff.knobs(2) == {"attention_backend": (present, "flash")}
    assert (proposed.risk, proposed.effort) == ("latency", "medium")


def test_the_tokens_that_gain_are_named() -> None:
    chat, seen = service("chat", deployment(attention_backend="plain")), evidence(prompt_len=6000, cached_share=0.25)
    (proposed,) = attention_backend(seen=seen, service=chat, market=load_market())
    assert isinstance(proposed, Proposal) and "4,500 tokens of a prompt" in proposed.against[1]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "engine-chooses"),
        ({"attention_backend": "flash"}, "already-flash"),
        ({"attention_backend": "other"}, "backend-unknown"),
        ({"attention_backend": "plain", "engine": "tgi"}, "engine-decides"),
        ({"attention_backend": "plain", "accelerator": "T4"}, "device-cannot"),
        ({"attention_backend": "plain", "accelerator": "MI300X"}, "vendor-decides"),
        ({"attention_backend": "plain", "accelerator": None}, "device-unknown"),
        ({"attention_backend": "plain", "prompt_len": 300}, "short-prompts"),
    ],
)
def test_it_refuses_where_flash_attention_runs_already_or_cannot(fields: dict[str, Any], code: str) -> None:
    assert ran(**fields).codes == (code,)


@pytest.mark.parametrize("engine", ["llama.cpp", "ollama"])
@pytest.mark.parametrize("accelerator", ["T4", "MI300X", None])
def test_llama_cpp_has_flash_attention_on_every_device(engine: str, accelerator: str | None) -> None:
    assert ran(engine=engine, attention_backend="plain", accelerator=accelerator).proposals


def test_replicas_with_other_kernels_are_refused() -> None:
    mixed = service("chat", deployment(attention_backend="plain"), deployment())
    result = run(attention_backend, regime(fleet(mixed), {"chat": evidence(prompt_len=6000)}))
    assert result.codes == ("replicas-differ",)


@pytest.mark.parametrize(
    ("engine", "argv", "backend"),
    [
        ("vllm", ["vllm", "serve", "m", "--attention-backend", "TORCH_SDPA"], "plain"),
        ("vllm", ["vllm", "serve", "m", "--attention-backend=FLEX_ATTENTION"], "generic"),
        ("vllm", ["vllm", "serve", "m"], None),
        ("sglang", ["sglang", "serve", "--attention-backend", "triton"], "generic"),
        ("sglang", ["sglang", "serve", "--attention-backend", "fa3"], "flash"),
        ("sglang", ["sglang", "serve", "--attention-backend", "triton", "--decode-attention-backend", "fa3"], None),
        ("llama.cpp", ["llama-server", "-fa", "off"], "plain"),
        ("llama.cpp", ["llama-server", "--flash-attn", "on"], "flash"),
        ("llama.cpp", ["llama-server", "--flash-attn", "auto"], None),
    ],
)
def test_kernels_are_read_from_the_command_line(engine: str, argv: list[str], backend: str | None) -> None:
    assert read_argv(engine, argv).get("attention_backend") == backend


@pytest.mark.parametrize(
    ("engine", "variable", "backend"),
    [
        ("vllm", {"VLLM_ATTENTION_BACKEND": "XFORMERS"}, "generic"),
        ("vllm", {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}, "flash"),
        ("vllm", {"VLLM_ATTENTION_BACKEND": "OF_A_PLUGIN"}, None),
        ("ollama", {"OLLAMA_FLASH_ATTENTION": "0"}, "plain"),
        ("ollama", {"OLLAMA_FLASH_ATTENTION": "1"}, "flash"),
    ],
)
def test_kernels_are_read_from_the_environment(engine: str, variable: dict[str, str], backend: str | None) -> None:
    assert read_environment(engine, variable).get("attention_backend") == backend


@pytest.mark.parametrize(
    ("engine", "apply"),
    [
        ("vllm", "set --attention-backend FLASH_ATTN"),
        ("sglang", "set --attention-backend flashinfer"),
        ("llama.cpp", "set --flash-attn on"),
    ],
)
def test_each_engine_has_its_flag(engine: str, apply: str) -> None:
    assert flag_commands(engine, {"attention_backend": (None, "flash")}).apply == (apply,)


def test_kernels_that_no_flag_writes_are_changed_by_hand() -> None:
    (words,) = flag_commands("ollama", {"attention_backend": ("plain", "flash")}).manual
    assert "OLLAMA_FLASH_ATTENTION" in words
