"""Metrics that probes read of a device, with their columns, plausible ranges and roll-ups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pertoken.units import RATIO


class RollUp(Enum):
    """Ways in which roll-ups keep the values of ticks."""

    GAUGE = "sum and number of samples"
    COUNTER = "sum of what a counter rose by"
    NOTHING = "nothing: the value is kept as long as ticks are"


@dataclass(frozen=True, slots=True)
class Plausible:
    """The range in which a value is believed, both ends included, in the unit of the reading; outside it is unknown."""

    low: int
    high: int
    unit: str
    source: str
    """Why these limits."""
    limited_by: str | None = None
    """Another value of the same reading that this one cannot exceed..."""
    times: int = 1
    """...this many times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMetric:
    """A value of a device: its reading, storage and roll-up."""

    stored: str
    """Column of `device_sample`, which names the scale of the stored integer."""
    label: str
    unit: str
    """In which people and rules see it."""
    per_unit: float = 1
    """Stored value of one unit."""
    plausible: Plausible
    roll_up: RollUp = RollUp.GAUGE
    read: str | None = None
    """Name of the value in a reading where it is not `stored`: of a counter, the absolute count."""
    series: str | None = None
    """Evidence series that it is, without scale; of a gauge only."""
    meaning: str = ""
    """Of that series."""
    summed: bool = False
    """Whether the values of several devices add up; else their mean is taken."""
    remedy: str = ""
    """How to have it measured where it is missing."""
    heading: str | None = None
    """Of a share that tables and the plot of activity show: its short label there."""
    since: str | None = None
    """Telemetry revision that added its columns, such as `0010`; they come last then. None: the first one."""

    @property
    def reading(self) -> str:
        """Name of the value in a reading."""
        return self.read or self.stored


MAX_MEMORY_BYTES = 2**50
MEMORY_SOURCE = "1 PiB: sixteen times the largest host; an hour of such values at 1 s still adds up in 64 bits"
MAX_POWER_MW = 10_000_000
"""10 kW: four times the largest module that is sold (GB200: 2.7 kW)."""
POWER_LIMITS = 3
"""Times the power limit that a power, or energy over its time, is believed at most: spikes reach about twice."""
POWER_SOURCE = "10 kW: four times the largest module that is sold (GB200: 2.7 kW)"
_POWER = Plausible(0, MAX_POWER_MW, "mW", POWER_SOURCE, "power_limit_mw", POWER_LIMITS)
_HUNDREDTHS = "hundredths of a percent"
_OF_TIME = Plausible(0, RATIO, _HUNDREDTHS, "a share of time is between 0 and 100 %")
_OF_COUNTERS = Plausible(0, 10_100, _HUNDREDTHS, "101 %: two hardware counters that are not read at one instant")
_LINK = Plausible(0, 10**7, "MiB/s", "about 10 TB/s: ten times NVLink 5 in one direction")
_CLOCK = "three times the fastest that is sold"
_REASONS = "NVML defines 9 bits (nvml.h 12.9); 16 leave room for more"
_ERRORS = Plausible(0, 10**9, "errors", "a billion: no memory with more errors serves")
READABLE_REMEDY = "needs a readable accelerator: `pertoken doctor` names the missing driver or right"
ACTIVITY_REMEDY = "needs an NVIDIA GPU of Hopper or newer (GPM), not shared by virtual machines"


def _activity(stored: str, label: str, series: str, meaning: str, heading: str | None = None) -> DeviceMetric:
    return DeviceMetric(
        stored=stored,
        label=label,
        unit="ratio",
        per_unit=1e4,
        plausible=_OF_COUNTERS,
        series=series,
        meaning=meaning,
        remedy=ACTIVITY_REMEDY,
        heading=heading,
    )


def _of_ticks(stored: str, label: str, unit: str, per_unit: float, plausible: Plausible) -> DeviceMetric:
    return DeviceMetric(
        stored=stored, label=label, unit=unit, per_unit=per_unit, plausible=plausible, roll_up=RollUp.NOTHING
    )


