"""Ray Serve LLM: series of vLLM or SGLang as a Ray node's metrics agent shows them, its replicas on one page.

Each model of the node is an engine to us. Which of its processes, and so which devices, belong to which model is not
exposed: several models on one node share its devices equally, and that is an assumption.

Each worker has series of its own (`WorkerId`, `ReplicaId`), so that a replica which starts again counts from 0
beside the one before. They arrive in batches: short windows lag.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from pertoken.agent.engines.adapters import sglang, vllm
from pertoken.agent.engines.adapters.adapter import Adapter, PageOrigin, invocation, renamed


def _recognises(argv: Sequence[str]) -> bool:
    return invocation(argv)[0] == "raylet"


def _names(name: str) -> tuple[str, ...]:
    return f"ray_{name.replace(':', '_')}", f"ray_{name}"


_VLLM, _SGLANG = renamed(vllm.ADAPTER, _names), renamed(sglang.ADAPTER, _names)
ADAPTER: Adapter = replace(
    _VLLM,
    counters=(*_VLLM.counters, *_SGLANG.counters),
    gauges=(*_VLLM.gauges, *_SGLANG.gauges),
    histograms=(*_VLLM.histograms, *_SGLANG.histograms),
    copies=_SGLANG.copies,
    kind="ray",
    tested_on=PageOrigin.DOCUMENTS,
    source="documents and sources of Ray 2.51 (2026-11-21)",
    marks=re.compile(r"^ray_(vllm|sglang)[_:]", re.M),
    metrics_off="serve with Ray 2.51 or newer, or set log_engine_metrics; its series appear with the first request",
    recognises=_recognises,
    owned_by=None,
    shared=True,
    several=True,
)
