"""Names of metrics for people."""

from pertoken.metrics.device import DEVICE
from pertoken.metrics.engine import ENGINE


def label_of(name: str) -> str:
    """Return what people call a stored metric or an evidence series; any other name in words."""
    return _LABELS.get(name) or name.replace("_", " ")


_SERIES = {
    "prompt_tok_s": "prompt tokens/s",
    "computed_tok_s": "computed prompt tokens/s",
    "generated_tok_s": "output tokens/s",
    "busy_generated_tok_s": "output tokens per busy second",
    "cached_share": "cached share of the prompt",
    "requests_s": "requests/s",
    "busy": "busy share",
    "running": "requests running",
    "waiting": "requests waiting",
    "prefix_hit_rate": "prefix cache hit rate",
    "media_per_request": "images per request",
    "media_hit_rate": "image cache hit rate",
    "spec_acceptance_rate": "draft acceptance rate",
    "spec_acceptance_length": "draft acceptance length",
    "mfu": "share of the peak FLOPs",
    "mbu": "share of the peak bandwidth",
    "itl_s": "ITL",
    "step_tokens": "tokens per step",
    "device_util": "device utilization",
    "device_memory": "device memory in use",
    "power_w": "power",
    "sm_active": "SM active",
    "sm_occupancy": "SM occupancy",
    "tensor_active": "tensor cores active",
    "dram_active": "memory bandwidth in use",
    "nvlink_bytes_s": "NVLink traffic",
    "memory_traffic_bytes_s": "memory traffic",
    "ended_by_stop": "requests ended by a stop token",
    "ended_by_length": "requests ended by a limit",
    "ended_by_abort": "requests aborted",
    "ended_by_error": "requests ended by an error",
    "ended_by_repetition": "requests ended for repetition",
    "arrival_dispersion": "burstiness of arrivals",
    "asleep": "time asleep",
    "throttled": "time throttled",
    "throttled_power": "time throttled by power",
    "throttled_thermal": "time throttled by heat",
    "energy_w": "power, by energy",
    "j_per_token": "energy per token",
    "host_memory_free": "free memory of the hosts",
    "held": "share of time held by a process",
    "observed_h": "hours observed",
}
"""Labels of evidence series that are not stored as one metric, or mean a part of one."""
_LABELS = (
    {metric.reading: metric.label for metric in DEVICE}
    | {name: metric.label for table in ENGINE for name, metric in table.items()}
    | _SERIES
)
