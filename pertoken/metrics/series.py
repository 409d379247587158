"""Evidence series that rules read as `seen.NAME`, and the quotients that some of them are."""

from collections.abc import Mapping
from dataclasses import dataclass

from pertoken.metrics.device import ACTIVITY_REMEDY, DEVICE, READABLE_REMEDY
from pertoken.metrics.engine import HISTOGRAMS


@dataclass(frozen=True, slots=True)
class Quotient:
    """A figure that is derived from counters of an engine: the sum of some, over another or over its busy time."""

    above: tuple[str, ...]
    below: tuple[str, ...] | None = None
    """None: the seconds in which the engine was busy."""
    plus: float = 0
    """Added to the quotient."""

    @property
    def counters(self) -> tuple[str, ...]:
        """All counters that it is of."""
        return *self.above, *(self.below or ())


PREFIX_HIT_RATE = Quotient(("prefix_hits",), ("prefix_queries",))
SPEC_ACCEPTANCE_RATE = Quotient(("spec_accepted_tokens",), ("spec_draft_tokens",))
SPEC_ACCEPTANCE_LENGTH = Quotient(("spec_accepted_tokens",), ("spec_drafts",), plus=1)
"""1 + accepted tokens / drafts, as vLLM and TensorRT-LLM define it: what one target step yields."""
GFLOP_PER_BUSY_S = Quotient(("gflop_per_gpu",))
MB_PER_BUSY_S = Quotient(("read_mb_per_gpu", "write_mb_per_gpu"))
FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")
"""How a request ends, in the words of vLLM and of those that follow it."""
ENDED = tuple(f'requests_finished{{reason="{reason}"}}' for reason in FINISH_REASONS)
"""Counters of requests by how they ended."""
QUOTIENTS: Mapping[str, Quotient] = {
    **{f"ended_by_{reason}": Quotient((ENDED[n],), ENDED) for n, reason in enumerate(FINISH_REASONS)},
    "prefix_hit_rate": PREFIX_HIT_RATE,
    "media_per_request": Quotient(("media_lookups",), ENDED),
    "media_hit_rate": Quotient(("media_hits",), ("media_lookups",)),
    "spec_acceptance_rate": SPEC_ACCEPTANCE_RATE,
    "spec_acceptance_length": SPEC_ACCEPTANCE_LENGTH,
    "load_s": Quotient(("load_s",), ("loads",)),
}
"""Evidence series that are such a quotient and nothing else."""


@dataclass(frozen=True, slots=True)
class SeriesSpec:
    """Meaning and unit of a series, and how to have it measured where it is missing."""

    unit: str
    meaning: str
    remedy: str


