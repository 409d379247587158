"""`python -m benchmarks.latency [--seeds 4] [--first-seed N]`: the latency of later hours, forecast from earlier ones.

Each seed is a demo of 8 hosts and 7 days. Six hours of the later half at another load are forecast in two ways:

- as the advisor judges a change of the load: the latency of the earlier half, times the ratio of the forecasts at both
  p95 demands;
- from hours: the forecast at the later load, times the median of what six hours of the earlier half measured over their
  own forecasts.

The measured p95 is compared with the 80 % interval of either. The tails are those of the simulator.
"""

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.report import Row, Target, report
from pertoken.advisor.present import Present, present
from pertoken.arrivals import Arrivals
from pertoken.catalog.market import load_market
from pertoken.config import load
from pertoken.demo.making import SETTINGS_FILE, make
from pertoken.evidence import Evidence, NotMeasured
from pertoken.forecast.latency import Latency, LatencyQuery, ratios
from pertoken.forecast.served import Abstained
from pertoken.forecast.serving import Z_80, Range
from pertoken.savings.context import Forecasts
from pertoken.savings.load import measured_latency
from pertoken.savings.slo import FIGURES as FIELDS
from pertoken.savings.slo import Latencies, presents
from pertoken.savings.slo import PresentLatency as PresentLatency
from pertoken.state.deployment import Deployment
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.window.like_for_like import student_quantile
from pertoken.window.reading import Window

US = "pertoken"
HOUR = 3600
HOSTS, DAYS = 8, 7
BLOCK_S = 6 * HOUR
OTHER_LOAD = 1.1
"""Factor between two loads from which they count as different."""
BY_HOUR = ", from hours"
SERIES = frozenset({"requests_s", "generated_tok_s", "prompt_tok_s", "prompt_len", "generated_len", "ttft_s", "tpot_s"})
FIGURES = ("ttft_p95_ms", "tpot_p95_ms")
MIN_HOURS = 3
"""Earlier hours with a figure from which their scatter is known."""
SD_OVER_MAD = 1.4826
"""Standard deviation over the median absolute deviation, of a normal distribution."""
Forecast = Callable[[LatencyQuery], Latency]


@dataclass(frozen=True, slots=True)
class Judged:
    """One figure of one deployment in some later hours."""

    figure: str
    low_ms: float
    likely_ms: float
    high_ms: float
    measured_ms: float

    @property
    def inside(self) -> bool:
        """Whether the measured value lies in the interval."""
        return self.low_ms <= self.measured_ms <= self.high_ms


