"""Every metric, defined once: its name, label, unit, how it is stored and rolled up, and what rules read of it.

- `ENGINE_TOKENS`, `ENGINE_COUNTERS`, `ENGINE_TIMES`, `ENGINE_GAUGES`, `HISTOGRAMS`: what adapters map the engines' own
  names onto. A new counter is a row of `ENGINE_COUNTERS` and a `Counter` in the adapter of an engine that exposes it.
- `DEVICE`: what probes read of a device. A new one is a row, a probe that reads it, and a migration that adds its
  columns. By this table it then reaches samples and documents; roll-ups, unless they keep `NOTHING` of it; and, of a
  gauge, screens and evidence.
- `SERIES`: what rules read as `seen.NAME`. Those of devices come from `DEVICE`; derived ones have a formula.

Nothing here is imported by a migration: revisions are frozen.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pertoken.units import RATIO


@dataclass(frozen=True, slots=True)
class EngineMetric:
    """A value that engines expose, in our words."""

    name: str
    label: str
    unit: str
    meaning: str
    shown: bool = True
    """Whether a screen shows it as it is, and not only what is derived from it."""


def _table(*rows: EngineMetric) -> Mapping[str, EngineMetric]:
    return {row.name: row for row in rows}


ENGINE_TOKENS = _table(
    EngineMetric("prompt_tokens", "prompt tokens", "tokens", "tokens of the prompts, cached ones included"),
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
    EngineMetric("requests_failed", "requests failed", "requests", "requests refused, aborted or failed"),
    EngineMetric(
        "prefix_queries", "prefix cache lookups", "tokens", "tokens looked up in the prefix cache", shown=False
    ),
    EngineMetric("prefix_hits", "prefix cache hits", "tokens", "tokens found in the prefix cache", shown=False),
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
    EngineMetric("running", "requests running", "requests", "requests in the running batch"),
    EngineMetric("waiting", "requests waiting", "requests", "requests in the queue"),
    EngineMetric("kv_use", "KV cache in use", "ratio", "share of the KV cache in use"),
    EngineMetric("awake", "awake", "ratio", "1, or 0 while the engine sleeps"),
    EngineMetric("requests_per_step", "requests per step", "requests", "mean of all steps since the engine started"),
)
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
    """A value of a device: what a probe reads, how it is stored, what becomes of it."""

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
_READABLE = "needs a readable accelerator: `pertoken doctor` names the missing driver or right"
_ACTIVITY = "needs an NVIDIA GPU of Hopper or newer (GPM), not shared by virtual machines"


def _activity(stored: str, label: str, series: str, meaning: str) -> DeviceMetric:
    return DeviceMetric(
        stored=stored,
        label=label,
        unit="ratio",
        per_unit=1e4,
        plausible=_OF_COUNTERS,
        series=series,
        meaning=meaning,
        remedy=_ACTIVITY,
    )


def _of_ticks(stored: str, label: str, unit: str, per_unit: float, plausible: Plausible) -> DeviceMetric:
    return DeviceMetric(
        stored=stored, label=label, unit=unit, per_unit=per_unit, plausible=plausible, roll_up=RollUp.NOTHING
    )


DEVICE = (
    DeviceMetric(
        stored="util_1e4",
        label="utilization",
        unit="ratio",
        per_unit=1e4,
        plausible=_OF_TIME,
        series="device_util",
        meaning="time the driver saw a kernel running (not how full it was)",
        remedy=_READABLE,
    ),
    DeviceMetric(
        stored="memory_used_bytes",
        label="memory",
        unit="bytes",
        plausible=Plausible(0, MAX_MEMORY_BYTES, "bytes", MEMORY_SOURCE, "memory_bytes"),
        series="device_memory",
        meaning="device memory in use, all devices together",
        summed=True,
        remedy=_READABLE,
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
        remedy=_READABLE,
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
        remedy=_READABLE,
    ),
    _of_ticks("memory_clock_mhz", "memory clock", "MHz", 1, Plausible(0, 50_000, "MHz", _CLOCK)),
    DeviceMetric(
        stored="temperature_c",
        label="temperature",
        unit="°C",
        plausible=Plausible(0, 150, "°C", "silicon is shut down below 130 °C"),
        series="temperature_c",
        meaning="temperature of the devices",
        remedy=_READABLE,
    ),
    _of_ticks("throttle_reasons", "throttle reasons", "", 1, Plausible(0, 2**16 - 1, "", _REASONS)),
    _activity("sm_active_1e4", "SM active", "sm_active", "SMs that were busy, of all the devices' SMs"),
    _activity("sm_occupancy_1e4", "SM occupancy", "sm_occupancy", "warps active in the SMs, of those they could hold"),
    _activity("tensor_active_1e4", "tensor active", "tensor_active", "time the tensor cores were computing"),
    _activity("dram_active_1e4", "memory bandwidth", "dram_active", "memory bandwidth used, of what there is"),
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
"""In the order of their columns. Beside what an energy counter rose by stands the energy by power, its check."""

DEVICE_COLUMNS = tuple(
    name
    for metric in DEVICE
    for name in (metric.stored, *(("energy_integral_mj",) if metric.stored == "energy_counter_mj" else ()))
)
"""Columns of `device_sample` that hold what was read of a device."""


def rolled(roll_up: RollUp) -> tuple[DeviceMetric, ...]:
    """Return the device metrics of which roll-ups keep this."""
    return tuple(metric for metric in DEVICE if metric.roll_up is roll_up)


def label_of(name: str) -> str:
    """Return what people call a stored metric: of a device or an engine, else the name in words."""
    return _LABELS.get(name) or name.replace("_", " ")


_LABELS = {metric.reading: metric.label for metric in DEVICE} | {
    name: metric.label for table in ENGINE for name, metric in table.items()
}


@dataclass(frozen=True, slots=True)
class Quotient:
    """A figure that is derived from counters of an engine: the sum of some, over another or over its busy time."""

    above: tuple[str, ...]
    below: tuple[str, ...] | None = None
    """None: the seconds in which the engine was busy."""
    plus: float = 0
    """Added to the quotient."""


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
    "nvlink_bytes_s": SeriesSpec("bytes/s", "received and sent over NVLink, mean of the devices", _ACTIVITY),
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
    "energy_w": SeriesSpec("W", "energy drawn over time by the devices, of a deployment its shares of them", _READABLE),
    "j_per_token": SeriesSpec(
        "J/token", "that energy per token, prompt (cached included) and generated, idle time spread evenly", _READABLE
    ),
    "host_memory_free": SeriesSpec("bytes", "memory of the hosts that nothing uses", "let the agent run"),
    "held": SeriesSpec("ratio", "share of observed time some process held the device", _READABLE),
    "observed_h": SeriesSpec("h", "hours of the window that were really observed", "let the agent run"),
}
"""Every series a rule may read, by name."""


@dataclass(frozen=True, slots=True)
class FigureSpec:
    """A figure that gates and alerts may compare with a limit, and that exporters expose."""

    unit: str
    meaning: str
    kinds: tuple[str, ...]
    """What it is known of: `fleet`, `service`, `model`, `host`."""


_SERVED = ("fleet", "service", "model")
FIGURES: Mapping[str, FigureSpec] = {
    "usd_per_mtok": FigureSpec("USD/Mtok", "allocated dollars per million prompt and generated tokens", _SERVED),
    "usd_per_generated_mtok": FigureSpec("USD/Mtok", "allocated dollars per million generated tokens", _SERVED),
    "usd": FigureSpec("USD", "dollars of the window", _SERVED),
    "usd_per_hour": FigureSpec("USD/h", "what the devices cost now", _SERVED),
    "idle_usd": FigureSpec("USD", "dollars of the window for which nothing ran", _SERVED),
    "idle_share": FigureSpec("ratio", "share of the dollars for which nothing ran", _SERVED),
    "tokens": FigureSpec("tokens", "prompt (cached included) and generated tokens of the window", _SERVED),
    "generated_tok_s": FigureSpec("tokens/s", "tokens generated now", _SERVED),
    "power_w": FigureSpec("W", "power drawn now", _SERVED),
    "ttft_p95_ms": FigureSpec("ms", "p95 time to first token, of the slowest deployment", ("service", "model")),
    "tpot_p50_ms": FigureSpec("ms", "median time per output token, of the slowest deployment", ("service", "model")),
    "slo_ratio": FigureSpec(
        "ratio", "worst latency over its objective: above 1 the SLO is missed", ("service", "model")
    ),
    "waiting": FigureSpec("requests", "requests queued now", ("service", "model")),
    "stuck": FigureSpec("engines", "engines that have requests and generate nothing, or cannot be read", _SERVED),
    "stale_s": FigureSpec("s", "age of the newest row of a host; of the fleet the oldest", ("fleet", "host")),
    "budget_share": FigureSpec("ratio", "spend of this month over the budget", ("fleet",)),
    "budget_expected_share": FigureSpec("ratio", "likely spend of this month over the budget", ("fleet",)),
    "bankable_usd_per_month": FigureSpec("USD", "bankable dollars of open advice", ("fleet",)),
    "regressions": FigureSpec("changes", "changes in the window after which a token costs more", ("fleet",)),
}
"""Figures by name. Those of a window are of the window that a command or an alert looks at."""
