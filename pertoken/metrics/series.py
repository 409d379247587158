"""Evidence series that rules read as `seen.NAME`: label, unit, meaning, and how each is computed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pertoken.metrics.device import ACTIVITY_REMEDY, DEVICE, ENGINE_GAUGES, HISTOGRAMS, READABLE_REMEDY, DeviceMetric
from pertoken.units import HOUR_MS


@dataclass(frozen=True, slots=True)
class Rate:
    """Increase of a counter over time, added up over the members."""

    counter: str
    per_ms: float = 1000


@dataclass(frozen=True, slots=True)
class Ratio:
    """Sum of one counter over the sum of another."""

    above: str
    below: str
    scale: float = 1


@dataclass(frozen=True, slots=True)
class Gauge:
    """Mean of a gauge in each bucket, added up over the members or averaged over them."""

    stored: tuple[str, ...]
    """Names of the gauges in roll-ups, as `NAME_sum` over `NAME_n`; several are added."""
    per_unit: float = 1
    """Stored value of one unit."""
    summed: bool = False
    """Whether the values of several members add up; else their mean is taken."""
    while_busy: bool = False
    """Whether it is taken over busy time: divided by the busy share of the buckets with work."""
    highest: float = math.inf
    """Highest possible value."""


@dataclass(frozen=True, slots=True)
class SampleShare:
    """Share of a device's samples that have a property, averaged over the devices."""

    counted: str


@dataclass(frozen=True, slots=True)
class Dispersion:
    """Index of dispersion of a count per minute, hour by hour."""

    counter: str


@dataclass(frozen=True, slots=True)
class Quotient:
    """Figure derived from further counters of an engine: the sum of some, over another or over its busy time."""

    above: tuple[str, ...]
    below: tuple[str, ...] | None = None
    """None: the seconds in which the engine was busy."""
    plus: float = 0
    """Added to the quotient."""


@dataclass(frozen=True, slots=True)
class TimeShare:
    """Share of observed time, from a further counter of an engine in milliseconds."""

    counter: str


@dataclass(frozen=True, slots=True)
class Histogram:
    """Bucket counts of a metric that engines expose as a histogram."""

    metric: str


@dataclass(frozen=True, slots=True)
class Derived:
    """Figure of several parts of a window, such as the energy of devices and the time that an epoch held them."""

    formula: str
    """In words."""


Counted = Quotient | TimeShare
"""Computations that read further counters of an engine."""
Computation = Rate | Ratio | Gauge | SampleShare | Dispersion | Counted | Histogram | Derived


def columns_of(computation: Computation) -> tuple[str, ...]:
    """Return the columns of roll-ups that a computation reads; none of one that is not computed from rows by bucket."""
    match computation:
        case Rate(counter) | Dispersion(counter):
            return counter, "duration_ms"
        case Ratio(above, below):
            return above, below
        case Gauge():
            gauges = (f"{name}_{part}" for name in computation.stored for part in ("sum", "n"))
            return *gauges, "duration_ms", *(("busy_ms", "observed_ms") if computation.while_busy else ())
        case SampleShare(counted):
            return counted, "samples", "duration_ms"
        case Quotient() | TimeShare():
            return "busy_ms", "observed_ms"
        case Histogram() | Derived():
            return ()


def counters_of(counted: Counted) -> tuple[str, ...]:
    """Return the further counters of an engine that a computation reads."""
    return (counted.counter,) if isinstance(counted, TimeShare) else (*counted.above, *(counted.below or ()))


PREFIX_HIT_RATE = Quotient(("prefix_hits",), ("prefix_queries",))
SPEC_ACCEPTANCE_RATE = Quotient(("spec_accepted_tokens",), ("spec_draft_tokens",))
SPEC_ACCEPTANCE_LENGTH = Quotient(("spec_accepted_tokens",), ("spec_drafts",), plus=1)
"""1 + accepted tokens / drafts, as vLLM and TensorRT-LLM define it: tokens of one target step."""
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

Owner = Literal["deployment", "device", "host"]


@dataclass(frozen=True, slots=True)
class SeriesSpec:
    """Label, unit and meaning of a series, how to have it measured where it is missing, and how it is computed."""

    label: str
    """Its one name for people, wherever it is shown."""
    unit: str
    meaning: str
    remedy: str
    computation: Computation
    owner: Owner = "deployment"
    """Owner of the rows that it is computed from."""


_TOKENS = "needs an engine that counts tokens, with its metrics on: `pertoken doctor` shows how"
_GAUGES = "needs an engine that shows its queue, with its metrics on: `pertoken doctor` shows how"
_LATENCY = "needs an engine with latency histograms; llama.cpp and Ollama have none"
_PREFIX = "needs an engine with a prefix cache that counts what it looks up there, and requests"
_MEDIA = "needs vLLM with a model that takes images, and requests"
_DRAFTS = "needs speculative decoding in an engine that counts its drafts, and requests"
_THROTTLED = "needs an NVIDIA GPU that reports why its clocks are slow, and rows of this version: let the agent run"
_ESTIMATES = "needs vLLM or SGLang with --enable-mfu-metrics, on GPUs the catalog knows"


