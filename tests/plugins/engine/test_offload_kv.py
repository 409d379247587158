from typing import Any

import pytest

from pertoken.plugins.engine.offload_kv import offload_kv
from pertoken.testing import Result, deployment, evidence, fleet, regime, run, series, service

GIB = 2**30
SEEN: dict[str, Any] = {
    "busy": 0.9,
    "computed_tok_s": 20_000.0,
    "generated_tok_s": 200.0,
    "running": 20.0,
    "prompt_len": 7_000.0,
    "generated_len": 40.0,
    "kv_use": 0.4,
    "kv_reuse_gap_s": series(60, p95=300, max=900),
    "host_memory_free": 400.0 * GIB,
}
KNOBS: dict[str, Any] = {"enable_prefix_caching": True, "max_model_len": 32_768}


def ran(seen: dict[str, Any] | None = None, fields: dict[str, Any] | None = None, **knobs: Any) -> Result:
    made = service("chat", *[deployment(**{**KNOBS, **knobs})] * 2, **(fields or {}))
    known = {name: value for name, value in {**SEEN, **(seen or {})}.items() if value is not None}
    return run(offload_kv, regime(fleet(made), {"chat": evidence(**known)}))


def test_half_of_the_free_memory_of_each_host_is_given_to_it() -> None:
    (proposed,) = ran().proposals
    assert proposed.diff.knobs(1) == {"kv_offload_bytes": (None, 200 * GIB)}
    assert (proposed.risk, proposed.effort) == ("latency", "medium")


@pytest.mark.parametrize(
    ("seen", "knobs", "code"),
    [
        ({"busy": 0.01}, {}, "hardly-busy"),
        ({}, {"enable_prefix_caching": False}, "prefix-cache-off"),
        ({}, {"enable_prefix_caching": None}, "prefix-cache-off"),
        ({}, {"engine": "tgi"}, "engine-cannot"),
        ({}, {"kv_offload_bytes": 64 * GIB}, "offloads-already"),
        ({"generated_tok_s": 15_000.0}, {}, "answers-dominate"),
        ({"kv_reuse_gap_s": 2.0}, {}, "kept-long-enough"),
        ({"host_memory_free": 20.0 * GIB}, {}, "host-memory-short"),
    ],
)
def test_it_refuses_where_nothing_would_be_found_or_kept(
    seen: dict[str, Any], knobs: dict[str, Any], code: str
) -> None:
    assert ran(seen, **knobs).codes == (code,)


def test_tenants_share_no_cache_and_small_caches_stay() -> None:
    assert ran(fields={"isolation": "tenant"}).codes == ("isolated",)
    assert ran(served="DeepSeek-R1", tp=8).codes == ("small-cache",)


def test_without_the_reuse_of_blocks_it_is_blocked() -> None:
    assert ran({"kv_reuse_gap_s": None}).blocked == ("kv_reuse_gap_s",)
