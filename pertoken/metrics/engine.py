"""Metrics that engines and gateways expose: the names that adapters map the engines' own names onto."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineMetric:
    """A value that engines expose, in our words."""

    name: str
    label: str
    unit: str
    meaning: str
    shown: bool = True
    """Whether a screen shows it as it is, and not only what is derived from it."""
    stored: str | None = None
    """Of a gauge: its column in samples, which names the scale of the stored integer. None: it is not stored."""
    per_unit: float = 1
    """Stored value of one unit."""

    @property
    def column(self) -> str:
        """Column of a gauge that is stored."""
        assert self.stored is not None
        return self.stored


def _table(*rows: EngineMetric) -> Mapping[str, EngineMetric]:
    return {row.name: row for row in rows}


ENGINE_TOKENS = _table(
    EngineMetric("prompt_tokens", "prompt tokens", "tokens", "tokens of the prompts: cached included, transferred not"),
    EngineMetric("cached_tokens", "cached tokens", "tokens", "prompt tokens taken from the prefix cache"),
    EngineMetric(
        "computed_tokens", "computed tokens", "tokens", "prompt tokens that were computed: prompt minus cached"
    ),
    EngineMetric("generated_tokens", "generated tokens", "tokens", "tokens generated"),
    EngineMetric(
        "requests_finished", "requests ended", "requests", "requests that ended, as far as the engine counts them"
    ),
    EngineMetric(
        "preemptions", "preemptions", "requests", "requests put back to the queue because the KV cache was full"
    ),
)
"""Counters that are columns of `deployment_sample`."""
ENGINE_COUNTERS = _table(
    EngineMetric(
        "transferred_tokens",
        "transferred tokens",
        "tokens",
        "tokens of prompts whose KV cache came from a prefill server, which counts them",
    ),
    EngineMetric(
        "cached_device_tokens", "cached, on the device", "tokens", "of the cached tokens: in the device's memory"
    ),
    EngineMetric(
        "cached_host_tokens", "cached, in host memory", "tokens", "of the cached tokens: in the host's memory"
    ),
    EngineMetric("cached_disk_tokens", "cached, on disk", "tokens", "of the cached tokens: on a disk of the host"),
    EngineMetric(
        "cached_remote_tokens",
        "cached, outside",
        "tokens",
        "of the cached tokens: in a store that the page does not name",
    ),
    EngineMetric(
        "requests_prefilled",
        "requests prefilled",
        "requests",
        "requests prefilled for a decode server, which ends them",
    ),
    EngineMetric("embedding_requests", "embedding requests", "requests", "requests for embeddings that ended"),
    EngineMetric("ranking_requests", "ranking requests", "requests", "requests to rerank or classify texts that ended"),
    EngineMetric("texts", "texts", "texts", "texts that were embedded, ranked or classified"),
    EngineMetric("requests_failed", "requests failed", "requests", "requests refused, aborted or failed"),
    EngineMetric(
        "prefix_queries", "prefix cache lookups", "tokens", "tokens looked up in the prefix cache", shown=False
    ),
    EngineMetric("prefix_hits", "prefix cache hits", "tokens", "tokens found in the prefix cache", shown=False),
    EngineMetric(
        "media_lookups", "images, videos and sounds", "items", "images, videos and sounds of requests, looked up"
    ),
    EngineMetric("media_hits", "media cache hits", "items", "of these, found decoded already", shown=False),
    EngineMetric("spec_drafts", "drafts", "drafts", "speculative drafts made", shown=False),
    EngineMetric("spec_draft_tokens", "drafted tokens", "tokens", "tokens in speculative drafts", shown=False),
    EngineMetric("spec_accepted_tokens", "accepted tokens", "tokens", "drafted tokens that were accepted", shown=False),
    EngineMetric(
        "gflop_per_gpu", "FLOPs of a GPU", "10^9 FLOP", "as the engine estimates, over data-parallel ranks", shown=False
    ),
    EngineMetric(
        "read_mb_per_gpu", "bytes read by a GPU", "10^6 bytes", "from its memory, as the engine estimates", shown=False
    ),
    EngineMetric(
        "write_mb_per_gpu",
        "bytes written by a GPU",
        "10^6 bytes",
        "to its memory, as the engine estimates",
        shown=False,
    ),
    EngineMetric("asleep_ms", "asleep", "ms", "time during which the engine slept, its weights not ready"),
    EngineMetric("loads", "loads", "starts", "starts of its process that the agent watched", shown=False),
    EngineMetric("load_s", "load time", "s", "time from these starts to the first page, at most", shown=False),
)
"""Counters that are rows of `engine_counter_sample`, beside `NAME{reason="..."}` of requests."""
TENANT_TOKENS = _table(
    EngineMetric("tenant_prompt_tokens", "prompt tokens", "tokens", "prompt tokens of a tenant, by a gateway"),
    EngineMetric("tenant_generated_tokens", "generated tokens", "tokens", "tokens generated for a tenant"),
    EngineMetric("tenant_cached_tokens", "cached tokens", "tokens", "of its prompt tokens, those from a prefix cache"),
    EngineMetric("tenant_reasoning_tokens", "reasoning tokens", "tokens", "of its generated tokens, reasoning"),
    EngineMetric("tenant_prompt_audio_tokens", "audio tokens in", "tokens", "of its prompt tokens, those of sound"),
    EngineMetric("tenant_audio_tokens", "audio tokens out", "tokens", "of its generated tokens, those of sound"),
    EngineMetric("tenant_images", "images", "images", "images generated for a tenant"),
    EngineMetric("tenant_video_ms", "video", "ms", "length of videos generated for a tenant"),
)
"""Counters of gateways, which know whom tokens are for. Rows of `engine_counter_sample` too, of the gateway's own
epoch, as `NAME{key="...",model="...",namespace="...",team="...",user="..."}`."""
TENANT_LABELS = ("key", "model", "namespace", "team", "user")
"""Labels that may distinguish tenants, in the order of those names; labels that a gateway does not have are left
out."""
ENGINE_TIMES = _table(
    EngineMetric("engine_ms", "engine time", "ms", "time in which the engine computed"),
    EngineMetric("prefill_ms", "prefill time", "ms", "time of requests in prefill; requests that run together overlap"),
    EngineMetric("decode_ms", "decode time", "ms", "time of requests in decode; requests that run together overlap"),
    EngineMetric(
        "steps",
        "steps",
        "steps",
        "steps of the engine; each gives every running request a token, or more when drafting",
    ),
)
"""Counters from which busy time is computed (`agent.busy`). They are not stored as samples."""
ENGINE_GAUGES = _table(
    EngineMetric(
        "running", "requests running", "requests", "requests in the running batch", stored="running_1e2", per_unit=1e2
    ),
    EngineMetric(
        "waiting", "requests waiting", "requests", "requests in the queue", stored="waiting_1e2", per_unit=1e2
    ),
    EngineMetric(
        "kv_use", "KV cache in use", "ratio", "share of the KV cache in use", stored="kv_use_1e4", per_unit=1e4
    ),
    EngineMetric("awake", "awake", "ratio", "1, or 0 while the engine sleeps"),
    EngineMetric("requests_per_step", "requests per step", "requests", "mean of all steps since the engine started"),
)
STORED_GAUGES = tuple(metric for metric in ENGINE_GAUGES.values() if metric.stored is not None)
"""Gauges that are columns of `deployment_sample` and of its roll-ups."""
HISTOGRAMS = _table(
    EngineMetric("ttft_s", "TTFT", "s", "time to first token"),
    EngineMetric("tpot_s", "TPOT", "s", "time between output tokens, of TGI and TensorRT-LLM a mean over each request"),
    EngineMetric("e2e_s", "request latency", "s", "request latency from arrival to last token"),
    EngineMetric("prompt_len", "prompt length", "tokens", "prompt length per finished request"),
    EngineMetric("generated_len", "output length", "tokens", "generated length per finished request"),
    EngineMetric("queue_s", "queue time", "s", "time a request waited before it ran"),
    EngineMetric("max_tokens", "output limit", "tokens", "max_tokens of a request, where it set one"),
    EngineMetric("step_tokens", "tokens per step", "tokens", "tokens computed and generated in one engine step"),
    EngineMetric("kv_reuse_gap_s", "KV reuse gap", "s", "time between two uses of a block of the KV cache"),
)

PER_REQUEST_TPOT = frozenset({"dynamo-trtllm", "tgi", "trtllm"})
"""Engines whose `tpot_s` is one mean of each request; that of others is of each token, which shows single stalls."""

ENGINE = (ENGINE_TOKENS, ENGINE_COUNTERS, ENGINE_TIMES, ENGINE_GAUGES, HISTOGRAMS)
"""All that adapters map onto."""
