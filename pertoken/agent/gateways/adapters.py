"""Tables of gateways: each maps the names and labels of one gateway's tenant metrics onto ours.

An engine's page carries no identity, so these are the only source of a tenant's tokens.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pertoken.agent.engines.adapters.adapter import MILLISECOND, PROCESS_START, Counter, PageOrigin


@dataclass(frozen=True, slots=True)
class GatewayAdapter:
    """One gateway, as a table."""

    kind: str
    tested_on: PageOrigin
    """What the table was tested on."""
    source: str
    """Where its names come from, and as of when."""
    marks: re.Pattern[str]
    """What its metrics page has and no other gateway's, also before it has counted anything: searched in all of it."""
    paths: tuple[str, ...]
    """Paths of its metrics page, the usual one first."""
    counters: tuple[Counter, ...]
    """Onto `metrics.TENANT_TOKENS`; of a histogram the name of its sum."""
    labels: Mapping[str, tuple[str, ...]]
    """By name in `metrics.TENANT_LABELS`: labels that hold it, the first with a value is taken."""

    @property
    def wanted(self) -> frozenset[str]:
        """Names of all series read from a page."""
        return frozenset({name for counter in self.counters for name in counter.engine_names} | {PROCESS_START})


LITELLM = GatewayAdapter(
    kind="litellm",
    tested_on=PageOrigin.LIVE,
    source="litellm 1.106.2 with the callback `prometheus`; its page captured (2026-11-22)",
    marks=re.compile(r"\blitellm_\w*tokens_metric"),
    # Without the slash it redirects.
    paths=("/metrics/",),
    counters=(
        Counter("tenant_prompt_tokens", ("litellm_input_tokens_metric_total", "litellm_input_tokens_metric")),
        Counter("tenant_generated_tokens", ("litellm_output_tokens_metric_total", "litellm_output_tokens_metric")),
        Counter("tenant_cached_tokens", ("litellm_input_cached_tokens_metric_total",)),
        Counter("tenant_reasoning_tokens", ("litellm_output_reasoning_tokens_metric_total",)),
        Counter("tenant_prompt_audio_tokens", ("litellm_input_audio_tokens_metric_total",)),
        Counter("tenant_audio_tokens", ("litellm_output_audio_tokens_metric_total",)),
        Counter("tenant_images", ("litellm_images_generated_metric_total",)),
        Counter("tenant_video_ms", ("litellm_video_duration_seconds_metric_total",), unit=MILLISECOND),
    ),
    labels={
        "model": ("model", "litellm_model_name", "requested_model"),
        "team": ("team_alias", "team"),
        "key": ("api_key_alias", "hashed_api_key"),
        "user": ("end_user",),
    },
)
SGL_ROUTER = GatewayAdapter(
    kind="sgl-router",
    tested_on=PageOrigin.DOCUMENTS,
    source="SMG (sgl-model-gateway) reference of metrics (2026-11): tokens of the gRPC router alone, by model",
    marks=re.compile(r"\bsmg_router_"),
    paths=("/metrics",),
    counters=(
        Counter("tenant_prompt_tokens", ("smg_router_tokens_total",), where=(("token_type", "input"),)),
        Counter("tenant_generated_tokens", ("smg_router_tokens_total",), where=(("token_type", "output"),)),
    ),
    labels={"model": ("model",), "team": ("tenant", "team"), "key": ("api_key_alias",), "namespace": ("namespace",)},
)
LLM_D = GatewayAdapter(
    kind="llm-d",
    tested_on=PageOrigin.DOCUMENTS,
    source="llm-d-router's endpoint picker, names of the Gateway API Inference Extension before it (2026-11)",
    marks=re.compile(r"\b(llm_d_router_epp_|inference_objective_|inference_model_)"),
    paths=("/metrics",),
    counters=(
        Counter(
            "tenant_prompt_tokens",
            (
                "llm_d_router_epp_input_tokens_sum",
                "inference_objective_input_tokens_sum",
                "inference_model_input_tokens_sum",
            ),
        ),
        Counter(
            "tenant_generated_tokens",
            (
                "llm_d_router_epp_output_tokens_sum",
                "inference_objective_output_tokens_sum",
                "inference_model_output_tokens_sum",
            ),
        ),
        Counter("tenant_cached_tokens", ("inference_objective_prompt_cached_tokens_sum",)),
    ),
    # Each team's objective has a model name of its own that leads to a served one.
    labels={
        "model": ("target_model_name", "model_name"),
        "key": ("fairness_id", "model_name"),
        "namespace": ("namespace",),
    },
)
ADAPTERS: Mapping[str, GatewayAdapter] = {adapter.kind: adapter for adapter in (LITELLM, SGL_ROUTER, LLM_D)}
"""All gateways that can be read, by kind."""
