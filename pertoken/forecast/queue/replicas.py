"""Number of replicas that hold a load within objectives."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from pertoken.catalog.market import Market
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.queue.chain import Service
from pertoken.forecast.queue.latency import END, ROWS_AT_ONCE, SHARES, LatencyQuery, replicas_of, seconds
from pertoken.forecast.queue.load import Lengths
from pertoken.forecast.queue.queueing import overruns_under
from pertoken.forecast.queue.steady_state import MAX_UTILIZATION, capacity_per_s
from pertoken.forecast.served import Abstained, for_each

MAX_REPLICAS = 64
REPLICAS_AT_ONCE = 4
"""Numbers of replicas that are forecast together where neither the first nor the second possible number is enough."""
SloMs = tuple[float | None, float | None]
"""Objectives of TTFT and TPOT at p95, milliseconds; None where there is none."""
Counts = tuple[int | None, ...]


def fewest_all(
    queries: Sequence[tuple[LatencyQuery, Sequence[float], SloMs]], market: Market
) -> list[Counts | Abstained]:
    """Return the fewest copies of each deployment that share all arrivals evenly and likely serve them within its
    objectives, for its arrivals times each of its factors.

    None where `MAX_REPLICAS` copies do not, `Abstained` in place of a query that cannot be forecast.
    """
    return for_each(queries, lambda asked: END(asked[0]), market, _fewest)


def _fewest(asked: Sequence[tuple[LatencyQuery, Sequence[float], SloMs]], c: Candidates) -> Iterator[Counts]:
    queries, factors, limits = zip(*asked, strict=True)
    services, generated = replicas_of(queries, c)
    limits_s = seconds(limits)
    searches = [
        _Search(row, query.arrivals.requests_per_s * factor / _COUNTS / c.dp[row])
        for row, query in enumerate(queries)
        for factor in factors[row]
    ]
    capacity = capacity_per_s(services, generated)
    for search in searches:
        search.skip_overloaded(capacity[search.row])
    while tried := [(search, counts) for search in searches if len(counts := search.next_counts())]:
        tried_rows = np.repeat([search.row for search, _ in tried], [len(counts) for _, counts in tried])
        rates = np.concatenate([search.rates[counts - 1] for search, counts in tried])
        holds = iter(_hold(services, generated, tried_rows, rates, limits_s).tolist())
        for search, counts in tried:
            search.decide(counts, [next(holds) for _ in counts])
    results = iter(searches)
    for of_query in factors:
        yield tuple(next(results).fewest for _ in of_query)


_COUNTS = np.arange(1, MAX_REPLICAS + 1)


@dataclass
class _Search:
    """Search for the fewest replicas of one deployment at one load."""

    row: int
    rates: Array
    """Requests/s at each replica, for 1, 2, 3, … replicas."""
    left: NDArray[np.int_] = field(default_factory=lambda: _COUNTS)
    """Numbers of replicas that are not yet decided."""
    fewest: int | None = None
    passes: int = 0
    """Times that numbers of replicas were forecast."""

    def skip_overloaded(self, capacity: float) -> None:
        """Drop the numbers of replicas at which a replica receives more than it finishes."""
        self.left = _COUNTS[self.rates / capacity < MAX_UTILIZATION]

    def next_counts(self) -> NDArray[np.int_]:
        """Return the numbers of replicas to forecast next; empty where the search has ended.

        Usually the first number is enough. Where it is not, the last one shows whether any is: with more replicas fewer
        requests arrive at each. Measured for one rule over 1,000 deployments: 7,100 forecasts, and 17,500 where eight
        numbers at a time follow the first two.
        """
        if self.passes == 0:
            return self.left[:1]
        if self.passes == 1 and len(self.left) > 1:
            return self.left[[0, -1]]
        return self.left[:REPLICAS_AT_ONCE]

    def decide(self, counts: NDArray[np.int_], holds: Sequence[bool]) -> None:
        """Note which of `next_counts` hold: end the search at the first, or drop those that do not."""
        enough = [int(count) for count, count_holds in zip(counts, holds, strict=True) if count_holds]
        only_last = self.passes == 1 and len(counts) == 2 and enough == [int(counts[-1])]
        self.passes += 1
        if only_last:
            self.left = self.left[1:]
        elif enough or self.passes == 2:
            self.fewest, self.left = min(enough, default=None), self.left[:0]
        else:
            self.left = self.left[len(counts) :]


def _hold(
    services: Service, generated: Lengths, rows: NDArray[np.int_], rates: Array, limits_s: Array
) -> NDArray[np.bool_]:
    """Return whether the replicas of these rows of `services` meet the objectives at arrival rates, shape (rows,).

    `limits_s`: seconds of TTFT and TPOT at p95, a row for each row of `services`.
    """
    holds = np.zeros(len(rows), dtype=bool)
    for first in range(0, len(rows), ROWS_AT_ONCE):
        chunk = slice(first, first + ROWS_AT_ONCE)
        chunk_rows = rows[chunk]
        chunk_services = Service(*(getattr(services, field.name)[chunk_rows] for field in fields(Service)))
        ttft_s, tpot_s = limits_s[chunk_rows, :1], limits_s[chunk_rows, 1:]
        overruns = overruns_under(chunk_services, rates[chunk], Lengths(generated.rows[chunk_rows]), ttft_s, tpot_s)
        holds[chunk] = ~overruns.saturated
        for shares in (overruns.ttft, overruns.tpot):
            holds[chunk] &= (shares <= 1 - SHARES[1]).all(axis=1)
    return holds
