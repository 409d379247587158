"""`python -m benchmarks.latency [--seeds 4] [--first-seed N]`: the latency of later hours, forecast from earlier ones.

Each seed is a demo of 8 hosts and 7 days. The latency of each deployment is measured in the earlier half of its hours.
Six hours of the later half at another load are then forecast: what was measured, times the ratio of the forecasts at
both loads. The measured p95 of these hours is compared with the 80 % interval. The tails are those of the simulator.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.report import Row, Target, report
from pertoken.advisor.present import Present, present
from pertoken.catalog.market import load_market
from pertoken.config import load
from pertoken.demo.making import SETTINGS_FILE, make
from pertoken.evidence import Evidence, NotMeasured
from pertoken.forecast.queue.latency import LatencyQuery
from pertoken.forecast.served import Abstained
from pertoken.savings.load import measured_latency
from pertoken.savings.slo import Latencies
from pertoken.state.deployment import Deployment
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.window.reading import Window

US = "pertoken"
HOUR = 3600
HOSTS, DAYS = 8, 7
BLOCK_S = 6 * HOUR
OTHER_LOAD = 1.1
"""Factor between two loads from which they count as different."""
SERIES = frozenset({"requests_s", "generated_tok_s", "prompt_tok_s", "prompt_len", "generated_len", "ttft_s", "tpot_s"})
FIGURES = ("ttft_p95_ms", "tpot_p95_ms")


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


def judged(seed: int, folder: Path) -> list[Judged]:
    """Make the demo of a seed and compare each forecast of later hours with what was measured in them."""
    end_ts = int(time.time()) // HOUR * HOUR
    make(locate(str(folder)), seed, HOSTS, DAYS, end_ts)
    settings, market = load(folder / SETTINGS_FILE), load_market()
    half_s = DAYS * 24 * HOUR // 2
    earlier = present(open_store(locate(str(folder))), market, half_s, end_ts - half_s, settings, dated=True)
    known: list[Judged] = []
    with open_store(locate(str(folder))).read() as connection:
        for start in range(end_ts - half_s, end_ts, BLOCK_S):
            seen = Window(connection, start, start + BLOCK_S).evidence(market, series=SERIES)
            for deployment in earlier.fleet.deployments:
                known += _compared(earlier, deployment, seen.of_deployments([deployment.deployment_id]))
    return known


def _compared(earlier: Present, now: Deployment, later: Evidence) -> Iterator[Judged]:
    """Yield the figures of one deployment; none where its load was alike, or cannot be forecast."""
    context, seen = earlier.context, earlier.context.evidence(now.deployment_id)
    forecasts = context.forecasts
    try:
        load, requests = forecasts.load(seen), forecasts.arrivals(seen)
        later_requests = forecasts.arrivals(later)
        if isinstance(requests, NotMeasured) or isinstance(later_requests, NotMeasured):
            return
        ratio = float(later_requests.arrivals.requests_per_s) / float(requests.arrivals.requests_per_s)
        if 1 / OTHER_LOAD < ratio < OTHER_LOAD:
            return
        calibration = forecasts.calibration(now, load, context.market)
        before = forecasts.present(now, load, requests.arrivals, calibration, context.market)
        rate = float(later_requests.arrivals.requests_per_s) * before.load_share
        query = LatencyQuery(
            now, load.load, replace(later_requests.arrivals, requests_per_s=rate), before.query.calibration
        )
        latency = Latencies(
            before,
            query,
            partial(forecasts.latency, market=context.market),
            partial(forecasts.replicas, market=context.market),
        )
        after = latency.after
    except (NotMeasured, Abstained, ValueError):
        return
    measured = measured_latency(later)
    for figure in FIGURES:
        forecast = None if after is None or after.refusal is not None else getattr(after, figure)
        if forecast is not None and figure in measured and figure in before.measured:
            low_ms, likely_ms, high_ms = forecast
            yield Judged(figure, low_ms, likely_ms, high_ms, measured[figure][1])


def rows_of(known: Sequence[Judged], interval: str = "six hours") -> list[Row]:
    """Return the share inside and the width of the interval, of each figure."""
    rows = []
    for figure in FIGURES:
        some = [one for one in known if one.figure == figure]
        if not some:
            continue
        how = f"of {len(some)} times {interval} at another load"
        rows.append(Row(US, f"{figure}.inside", _inside(some), "share", how))
        rows.append(Row(US, f"{figure}.high_over_low", _width(some), "ratio", "median"))
        error = statistics.median(one.measured_ms / one.likely_ms for one in some)
        rows.append(Row(US, f"{figure}.measured_over_likely", error, "ratio", "median"))
    return rows


def targets_of(known: Sequence[Judged]) -> list[Target]:
    """Return the two figures of the benchmark."""
    return [
        Target("latency.inside", _inside(known), 0.75, ">="),
        Target("latency.high_over_low", _width(known), 2.0, "<="),
    ]


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
    for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
        with tempfile.TemporaryDirectory() as folder:
            known += judged(seed, Path(folder))
    text = report("latency", rows_of(known), targets_of(known))
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
