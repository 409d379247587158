"""The tables of engine metrics, compared with the schema and the adapters."""

import re

from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.metrics import ENGINE_TOKENS, PER_REQUEST_TPOT
from pertoken.store.schema import telemetry as t


def test_each_stored_metric_has_its_column() -> None:
    columns = set(t.deployment_sample.c.keys())
    assert set(ENGINE_TOKENS) <= columns


def test_engines_with_tpot_per_request_are_those_that_measure_no_single_token() -> None:
    names = {
        kind: metric.engine_names[0]
        for kind, adapter in ADAPTERS.items()
        for metric in adapter.histograms
        if metric.name == "tpot_s"
    }
    # vLLM's time per output token was observed for each token, and became its inter-token latency.
    of_each_token = re.compile("inter_token|iter_token|^vllm:time_per_output_token")
    assert {kind for kind, name in names.items() if not of_each_token.search(name)} == PER_REQUEST_TPOT
