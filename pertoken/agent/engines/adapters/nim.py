"""NVIDIA NIM for LLMs: vLLM's series at `/v1/metrics`, without their prefix in 1.x, as they are in 2.x.

Environment variables configure it as flags do vLLM. It may start vLLM's own server inside: both are one engine.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from pertoken.agent.engines.adapters import vllm
from pertoken.agent.engines.adapters.adapter import Adapter, Counter, PageOrigin, invocation, renamed


def _recognises(argv: Sequence[str]) -> bool:
    program, _ = invocation(argv)
    return program == "nim-serve" or program.startswith("vllm_nvext.")


def _with_reasons(counter: Counter) -> Counter:
    """Return a counter with the name under which 1.x has the reasons of finished requests."""
    if counter.name != "requests_finished":
        return counter
    return replace(
        counter, engine_names=("vllm:request_success_total", "request_finish_total", "request_success_total")
    )


_VLLM = renamed(vllm.ADAPTER, lambda name: (name, name.removeprefix("vllm:")))
ADAPTER: Adapter = replace(
    _VLLM,
    kind="nim",
    tested_on=PageOrigin.DOCUMENTS,
    source="documents of NIM 1.x and 2.x (2026-11-21)",
    marks=re.compile(r"^(vllm:|num_request_max|prompt_tokens_total|request_finish_total)", re.M),
    metrics_off="look at the metrics page that the documents of this NIM name: not every model's container has one",
    recognises=_recognises,
    metrics_path="/v1/metrics",
    counters=(
        *(_with_reasons(counter) for counter in _VLLM.counters),
        Counter("requests_failed", ("request_failure_total",)),
    ),
    owned_by=None,
)
