"""Number of replicas that hold a load within objectives."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from pertoken.catalog.market import Market
from pertoken.forecast.candidates import Array
from pertoken.forecast.host import Calibration
from pertoken.forecast.queue.chain import Service
from pertoken.forecast.queue.latency import ROWS_AT_ONCE, SHARES, LatencyQuery, replicas_of
from pertoken.forecast.queue.load import Arrivals, Lengths
from pertoken.forecast.queue.queueing import MAX_UTILIZATION, beyond, capacity_per_s
from pertoken.forecast.served import Abstained, Load, resolve_each, stack_rows
from pertoken.state.deployment import Deployment

MAX_REPLICAS = 64
FIRST_REPLICAS, REPLICAS_AT_ONCE = 2, 8
"""Numbers of replicas that are forecast together, at first and then: most often one of the first holds."""
SloMs = tuple[float | None, float | None]
"""Objectives of TTFT and TPOT at p95, milliseconds; None where there is none."""
Counts = tuple[int | None, ...]


def fewest_replicas(
    deployment: Deployment,
    load: Load,
    arrivals: Arrivals,
    market: Market,
    calibration: Calibration | None = None,
    slo_ms: SloMs = (None, None),
) -> int | None:
    """Return the fewest copies of a deployment that share all arrivals evenly and likely hold them within `slo_ms`.

    None if `MAX_REPLICAS` do not. Raises Abstained as `forecast` does.
    """
    asked = LatencyQuery(deployment, load, arrivals, calibration or Calibration())
    (counts,) = fewest_all([(asked, (1.0,))], slo_ms, market)
    if isinstance(counts, Abstained):
        raise counts
    return counts[0]


def fewest_all(
    asked: Sequence[tuple[LatencyQuery, Sequence[float]]], slo_ms: SloMs, market: Market
) -> list[Counts | Abstained]:
    """Return `fewest_replicas` of each for its arrivals times each of its factors, side by side; `Abstained` in place
    of a result."""
    rows = resolve_each([(query.deployment, query.load) for query, _ in asked], market)
    known = [(query, row) for (query, _), row in zip(asked, rows, strict=True) if not isinstance(row, Abstained)]
    if not known:
        return [row for row in rows if isinstance(row, Abstained)]
    ends, c = [query for query, _ in known], stack_rows([row for _, row in known])
    one, generated = replicas_of(ends, c)
    requests_per_s = np.array([query.arrivals.requests_per_s for query in ends])
    factors = [of for (_, of), row in zip(asked, rows, strict=True) if not isinstance(row, Abstained)]
    searches = [
        _Search(row, requests_per_s[row] * factor / _COUNTS / c.dp[row])
        for row, of in enumerate(factors)
        for factor in of
    ]
    capacity = capacity_per_s(one, generated)
    for search in searches:
        search.skip_overloaded(capacity[search.row])
    at_once = FIRST_REPLICAS
    while tried := [(search, search.left[:at_once]) for search in searches if len(search.left)]:
        of = np.repeat([search.row for search, _ in tried], [len(counts) for _, counts in tried])
        rates = np.concatenate([search.rates[counts - 1] for search, counts in tried])
        holds = iter(_hold(one, generated, of, rates, slo_ms).tolist())
        for search, counts in tried:
            search.decide(counts, [next(holds) for _ in counts])
        at_once = REPLICAS_AT_ONCE
    results = iter(_by_row(searches, [len(of) for of in factors]))
    return [row if isinstance(row, Abstained) else next(results) for row in rows]


_COUNTS = np.arange(1, MAX_REPLICAS + 1)


@dataclass
class _Search:
    """The fewest replicas of one deployment at one load, as far as it is known."""

    row: int
    rates: Array
    """Arrivals at each replica by the number of replicas, from one on."""
    left: NDArray[np.int_] = field(default_factory=lambda: _COUNTS)
    """Numbers that are not decided."""
    fewest: int | None = None

    def skip_overloaded(self, capacity: float) -> None:
        """Leave out numbers of replicas at which each one receives more than it finishes."""
        self.left = _COUNTS[self.rates / capacity < MAX_UTILIZATION]

    def decide(self, counts: NDArray[np.int_], holds: Sequence[bool]) -> None:
        """Take the first number that holds, if one of them does."""
        self.fewest = next((int(count) for count, held in zip(counts, holds, strict=True) if held), None)
        self.left = self.left[len(counts) :] if self.fewest is None else self.left[:0]


def _by_row(searches: Sequence[_Search], sizes: Sequence[int]) -> Iterator[Counts]:
    results = iter(searches)
    for size in sizes:
        yield tuple(next(results).fewest for _ in range(size))


def _hold(one: Service, generated: Lengths, rows: NDArray[np.int_], rates: Array, slo_ms: SloMs) -> NDArray[np.bool_]:
    """Return whether replicas, by their rows, hold objectives at arrival rates."""
    ttft, tpot = ([] if limit is None else [limit / 1000] for limit in slo_ms)
    holds = np.zeros(len(rows), dtype=bool)
    for first in range(0, len(rows), ROWS_AT_ONCE):
        some = slice(first, first + ROWS_AT_ONCE)
        of = rows[some]
        alike = Service(*(getattr(one, field.name)[of] for field in fields(Service)))
        state = beyond(alike, rates[some], Lengths(generated.rows[of]), ttft, tpot)
        holds[some] = ~state.saturated
        for shares in (state.ttft, state.tpot):
            holds[some] &= (shares <= 1 - SHARES[1]).all(axis=1)
    return holds
