"""Evidence scaled to another load."""

from dataclasses import dataclass, replace

from pertoken.evidence import Distribution, Evidence, HoursOfWeek, Series

OF_DEMAND = ("requests_s", "prompt_tok_s", "computed_tok_s", "generated_tok_s", "preemptions")
"""Series that are in proportion to the load."""
OF_BATCH = ("running", "busy_generated_tok_s")
"""Series of busy time: they rise once there is no idle time left."""


@dataclass(frozen=True, slots=True)
class _Scaled:
    """Observations times a factor, up to a limit."""

    of: Distribution
    factor: float
    limit: float

    def quantile(self, q: float) -> float:
        return min(self.limit, self.of.quantile(q) * self.factor)

    def hours(self) -> HoursOfWeek:
        return tuple(None if hour is None else min(self.limit, hour * self.factor) for hour in self.of.hours())


def under_load(seen: Evidence, traffic: float) -> Evidence:
    """Return evidence at `traffic` times the load.

    Requests and tokens are in proportion. So is busy time until it takes all the time; from there on more requests run
    at once. Latencies and lengths stay as measured: what the load does to latencies is for the forecast, which stays
    calibrated on the measured load.
    """
    known = dict(seen.items())
    busy = known["busy"].mean if "busy" in known else 0.0
    batch = max(1.0, busy * traffic)
    changed = {name: _times(known[name], traffic) for name in OF_DEMAND if name in known}
    changed |= {name: _times(known[name], batch) for name in OF_BATCH if name in known}
    if "busy" in known:
        changed["busy"] = _times(known["busy"], traffic, limit=1.0)
    return seen.at_load(changed)


def _times(series: Series, factor: float, limit: float = float("inf")) -> Series:
    if factor == 1:
        return series
    mean, p50, p95, largest = (
        min(limit, value * factor) for value in (series.mean, series.p50, series.p95, series.max)
    )
    of = None if series.distribution is None else _Scaled(series.distribution, factor, limit)
    return replace(series, mean=mean, p50=p50, p95=p95, max=largest, distribution=of)