DEVICE = (
    DeviceMetric(
        stored="util_1e4",
        label="device utilization",
        unit="ratio",
        per_unit=1e4,
        plausible=_OF_TIME,
        series="device_util",
        heading="util",
        meaning="time the driver saw a kernel running (not how full it was)",
        remedy=READABLE_REMEDY,
    ),
    DeviceMetric(
        stored="memory_used_bytes",
        label="device memory in use",
        unit="bytes",
        plausible=Plausible(0, MAX_MEMORY_BYTES, "bytes", MEMORY_SOURCE, "memory_bytes"),
        series="device_memory",
        meaning="device memory in use, all devices together",
        summed=True,
        remedy=READABLE_REMEDY,
    ),
    DeviceMetric(
        stored="power_mw",
        label="power",
        unit="W",
        per_unit=1e3,
        plausible=_POWER,
        series="power_w",
        meaning="power drawn by the devices together",
        summed=True,
        remedy=READABLE_REMEDY,
    ),
    _of_ticks("power_instant_mw", "instant power", "W", 1e3, _POWER),
    _of_ticks("power_module_mw", "module power", "W", 1e3, Plausible(0, MAX_POWER_MW, "mW", POWER_SOURCE)),
    _of_ticks("power_memory_mw", "memory power", "W", 1e3, _POWER),
    DeviceMetric(
        stored="energy_counter_mj",
        read="energy_mj",
        label="energy",
        unit="J",
        per_unit=1e3,
        plausible=Plausible(0, 2**53, "mJ", "28 years at 10 kW"),
        roll_up=RollUp.COUNTER,
    ),
    DeviceMetric(
        stored="sm_clock_mhz",
        label="SM clock",
        unit="MHz",
        plausible=Plausible(0, 10_000, "MHz", _CLOCK),
        series="sm_clock_mhz",
        meaning="clock of the SMs",
        remedy=READABLE_REMEDY,
    ),
    _of_ticks("memory_clock_mhz", "memory clock", "MHz", 1, Plausible(0, 50_000, "MHz", _CLOCK)),
    DeviceMetric(
        stored="temperature_c",
        label="temperature",
        unit="°C",
        plausible=Plausible(0, 150, "°C", "silicon is shut down below 130 °C"),
        series="temperature_c",
        meaning="temperature of the devices",
        remedy=READABLE_REMEDY,
    ),
    _of_ticks("throttle_reasons", "throttle reasons", "", 1, Plausible(0, 2**16 - 1, "", _REASONS)),
    _activity("sm_active_1e4", "SM active", "sm_active", "SMs that were busy, of all the devices' SMs", "SM"),
    _activity("sm_occupancy_1e4", "SM occupancy", "sm_occupancy", "warps active in the SMs, of those they could hold"),
    _activity("tensor_active_1e4", "tensor cores active", "tensor_active", "time the tensor cores were computing"),
    _activity(
        "dram_active_1e4", "memory bandwidth in use", "dram_active", "memory bandwidth used, of what there is", "mem BW"
    ),
    DeviceMetric(stored="nvlink_rx_mib_s", label="NVLink received", unit="bytes/s", per_unit=2**-20, plausible=_LINK),
    DeviceMetric(stored="nvlink_tx_mib_s", label="NVLink sent", unit="bytes/s", per_unit=2**-20, plausible=_LINK),
    DeviceMetric(
        stored="ecc_corrected",
        label="corrected memory errors",
        unit="errors",
        plausible=_ERRORS,
        roll_up=RollUp.COUNTER,
    ),
    DeviceMetric(
        stored="ecc_uncorrected",
        label="uncorrected memory errors",
        unit="errors",
        plausible=_ERRORS,
        roll_up=RollUp.COUNTER,
    ),
)
"""In the order of their columns. Beside the increase of an energy counter stands the energy by power, its check."""

LATER = tuple(sorted((metric for metric in DEVICE if metric.since is not None), key=lambda metric: metric.since or ""))
"""Metrics with columns of a later revision, in the order of revisions."""
DEVICE_COLUMNS = tuple(
    name
    for metric in (*(metric for metric in DEVICE if metric.since is None), *LATER)
    for name in (metric.stored, *(("energy_integral_mj",) if metric.stored == "energy_counter_mj" else ()))
)
"""Columns of `device_sample` with readings of a device."""


def rolled(roll_up: RollUp) -> tuple[DeviceMetric, ...]:
    """Return the device metrics with this roll-up."""
    return tuple(metric for metric in DEVICE if metric.roll_up is roll_up)


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