def by_hour(hours: Sequence[PresentLatency], query: LatencyQuery, forecast: Forecast) -> Mapping[str, Range]:
    """Return the latency at a load, from hours of the same deployment at other loads, by figure.

    It is the forecast at that load times the median of what each hour measured over its own forecast. Its 80 % interval
    is that of another hour beside these, and at least that of the forecasts' ratio to the hour in the middle. A figure
    that fewer than `MIN_HOURS` measured is left out, and so are all where more arrives than is served.
    """
    after, anchored = forecast(query), {}
    if after.refusal is not None:
        return {}
    for place, name in enumerate(FIELDS.values()):
        known = sorted(
            (factor, number) for number, hour in enumerate(hours) if (factor := hour.factor(name)) is not None
        )
        if len(known) < MIN_HOURS:
            continue
        logs = [math.log(factor) for factor, _ in known]
        middle = statistics.median(logs)
        sd = SD_OVER_MAD * statistics.median(abs(log - middle) for log in logs)
        scatter = sd * student_quantile(Z_80, len(logs) - 1) * math.sqrt(1 + 1 / len(logs))
        before = forecast(hours[known[len(known) // 2][1]].query)
        likely = math.exp(middle) * getattr(after, name)[1]
        half_width = scatter
        if before.refusal is None:
            ratio = ratios(before, after, query.calibration, same_load=False)[place]
            half_width = max(scatter, math.log(ratio[2] / ratio[1]))
        anchored[name] = likely * math.exp(-half_width), likely, likely * math.exp(half_width)
    return anchored


Both = tuple[list[Judged], list[Judged]]
"""Forecast from hours, and as a change of the mixed load is judged."""


def judged(seed: int, folder: Path) -> Both:
    """Make the demo of a seed and compare each forecast of later hours with what was measured in them."""
    end_ts = int(time.time()) // HOUR * HOUR
    make(locate(str(folder)), seed, HOSTS, DAYS, end_ts)
    settings, market = load(folder / SETTINGS_FILE), load_market()
    half_s = DAYS * 24 * HOUR // 2
    earlier = present(open_store(locate(str(folder))), market, half_s, end_ts - half_s, settings, dated=True)
    by_hour_known: list[Judged] = []
    by_mix_known: list[Judged] = []
    with open_store(locate(str(folder))).read() as connection:
        blocks = [
            Window(connection, start, start + BLOCK_S, dated=True).evidence(market, series=SERIES)
            for start in range(end_ts - 2 * half_s, end_ts, BLOCK_S)
        ]
        for deployment in earlier.fleet.deployments:
            seen = [block.of_deployments([deployment.deployment_id]) for block in blocks]
            of_hours, of_mix = _compared(earlier, deployment, seen[: len(seen) // 2], seen[len(seen) // 2 :])
            by_hour_known += of_hours
            by_mix_known += of_mix
    return by_hour_known, by_mix_known


def _compared(earlier: Present, now: Deployment, hours: Sequence[Evidence], later: Sequence[Evidence]) -> Both:
    """Return the figures of one deployment; none where its load was alike, or cannot be forecast."""
    context = earlier.context
    forecasts, market, seen = context.forecasts, context.market, context.evidence(now.deployment_id)
    known: Both = [], []
    try:
        load, requests = forecasts.load(seen), forecasts.arrivals(seen)
        if isinstance(requests, NotMeasured):
            return known
        calibration = forecasts.calibration(now, load, market)
        before = forecasts.present(now, load, requests.arrivals, calibration, market)
    except (NotMeasured, Abstained, ValueError):
        return known
    forecast = partial(forecasts.latency, market=market)
    asked = [
        (replace(before.query, arrivals=arrivals), measured_latency(hour))
        for hour in hours
        if (arrivals := _arrivals(hour, forecasts)) is not None
    ]
    measured_hours = [hour for hour in presents(asked, market) if isinstance(hour, PresentLatency)]
    for block in later:
        arrivals = _arrivals(block, forecasts)
        if arrivals is None or alike(arrivals, requests.arrivals):
            continue
        query = replace(before.query, arrivals=arrivals)
        measured = measured_latency(block)
        anchored = by_hour(measured_hours, query, forecast)
        changed = of_mix(before, query, forecast)
        for figure in FIGURES:
            if figure in measured and figure in anchored and figure in changed:
                for results, ranges in zip(known, (anchored, changed), strict=True):
                    results.append(Judged(figure, *ranges[figure], measured[figure][1]))
    return known


def of_mix(before: PresentLatency, query: LatencyQuery, forecast: Forecast) -> Mapping[str, Range]:
    """Return the latency at a load as a change of the load is judged, by figure; none where more arrives than is
    served."""
    rate = float(query.arrivals.requests_per_s) * before.load_share
    thinned = replace(query, arrivals=replace(query.arrivals, requests_per_s=rate))
    after = Latencies(before, thinned, forecast, lambda *_: None).after
    if after is None or after.refusal is not None:
        return {}
    return {name: getattr(after, name) for name in FIELDS.values() if name in before.measured}


def alike(later: Arrivals, earlier: Arrivals) -> bool:
    """Return whether two loads count as the same."""
    return 1 / OTHER_LOAD < float(later.requests_per_s) / float(earlier.requests_per_s) < OTHER_LOAD


def _arrivals(seen: Evidence, forecasts: Forecasts) -> Arrivals | None:
    try:
        measured = forecasts.arrivals(seen)
    except ValueError:
        return None
    return None if isinstance(measured, NotMeasured) else measured.arrivals


def rows_of(known: Sequence[Judged], interval: str = "six hours", way: str = "") -> list[Row]:
    """Return the share inside and the width of the interval, of each figure; `way` it was forecast."""
    rows = []
    for figure in dict.fromkeys(one.figure for one in known):
        some = [one for one in known if one.figure == figure]
        how = f"of {len(some)} times {interval} at another load"
        rows.append(Row(US, f"{figure}.inside{way}", _inside(some), "share", how))
        rows.append(Row(US, f"{figure}.high_over_low{way}", _width(some), "ratio", "median"))
        error = statistics.median(one.measured_ms / one.likely_ms for one in some)
        rows.append(Row(US, f"{figure}.measured_over_likely{way}", error, "ratio", "median"))
    return rows


def targets_of(by_hour: Sequence[Judged], mixed: Sequence[Judged]) -> list[Target]:
    """Return the two figures of the benchmark, as the advisor forecasts and from hours."""
    targets = []
    for prefix, results in (("latency", mixed), ("latency.by_hour", by_hour)):
        known = [one for one in results if one.figure in FIGURES]
        targets.append(Target(f"{prefix}.inside", _inside(known), 0.75, ">="))
        targets.append(Target(f"{prefix}.high_over_low", _width(known), 2.0, "<="))
    return targets


def _inside(some: Sequence[Judged]) -> float | None:
    return sum(one.inside for one in some) / len(some) if some else None


def _width(some: Sequence[Judged]) -> float | None:
    return statistics.median(one.high_ms / one.low_ms for one in some) if some else None


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    known: list[Judged] = []
    mixed: list[Judged] = []
    for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
        with tempfile.TemporaryDirectory() as folder:
            from_hours, from_mix = judged(seed, Path(folder))
            known += from_hours
            mixed += from_mix
    text = report("latency", [*rows_of(mixed), *rows_of(known, way=BY_HOUR)], targets_of(known, mixed))
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