def _tokens(label: str, meaning: str, computation: Computation, unit: str = "tokens/s") -> SeriesSpec:
    return SeriesSpec(label, unit, meaning, _TOKENS, computation)


def _engine_gauge(name: str, *, summed: bool, while_busy: bool = False) -> Gauge:
    metric = ENGINE_GAUGES[name]
    highest = 1.0 if metric.unit == "ratio" else float("inf")
    return Gauge((metric.column,), metric.per_unit, summed, while_busy, highest)


def _quotient(name: str, label: str, meaning: str, remedy: str, unit: str = "ratio") -> SeriesSpec:
    return SeriesSpec(label, unit, meaning, remedy, QUOTIENTS[name])


def _ended(reason: str, label: str, meaning: str) -> SeriesSpec:
    remedy = "needs vLLM, TensorRT-LLM or LMDeploy, and requests that ended"
    return _quotient(f"ended_by_{reason}", label, f"requests that {meaning}, of all that ended", remedy)


def _histogram(name: str, remedy: str) -> SeriesSpec:
    metric = HISTOGRAMS[name]
    return SeriesSpec(metric.label, metric.unit, metric.meaning, remedy, Histogram(name))


def _device(metric: DeviceMetric) -> SeriesSpec:
    gauge = Gauge((metric.stored,), metric.per_unit, metric.summed)
    return SeriesSpec(metric.label, metric.unit, metric.meaning, metric.remedy, gauge, "device")


def _throttled(label: str, meaning: str, counted: str) -> SeriesSpec:
    return SeriesSpec(
        label, "ratio", f"time in which {meaning} slowed the clocks", _THROTTLED, SampleShare(counted), "device"
    )


