"""Measured series that remember being read, so that what a recommendation shows is what its rule used."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pertoken.provenance import Provenance


@dataclass(frozen=True, slots=True)
class SeriesSpec:
    """What a series means, its unit, and how to have it measured where it is missing."""

    unit: str
    meaning: str
    remedy: str


_TOKENS = "needs an engine that counts tokens, with its metrics on: `pertoken doctor` says how"
_GAUGES = "needs an engine that shows its queue, with its metrics on: `pertoken doctor` says how"
_LATENCY = "needs an engine with latency histograms; llama.cpp and Ollama have none"
_PREFIX = "needs an engine with a prefix cache that counts what it looks up there, and requests"
_DRAFTS = "needs speculative decoding in an engine that counts its drafts, and requests"
_ESTIMATES = "needs vLLM or SGLang with --enable-mfu-metrics, on GPUs the catalog knows"
_DEVICE = "needs a readable accelerator: `pertoken doctor` says which driver or right is missing"
_ACTIVITY = "needs an NVIDIA GPU of Hopper or newer (GPM), not shared by virtual machines"
SERIES: dict[str, SeriesSpec] = {
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
    "prompt_len": SeriesSpec("tokens", "prompt length per finished request", _LATENCY),
    "generated_len": SeriesSpec("tokens", "generated length per finished request", _LATENCY),
    "ttft_s": SeriesSpec("s", "time to first token", _LATENCY),
    "tpot_s": SeriesSpec("s", "time per output token after the first", _LATENCY),
    "e2e_s": SeriesSpec("s", "request latency from arrival to last token", _LATENCY),
    "device_util": SeriesSpec("ratio", "time the driver saw a kernel running (not how full it was)", _DEVICE),
    "sm_active": SeriesSpec("ratio", "SMs that were busy, of all the devices' SMs", _ACTIVITY),
    "tensor_active": SeriesSpec("ratio", "time the tensor cores were computing", _ACTIVITY),
    "dram_active": SeriesSpec("ratio", "memory bandwidth used, of what there is", _ACTIVITY),
    "sm_occupancy": SeriesSpec("ratio", "warps active in the SMs, of those they could hold", _ACTIVITY),
    "nvlink_bytes_s": SeriesSpec("bytes/s", "received and sent over NVLink, mean of the devices", _ACTIVITY),
    "memory_traffic_bytes_s": SeriesSpec(
        "bytes/s",
        "read from and written to memory by all CPUs of the host",
        "needs a CPU with such a counter (cqm_mbm_total): mount -t resctrl resctrl /sys/fs/resctrl",
    ),
    "device_memory": SeriesSpec("bytes", "device memory in use, all devices together", _DEVICE),
    "power_w": SeriesSpec("W", "power drawn by the devices together", _DEVICE),
    "held": SeriesSpec("ratio", "share of observed time some process held the device", _DEVICE),
    "observed_h": SeriesSpec("h", "hours of the window that were really observed", "let the agent run"),
}
"""Every series a rule may read, by name."""


class NotMeasured(Exception):
    """A rule read a series that was not measured; the advisor reports the rule as blocked, with the remedy."""

    def __init__(self, series: str, remedy: str) -> None:
        super().__init__(f"{series} was not measured: {remedy}")
        self.series = series
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Series:
    """Summary of one measured series over the window, in the unit of its spec.

    `n` counts the observations behind it (minutes, or requests for lengths and latencies); quantiles are of
    those observations, exact to the bucket where they come from a histogram.
    """

    mean: float
    p50: float
    p95: float
    max: float
    n: int
    provenance: Provenance
    buckets: tuple[tuple[float, float], ...] = ()
    """(upper bound, observations in it), rising, of the histogram it comes from; empty where there was none."""


class Evidence:
    """What was measured, by attribute: `seen.running.p95`. Remembers, in order, which series were read."""

    # Declared so that rules are checked and completed by an editor; values come from `__getattr__`.
    if TYPE_CHECKING:
        prompt_tok_s: Series
        computed_tok_s: Series
        generated_tok_s: Series
        busy_generated_tok_s: Series
        cached_share: Series
        requests_s: Series
        busy: Series
        running: Series
        waiting: Series
        kv_use: Series
        preemptions: Series
        prefix_hit_rate: Series
        spec_acceptance_rate: Series
        spec_acceptance_length: Series
        mfu: Series
        mbu: Series
        prompt_len: Series
        generated_len: Series
        ttft_s: Series
        tpot_s: Series
        e2e_s: Series
        device_util: Series
        sm_active: Series
        tensor_active: Series
        dram_active: Series
        device_memory: Series
        power_w: Series
        held: Series
        observed_h: Series

    def __init__(self, series: Mapping[str, Series], remedies: Mapping[str, str] | None = None) -> None:
        unknown = sorted(set(series) - set(SERIES))
        if unknown:
            raise ValueError(f"not a series: {', '.join(unknown)}; known: {', '.join(SERIES)}")
        self._series = dict(series)
        self._remedies = dict(remedies or {})
        self._read: dict[str, None] = {}

    def __getattr__(self, name: str) -> Series:
        if name.startswith("_") or name not in SERIES:
            raise AttributeError(f"no series {name!r}; known: {', '.join(SERIES)}")
        self._read[name] = None
        try:
            return self._series[name]
        except KeyError:
            raise NotMeasured(name, self._remedies.get(name, SERIES[name].remedy)) from None

    def has(self, name: str) -> bool:
        """Whether a series was measured; asking counts as reading it."""
        try:
            getattr(self, name)
        except NotMeasured:
            return False
        return True

    @property
    def read(self) -> tuple[str, ...]:
        """Names of the series read so far, in the order of first reading."""
        return tuple(self._read)

    def fresh(self) -> "Evidence":
        """The same measurements with nothing read yet: one for each rule."""
        return Evidence(self._series, self._remedies)

    def items(self) -> Iterable[tuple[str, Series]]:
        """All measured series by name, without counting as reading."""
        return self._series.items()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Evidence) and self._series == other._series

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._series)))
