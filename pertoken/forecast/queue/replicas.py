"""Number of replicas that hold a load within objectives."""

from collections.abc import Iterator, Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from pertoken.arrivals import Lengths
from pertoken.catalog.market import Market
from pertoken.forecast.candidates import Candidates
from pertoken.forecast.queue.chain import Service
from pertoken.forecast.queue.latency import END, ROWS_AT_ONCE, SHARES, LatencyQuery, replicas_of, seconds
from pertoken.forecast.queue.queueing import overrun
from pertoken.forecast.queue.steady_state import MAX_UTILIZATION, capacity_per_s
from pertoken.forecast.served import Abstained, for_each

MAX_REPLICAS = 64
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
    """Yield the counts of each query. With more replicas fewer requests arrive at each: usually the first number that
    is not overloaded is enough, the largest one shows whether any is, and bisection finds the first of these.
    """
    queries, factors, limits = zip(*asked, strict=True)
    services, generated = replicas_of(queries, c)
    limits_s = seconds(limits)
    owner = np.repeat(np.arange(len(c)), [len(of_query) for of_query in factors])
    per_s = np.array([query.arrivals.requests_per_s for query in queries])[owner] / c.dp[owner]
    per_s = per_s * np.concatenate([np.asarray(of_query, dtype=float) for of_query in factors])

    def hold(places: NDArray[np.int_], counts: NDArray[np.int_]) -> NDArray[np.bool_]:
        """Return whether these numbers of replicas meet the objectives."""
        held = np.zeros(len(places), dtype=bool)
        for first in range(0, len(places), ROWS_AT_ONCE):
            group = slice(first, first + ROWS_AT_ONCE)
            rows, rates = owner[places[group]], per_s[places[group]] / counts[group]
            of_rows = Service(*(getattr(services, field.name)[rows] for field in fields(Service)))
            held[group] = ~overrun(of_rows, rates, Lengths(generated.rows[rows]), limits_s[rows], SHARES[1:])
        return held

    stable = np.floor(per_s / (capacity_per_s(services, generated)[owner] * MAX_UTILIZATION)).astype(int) + 1
    low, high = stable.copy(), stable.copy()
    failing = np.flatnonzero(stable <= MAX_REPLICAS)
    failing = failing[~hold(failing, low[failing])]
    high[failing] = np.where(hold(failing, np.full(len(failing), MAX_REPLICAS)), MAX_REPLICAS, MAX_REPLICAS + 1)
    open_ends = failing[high[failing] <= MAX_REPLICAS]
    while len(open_ends := open_ends[high[open_ends] - low[open_ends] > 1]):
        middle = (low[open_ends] + high[open_ends]) // 2
        holds = hold(open_ends, middle)
        low[open_ends] = np.where(holds, low[open_ends], middle)
        high[open_ends] = np.where(holds, middle, high[open_ends])
    counts = iter(high.tolist())
    for of_query in factors:
        yield tuple(count if (count := next(counts)) <= MAX_REPLICAS else None for _ in of_query)
