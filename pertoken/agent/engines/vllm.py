"""vLLM: its names of today (0.32) and of the releases since 0.8, and what it tells of its configuration.

Series carry `engine` (the data-parallel rank) and `model_name` (the first served name). `prompt_tokens` include
cached ones. Sources: wheels from 0.8.5 to 0.32.0, and pages captured from 0.32.0.
"""

from collections.abc import Mapping, Sequence

from pertoken.agent.engines.adapter import Adapter, Ask, Gauge, Identity, Metric, invocation, pick, positive, text
from pertoken.agent.page import Page
from pertoken.catalog.knobs import read_word

_CACHE_CONFIG = "vllm:cache_config_info"
_CONFIG: Mapping[str, tuple[str, str]] = {
    "tp": ("parallel_config", "tensor_parallel_size"),
    "pp": ("parallel_config", "pipeline_parallel_size"),
    "dp": ("parallel_config", "data_parallel_size"),
    "max_num_seqs": ("scheduler_config", "max_num_seqs"),
    "max_num_batched_tokens": ("scheduler_config", "max_num_batched_tokens"),
    "max_model_len": ("model_config", "max_model_len"),
    "enforce_eager": ("model_config", "enforce_eager"),
    "gpu_memory_utilization": ("cache_config", "gpu_memory_utilization"),
    "enable_prefix_caching": ("cache_config", "enable_prefix_caching"),
}
"""Where `/server_info` keeps a knob. Nothing else of it is read: it holds the environment, secrets included."""


def _identify(ask: Ask, page: Page) -> Identity:
    models = ask("/v1/models")
    config = pick(ask("/server_info?config_format=json"), "vllm_config")
    labels = [dict(labels) for name in ADAPTER.counters[0].names for labels in page.samples.get(name, {})]
    named = next((each["model_name"] for each in labels if "model_name" in each), None)
    knobs = {
        **_from_cache_config(page),
        "max_model_len": positive(pick(models, "data", 0, "max_model_len")),
        **_from_server_info(config),
    }
    return Identity(
        served_model=named or text(pick(models, "data", 0, "id")),
        version=text(pick(ask("/version"), "version")),
        model_path=text(pick(models, "data", 0, "root")),
        knobs={knob: value for knob, value in knobs.items() if value is not None},
    )


def _from_cache_config(page: Page) -> dict[str, object]:
    labels = next((dict(labels) for labels in page.samples.get(_CACHE_CONFIG, {})), {})
    share = labels.get("gpu_memory_utilization", "")
    return {
        "kv_dtype": read_word("vllm", "kv_dtype", labels.get("cache_dtype", "")),
        "gpu_memory_utilization": float(share) if share.replace(".", "", 1).isdecimal() else None,
        "enable_prefix_caching": {"True": True, "False": False}.get(labels.get("enable_prefix_caching", "")),
    }


def _from_server_info(config: object) -> dict[str, object]:
    found = {knob: pick(config, *path) for knob, path in _CONFIG.items()}
    # Quantized weights keep the dtype of their activations beside them, which says nothing of the weights.
    weights = text(pick(config, "model_config", "quantization")) or text(pick(config, "model_config", "dtype"))
    found["weight_dtype"] = read_word("vllm", "weight_dtype", weights or "")
    return {knob: value for knob, value in found.items() if isinstance(value, bool | int | float | str)}


def _recognises(argv: Sequence[str]) -> bool:
    program, arguments = invocation(argv)
    if program in ("vllm", "vllm.entrypoints.cli.main"):
        return arguments[:1] == ("serve",)
    return program in ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")


ADAPTER = Adapter(
    kind="vllm",
    prefix="vllm:",
    owned_by="vllm",
    counters=(
        Metric("prompt_tokens", ("vllm:prompt_tokens_total",)),
        Metric(
            "cached_tokens",
            ("vllm:prompt_tokens_cached_total", "vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
        ),
        Metric("generated_tokens", ("vllm:generation_tokens_total",)),
        Metric("requests_finished", ("vllm:request_success_total",)),
        Metric("preemptions", ("vllm:num_preemptions_total",)),
    ),
    gauges=(
        Gauge("running", ("vllm:num_requests_running",)),
        Gauge("waiting", ("vllm:num_requests_waiting",)),
        Gauge("kv_use", ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"), combine=max),
    ),
    histograms=(
        Metric("ttft_s", ("vllm:time_to_first_token_seconds",)),
        Metric("tpot_s", ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")),
        Metric("e2e_s", ("vllm:e2e_request_latency_seconds",)),
        Metric("prompt_len", ("vllm:request_prompt_tokens",)),
        Metric("generated_len", ("vllm:request_generation_tokens",)),
    ),
    identify=_identify,
    metrics_off="start vllm without --disable-log-stats",
    recognises=_recognises,
    info=(_CACHE_CONFIG,),
    child_title="VLLM::",
)
