"""Evidence series by what they are made of: of deployments, devices or histograms, and by which stored metrics."""

from collections.abc import Iterable
from typing import Any

from pertoken.metrics import DEVICE, SERIES
from pertoken.metrics.computations import Histogram

LENGTHS = ("prompt_len", "generated_len")
SERIES_OF = {metric.stored: metric.series for metric in DEVICE if metric.series} | {
    "processes": "held",
    "busy": "busy",
    "nvlink_rx_mib_s": "nvlink_bytes_s",
    "memory_traffic_bytes": "memory_traffic_bytes_s",
}
"""Stored metrics -> the series that is missing where they are."""
COUNTED_BY = {
    "prompt_tok_s": {"prompt_tokens"},
    "computed_tok_s": {"prompt_tokens", "computed_tokens"},
    "generated_tok_s": {"generated_tokens"},
    "busy_generated_tok_s": {"generated_tokens"},
}
"""Rates -> the engine metrics whose late counting makes them late."""
OF_HOSTS = ("host_memory_free", "host_memory_used", "host_cpus_used")
"""Series of hosts that devices and deployments on them have too."""
OF_DEVICES = (*(name for name, spec in SERIES.items() if spec.owner == "device"), *OF_HOSTS)
"""Series of a device."""
ITL = "itl_s"
FROM_HISTOGRAMS = tuple(name for name, spec in SERIES.items() if isinstance(spec.computation, Histogram))
"""Series of a deployment that are made of bucket counts."""
OF_DEPLOYMENTS = tuple(name for name in SERIES if name not in (*FROM_HISTOGRAMS, "held", "observed_h"))
"""All other series of a deployment."""


def remedies(gaps: Iterable[Any]) -> dict[str, str]:
    """Return what would switch a missing series on, where the agent stored it, from rows of unreadable metrics."""
    return {
        SERIES_OF[gap.metric]: f"{gap.reason}; {gap.remedy}" if gap.remedy else gap.reason
        for gap in gaps
        if gap.metric in SERIES_OF
    }