SERIES: Mapping[str, SeriesSpec] = {
    "prompt_tok_s": _tokens("prompt tokens/s", "prompt tokens submitted, cached included", Rate("prompt_tokens")),
    "computed_tok_s": _tokens(
        "computed prompt tokens/s", "prompt tokens computed (not served from a cache)", Rate("computed_tokens")
    ),
    "generated_tok_s": _tokens("output tokens/s", "tokens generated", Rate("generated_tokens")),
    "busy_generated_tok_s": _tokens(
        "output tokens per busy second",
        "tokens generated per second of busy time",
        Ratio("generated_tokens", "busy_ms", 1000),
    ),
    "cached_share": _tokens(
        "cached share of the prompt",
        "prompt tokens found in the prefix cache",
        Ratio("cached_tokens", "prompt_tokens"),
        "ratio",
    ),
    "requests_s": SeriesSpec(
        "requests/s",
        "requests/s",
        "requests that ended",
        "needs an engine that counts requests",
        Rate("requests_finished"),
    ),
    "busy": _tokens("busy share", "time in which the engine worked", Ratio("busy_ms", "observed_ms"), "ratio"),
    "running": SeriesSpec(
        "requests running while busy",
        "requests",
        "requests running while busy",
        _GAUGES,
        _engine_gauge("running", summed=True, while_busy=True),
    ),
    "waiting": SeriesSpec(
        "requests waiting", "requests", "requests queued", _GAUGES, _engine_gauge("waiting", summed=True)
    ),
    "kv_use": SeriesSpec(
        "KV cache in use while busy",
        "ratio",
        "KV cache in use while busy",
        "needs an engine that reports it; llama.cpp and TGI do not",
        _engine_gauge("kv_use", summed=False, while_busy=True),
    ),
    "preemptions": SeriesSpec(
        "preemptions",
        "1/h",
        "requests preempted for lack of KV cache",
        "needs vLLM or SGLang",
        Rate("preemptions", HOUR_MS),
    ),
    "prefix_hit_rate": _quotient(
        "prefix_hit_rate",
        "prefix cache hit rate",
        "tokens looked up in the prefix cache that were found there",
        _PREFIX,
    ),
    "media_per_request": _quotient(
        "media_per_request",
        "images per request",
        "images, videos and sounds per request that ended",
        _MEDIA,
        "items",
    ),
    "media_hit_rate": _quotient(
        "media_hit_rate", "image cache hit rate", "of these, found decoded in the cache of the engine", _MEDIA
    ),
    "spec_acceptance_rate": _quotient(
        "spec_acceptance_rate", "draft acceptance rate", "drafted tokens that were accepted", _DRAFTS
    ),
    "spec_acceptance_length": _quotient(
        "spec_acceptance_length",
        "draft acceptance length",
        "tokens per speculative step, the one certain one included",
        _DRAFTS,
        "tokens",
    ),
    "mfu": SeriesSpec(
        "share of the peak FLOPs while busy",
        "ratio",
        "FLOPs the engine counts, of its GPUs' dense peak while busy",
        _ESTIMATES,
        GFLOP_PER_BUSY_S,
    ),
    "mbu": SeriesSpec(
        "share of the peak bandwidth while busy",
        "ratio",
        "bytes it reads and writes, of its GPUs' peak bandwidth while busy",
        _ESTIMATES,
        MB_PER_BUSY_S,
    ),
    **{name: _histogram(name, _LATENCY) for name in ("prompt_len", "generated_len", "ttft_s", "tpot_s", "e2e_s")},
    "itl_s": SeriesSpec(
        "ITL",
        "s",
        "time between two output tokens of a request (ITL): its p99 shows stalls that a mean of the request hides",
        "needs vLLM, SGLang, LMDeploy, Dynamo, NIM or Ray, with its metrics on",
        Histogram("tpot_s"),
    ),
    **{
        name: _histogram(name, f"needs {engines}, with its metrics on")
        for name, engines in (
            ("queue_s", "vLLM, SGLang, TensorRT-LLM, TGI or LMDeploy"),
            ("max_tokens", "vLLM or TGI"),
            ("step_tokens", "vLLM or LMDeploy"),
            ("kv_reuse_gap_s", "vLLM with --kv-cache-metrics"),
        )
    },
    **{metric.series: _device(metric) for metric in DEVICE if metric.series},
    "nvlink_bytes_s": SeriesSpec(
        "NVLink traffic",
        "bytes/s",
        "received and sent over NVLink, mean of the devices",
        ACTIVITY_REMEDY,
        Gauge(("nvlink_rx_mib_s", "nvlink_tx_mib_s"), 2**-20),
        "device",
    ),
    "memory_traffic_bytes_s": SeriesSpec(
        "memory traffic",
        "bytes/s",
        "read from and written to memory by all CPUs of the host",
        "needs a CPU with such a counter (cqm_mbm_total): mount -t resctrl resctrl /sys/fs/resctrl",
        Rate("memory_traffic_bytes"),
        "host",
    ),
    **{
        f"ended_by_{reason}": _ended(reason, label, meaning)
        for reason, label, meaning in (
            ("stop", "requests ended by a stop token", "ended by a stop token or sequence"),
            ("length", "requests ended by a limit", "ended at a limit of their length"),
            ("abort", "requests aborted", "were aborted"),
            ("error", "requests ended by an error", "ended by an error of the engine"),
            ("repetition", "requests ended for repetition", "the engine ended because they repeated themselves"),
        )
    },
    "arrival_dispersion": SeriesSpec(
        "burstiness of arrivals",
        "ratio",
        "variance over mean of requests ended per minute, hour by hour: 1 of independent arrivals, more of bursts",
        "needs an engine that counts requests, and minutes: hours alone hide bursts",
        Dispersion("requests_finished"),
    ),
    "asleep": SeriesSpec(
        "time asleep",
        "ratio",
        "time in which the engine slept",
        "needs vLLM with --enable-sleep-mode that slept",
        TimeShare("asleep_ms"),
    ),
    "load_s": _quotient(
        "load_s",
        "load time",
        "time from the start of the engine's process to its first page, at most (servers are looked for every 30 s)",
        "needs an engine with a metrics page that was started while the agent ran: restart it once",
        "s",
    ),
    "throttled": _throttled("time throttled", "power, heat or a limit", "throttled_n"),
    "throttled_power": _throttled("time throttled by power", "a limit of power", "throttled_power_samples"),
    "throttled_thermal": _throttled("time throttled by heat", "heat", "throttled_thermal_samples"),
    "energy_w": SeriesSpec(
        "power, by energy",
        "W",
        "energy drawn over time by the devices, of a deployment its shares of them",
        READABLE_REMEDY,
        Derived("energy over time, times the share of time that a deployment held each device"),
        "device",
    ),
    "j_per_token": SeriesSpec(
        "energy per token",
        "J/token",
        "that energy per token, prompt (cached included) and generated, idle time spread evenly",
        READABLE_REMEDY,
        Derived("energy of the buckets over their tokens"),
    ),
    "host_memory_free": SeriesSpec(
        "free memory of the hosts",
        "bytes",
        "memory of the hosts that nothing uses",
        "let the agent run",
        Derived("memory of each host less what is in use"),
        "host",
    ),
    "host_memory_used": SeriesSpec(
        "used memory of the hosts",
        "bytes",
        "memory of the hosts that programs use",
        "let the agent run",
        Derived("memory in use, summed over the hosts"),
        "host",
    ),
    "host_cpus_used": SeriesSpec(
        "busy CPUs of the hosts",
        "CPUs",
        "CPUs of the hosts that are busy",
        "let the agent run",
        Derived("busy share of the CPUs times their number, summed over the hosts"),
        "host",
    ),
    "held": SeriesSpec(
        "share of time held by a process",
        "ratio",
        "share of observed time some process held the device",
        READABLE_REMEDY,
        Derived("held time over observed time"),
        "device",
    ),
    "observed_h": SeriesSpec(
        "time observed",
        "h",
        "hours of the window that were really observed",
        "let the agent run",
        Derived("observed time of the buckets"),
    ),
    "stuck_h": SeriesSpec(
        "time stuck",
        "h",
        "hours up to now in which it had requests and no token; 0 under five minutes",
        "let the agent run",
        Derived("observed time since the last minute with a token or without a request"),
    ),
}
"""Every series a rule may read, by name."""