_TOKENS = "needs an engine that counts tokens, with its metrics on: `pertoken doctor` shows how"
_GAUGES = "needs an engine that shows its queue, with its metrics on: `pertoken doctor` shows how"
_LATENCY = "needs an engine with latency histograms; llama.cpp and Ollama have none"
_PREFIX = "needs an engine with a prefix cache that counts what it looks up there, and requests"
_MEDIA = "needs vLLM with a model that takes images, and requests"
_DRAFTS = "needs speculative decoding in an engine that counts its drafts, and requests"
_THROTTLED = "needs an NVIDIA GPU that reports why its clocks are slow, and rows of this version: let the agent run"
_ESTIMATES = "needs vLLM or SGLang with --enable-mfu-metrics, on GPUs the catalog knows"
SERIES: Mapping[str, SeriesSpec] = {
    "prompt_tok_s": SeriesSpec("tokens/s", "prompt tokens submitted, cached included", _TOKENS),
    "computed_tok_s": SeriesSpec("tokens/s", "prompt tokens computed (not served from a cache)", _TOKENS),
    "generated_tok_s": SeriesSpec("tokens/s", "tokens generated", _TOKENS),
    "busy_generated_tok_s": SeriesSpec("tokens/s", "tokens generated per second of busy time", _TOKENS),
    "cached_share": SeriesSpec("ratio", "prompt tokens found in the prefix cache", _TOKENS),
    "requests_s": SeriesSpec("requests/s", "requests that ended", "needs an engine that counts requests"),
    "busy": SeriesSpec("ratio", "time in which the engine worked", _TOKENS),
    "running": SeriesSpec("requests", "requests running while busy", _GAUGES),
    "waiting": SeriesSpec("requests", "requests queued", _GAUGES),
    "kv_use": SeriesSpec(
        "ratio", "KV cache in use while busy", "needs an engine that reports it; llama.cpp and TGI do not"
    ),
    "preemptions": SeriesSpec("1/h", "requests preempted for lack of KV cache", "needs vLLM or SGLang"),
    "prefix_hit_rate": SeriesSpec("ratio", "tokens looked up in the prefix cache that were found there", _PREFIX),
    "media_per_request": SeriesSpec("items", "images, videos and sounds per request that ended", _MEDIA),
    "media_hit_rate": SeriesSpec("ratio", "of these, found decoded in the cache of the engine", _MEDIA),
    "spec_acceptance_rate": SeriesSpec("ratio", "drafted tokens that were accepted", _DRAFTS),
    "spec_acceptance_length": SeriesSpec(
        "tokens", "tokens per speculative step, the one certain one included", _DRAFTS
    ),
    "mfu": SeriesSpec("ratio", "FLOPs the engine counts, of its GPUs' dense peak while busy", _ESTIMATES),
    "mbu": SeriesSpec("ratio", "bytes it reads and writes, of its GPUs' peak bandwidth while busy", _ESTIMATES),
    **{
        name: SeriesSpec(HISTOGRAMS[name].unit, HISTOGRAMS[name].meaning, _LATENCY)
        for name in ("prompt_len", "generated_len", "ttft_s", "tpot_s", "e2e_s")
    },
    "itl_s": SeriesSpec(
        "s",
        "time between two output tokens of a request (ITL): its p99 shows stalls that a mean of the request hides",
        "needs vLLM, SGLang, LMDeploy, Dynamo, NIM or Ray, with its metrics on",
    ),
    **{
        name: SeriesSpec(HISTOGRAMS[name].unit, HISTOGRAMS[name].meaning, f"needs {engines}, with its metrics on")
        for name, engines in (
            ("queue_s", "vLLM, SGLang, TensorRT-LLM, TGI or LMDeploy"),
            ("max_tokens", "vLLM or TGI"),
            ("step_tokens", "vLLM or LMDeploy"),
            ("kv_reuse_gap_s", "vLLM with --kv-cache-metrics"),
        )
    },
    **{metric.series: SeriesSpec(metric.unit, metric.meaning, metric.remedy) for metric in DEVICE if metric.series},
    "nvlink_bytes_s": SeriesSpec("bytes/s", "received and sent over NVLink, mean of the devices", ACTIVITY_REMEDY),
    "memory_traffic_bytes_s": SeriesSpec(
        "bytes/s",
        "read from and written to memory by all CPUs of the host",
        "needs a CPU with such a counter (cqm_mbm_total): mount -t resctrl resctrl /sys/fs/resctrl",
    ),
    **{
        f"ended_by_{reason}": SeriesSpec(
            "ratio", meaning, "needs vLLM, TensorRT-LLM or LMDeploy, and requests that ended"
        )
        for reason, meaning in (
            ("stop", "requests that ended by a stop token or sequence, of all that ended"),
            ("length", "requests that ended at a limit of their length, of all that ended"),
            ("abort", "requests that were aborted, of all that ended"),
            ("error", "requests that ended by an error of the engine, of all that ended"),
            ("repetition", "requests that the engine ended because they repeated themselves, of all that ended"),
        )
    },
    "arrival_dispersion": SeriesSpec(
        "ratio",
        "variance over mean of requests ended per minute, hour by hour: 1 of independent arrivals, more of bursts",
        "needs an engine that counts requests, and minutes: hours alone hide bursts",
    ),
    "asleep": SeriesSpec("ratio", "time in which the engine slept", "needs vLLM with --enable-sleep-mode that slept"),
    "load_s": SeriesSpec(
        "s",
        "time from the start of the engine's process to its first page, at most (servers are looked for every 30 s)",
        "needs an engine with a metrics page that was started while the agent ran: restart it once",
    ),
    "throttled": SeriesSpec("ratio", "time in which power, heat or a limit slowed the clocks", _THROTTLED),
    "throttled_power": SeriesSpec("ratio", "time in which a limit of power slowed the clocks", _THROTTLED),
    "throttled_thermal": SeriesSpec("ratio", "time in which heat slowed the clocks", _THROTTLED),
    "energy_w": SeriesSpec(
        "W", "energy drawn over time by the devices, of a deployment its shares of them", READABLE_REMEDY
    ),
    "j_per_token": SeriesSpec(
        "J/token",
        "that energy per token, prompt (cached included) and generated, idle time spread evenly",
        READABLE_REMEDY,
    ),
    "host_memory_free": SeriesSpec("bytes", "memory of the hosts that nothing uses", "let the agent run"),
    "held": SeriesSpec("ratio", "share of observed time some process held the device", READABLE_REMEDY),
    "observed_h": SeriesSpec("h", "hours of the window that were really observed", "let the agent run"),
}
"""Every series a rule may read, by name."""
