import os
from dataclasses import replace

import pytest

from pertoken.agent.doctor import of_device, of_engine, of_environment
from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.agent.probes import amd, cpu
from pertoken.agent.probes.nvidia.nvml import DENIED, NO_ENTRY
from pertoken.agent.readings import Endpoint, Unavailable
from tests.agent.values import engine, gpu


def findings_of(kind: str) -> list[tuple[bool, str, str | None]]:
    no_tokens = ADAPTERS[kind].no_tokens
    reading = engine(5, endpoint=Endpoint(kind, "http://127.0.0.1:8000", "setting"))
    if no_tokens:
        reading = replace(reading, counters={}, unavailable=(no_tokens,))
    return [(finding.ok, finding.text, finding.remedy) for finding in of_engine(reading)]


def test_an_adapter_untested_against_its_engine_is_reported() -> None:
    ((ok, text, _),) = findings_of("sglang")
    assert ok
    assert "untested against a live engine" in text
    ((_, text, _),) = findings_of("vllm")
    assert "untested" not in text


def test_counters_that_jump_when_a_request_finishes_are_named() -> None:
    ((_, text, _),) = findings_of("llama.cpp")
    assert text.endswith("counted when a request finishes: generated_tokens")


def test_an_engine_without_tokens_is_a_finding_with_what_would_count_them() -> None:
    (ok, _, _), (counts, text, remedy) = findings_of("ollama")
    assert (ok, counts) == (True, False)
    assert "counts no tokens" in text
    assert remedy and "llama-server --metrics" in remedy


def test_a_device_that_does_not_answer_is_reported_with_the_time_since_its_last_answer() -> None:
    (finding,) = of_device(gpu(0)._replace(lost="the GPU fell off the bus", silent_s=90))
    assert (
        not finding.ok and "fell off the bus; it last answered 1.5m ago" in finding.text
    ) or "90s ago" in finding.text


def test_who_holds_a_device_is_named() -> None:
    _, held = of_device(gpu(0, os.getpid()))
    assert held.ok and f"(pid {os.getpid()})" in held.text and held.text.startswith("held by py")
    (_, hidden) = of_device(
        gpu(0)._replace(processes=None, unavailable=(Unavailable("processes", "denied", "hidden", "hostPID: true"),))
    )
    assert (hidden.ok, hidden.remedy) == (False, "hostPID: true")


@pytest.mark.parametrize(
    ("missing", "right"),
    [
        (DENIED.missing("power_mw"), "root"),
        (NO_ENTRY.missing("nvidia"), "/dev/nvidia"),
        (cpu._ENERGY_DENIED, "CAP_DAC_READ_SEARCH"),
        (cpu._TRAFFIC_DENIED, "CAP_DAC_READ_SEARCH"),
        (Unavailable("processes", *amd._STATUS[10]), "groups render and video"),
    ],
)
def test_a_missing_right_is_named_with_the_metric_it_would_give(missing: Unavailable, right: str) -> None:
    (_, finding) = of_device(gpu(0)._replace(processes=None, unavailable=(missing,)))
    assert not finding.ok
    assert finding.text == f"{missing.metric}: {missing.reason}"
    assert finding.remedy and right in finding.remedy


def test_an_environment_shared_with_torch_or_vllm_is_named_with_the_way_out() -> None:
    both = {"amdsmi": "7.0.2", "torch": "2.13.0+rocm10.0", "vllm": "0.32.0"}
    (finding,) = of_environment(both.get)
    assert not finding.ok and "torch 2.13.0+rocm10.0 and vllm 0.32.0" in finding.text
    assert "environment of its own" in (finding.remedy or "")
    assert of_environment({"amdsmi": "7.0.2"}.get) == []
    assert of_environment({"torch": "2.13.0"}.get) == [], "without amdsmi there is nothing to import"
