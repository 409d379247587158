"""Forecasts of one advice run. Many proposals are computed together, and each forecast only once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pertoken.catalog.market import Market
from pertoken.evidence import Evidence, NotMeasured
from pertoken.forecast.host import Measured, calibrate_all
from pertoken.forecast.measured.realised import Realised
from pertoken.forecast.queue.latency import (
    Latency,
    LatencyQuery,
    LikelyLatency,
    latencies,
    likely_latencies,
    overruns,
)
from pertoken.forecast.queue.load import Arrivals
from pertoken.forecast.queue.replicas import Counts, SloMs, fewest_all
from pertoken.forecast.served import Abstained
from pertoken.forecast.serving import Calibration, Change, Comparison, Forecast, Range, compare_all
from pertoken.savings.batches import Batches
from pertoken.savings.load import MeasuredArrivals, MeasuredLoad, measured_arrivals, measured_load
from pertoken.savings.slo import Latencies, near_miss_limits, tail_limits
from pertoken.state.deployment import Deployment
from pertoken.state.service import Slo

T = TypeVar("T")
Key = tuple[object, ...]
Loads = tuple[MeasuredLoad | NotMeasured, MeasuredArrivals | NotMeasured]
"""Load and arrivals of one subject. `NotMeasured` stands for either where a metric is missing."""
Known = dict[tuple[int, ...], tuple[Key, T]]
"""Results by the identities of their inputs. The inputs are kept with a result, so that no identity is reused."""


@dataclass(frozen=True, slots=True)
class Question:
    """A change of one deployment to forecast."""

    now: Deployment
    to: Deployment
    seen: Evidence
    """Evidence of `now`."""
    slo: Slo


@dataclass(frozen=True, slots=True)
class ReplicaQuestion:
    """A number of replicas of one service to compute."""

    to: Deployment
    """One replica; the others are like it."""
    arrivals: Arrivals
    """Arrivals at the whole service."""
    limits: SloMs
    all_stay: Callable[[int | None], bool]
    """Returns whether all replicas stay if the demand takes this number of them (None: no number serves it)."""


@dataclass(frozen=True, slots=True)
class Questions:
    """Forecasts that one service needs for a proposal."""

    changes: tuple[Question, ...]
    """The deployments that change. If only the number of replicas changes, the busiest deployment unchanged."""
    replicas: ReplicaQuestion | None = None
    """The number of replicas to compute, if it changes. The first of `changes` then represents all replicas."""


@dataclass(frozen=True, slots=True)
class Forecasts:
    """Cache of an advice run's forecasts. Values are computed when first requested, or earlier by `prepare`."""

    realised: Mapping[int, tuple[Realised, ...]] = field(default_factory=dict)
    """Verified changes by deployment id. They calibrate the forecasts of the deployment."""
    batches: Batches = field(default_factory=Batches)
    """Forecasts of single proposals, computed together."""
    _loads: Known[MeasuredLoad | NotMeasured] = field(default_factory=dict)
    _arrivals: Known[MeasuredArrivals | NotMeasured] = field(default_factory=dict)
    _calibrations: Known[Calibration | Abstained | ValueError] = field(default_factory=dict)
    _changes: Known[Change | Forecast | Abstained] = field(default_factory=dict)
    """Cleared by `prepare`, like `_overruns`."""
    _latencies: Known[Latency | Abstained] = field(default_factory=dict)
    """Kept for the whole run, like `_fewest`: many proposals share the present deployments."""
    _likely: Known[LikelyLatency | Abstained] = field(default_factory=dict)
    """Of changes that exceed the SLO. Cleared by `prepare`."""
    _fewest: dict[tuple[SloMs, tuple[float, ...]], Known[Counts | Abstained]] = field(default_factory=dict)
    _overruns: dict[Slo, Known[bool | Abstained]] = field(default_factory=dict)

    def load(self, seen: Evidence) -> MeasuredLoad:
        """Return the measured load in the evidence. Raises NotMeasured."""
        load = _once(self._loads, (seen,), lambda: _or_missing(measured_load, seen))
        if isinstance(load, NotMeasured):
            raise load
        return load

    def arrivals(self, seen: Evidence) -> MeasuredArrivals | NotMeasured:
        """Return the measured arrivals in the evidence, or `NotMeasured` with the missing metric."""
        return _once(self._arrivals, (seen,), lambda: _or_missing(measured_arrivals, seen))

    def measure(self, seen: Evidence) -> None:
        """Compute the load and the arrivals in the evidence ahead of their first use."""
        self.measured(seen)

    def measured(self, seen: Evidence) -> Loads:
        """Return the load and the arrivals in the evidence."""
        load = _once(self._loads, (seen,), lambda: _or_missing(measured_load, seen))
        return load, self.arrivals(seen)

    def adopt(self, seen: Evidence, measured: Loads) -> None:
        """Store the loads that a fork of this process computed from the same evidence."""
        inputs = (seen,)
        key = _key(*inputs)
        self._loads[key], self._arrivals[key] = (inputs, measured[0]), (inputs, measured[1])

    def calibration(self, now: Deployment, load: MeasuredLoad, market: Market) -> Calibration:
        """Return the calibration of the model on a deployment's own measurements. Raises Abstained or ValueError."""
        calibration = _once(
            self._calibrations, (now, load), lambda: calibrate_all([self._measured(now, load)], market)[0]
        )
        if isinstance(calibration, Exception):
            raise calibration
        return calibration

    def change(
        self,
        now: Deployment,
        to: Deployment,
        load: MeasuredLoad,
        calibration: Calibration,
        market: Market,
    ) -> Change | Forecast:
        """Return the forecast effect of a change. Raises Abstained."""
        comparison = Comparison(now, to, load.load, calibration)
        key = (now, to, load)
        change = _once(self._changes, key, lambda: self.batches.ask(key, lambda: [comparison], compare_all, market)[0])
        if isinstance(change, Abstained):
            raise change
        return change

    def overruns(self, query: LatencyQuery, slo: Slo, market: Market) -> bool:
        """Return whether the likely latency after a change exceeds the SLO clearly. Raises Abstained."""
        known = self._overruns.setdefault(slo, {})
        result = _once(known, _latency_inputs(query), lambda: overruns([query], near_miss_limits(slo), market)[0])
        if isinstance(result, Abstained):
            raise result
        return result

    def likely(self, query: LatencyQuery, market: Market) -> LikelyLatency:
        """Return the likely latency of one deployment. Raises Abstained."""
        latency = _once(self._likely, _latency_inputs(query), lambda: likely_latencies([query], market)[0])
        if isinstance(latency, Abstained):
            raise latency
        return latency

    def latency(self, query: LatencyQuery, market: Market) -> Latency:
        """Return the latency of one deployment. Raises Abstained."""
        inputs = _latency_inputs(query)
        latency = _once(
            self._latencies, inputs, lambda: self.batches.ask(inputs, lambda: [query], latencies, market)[0]
        )
        if isinstance(latency, Abstained):
            raise latency
        return latency

    def replicas(self, query: LatencyQuery, slo: Slo, count: int, market: Market) -> int | None:
        """Return the fewest replicas that serve `count` times the requests, None if no number does.

        Raises Abstained.
        """
        return self.fewest(query, (float(count),), tail_limits(slo), market)[0]

    def fewest(self, query: LatencyQuery, factors: tuple[float, ...], limits: SloMs, market: Market) -> Counts:
        """Return the fewest replicas that serve the arrivals times each factor, as `fewest_all`. Raises Abstained."""
        known = self._fewest.setdefault((limits, factors), {})
        counts = _once(known, _replica_inputs(query), lambda: fewest_all([(query, factors)], limits, market)[0])
        if isinstance(counts, Abstained):
            raise counts
        return counts

    # -- many at once ----------------------------------------------------------------------------------------------

    def prepare(self, proposed: Sequence[Questions], market: Market) -> None:
        """Compute the forecasts that pricing will use for many proposals together.

        Where the first deployment of a proposal is refused, or the number of replicas falls, its others are not
        forecast. An error of a forecast is raised when that forecast is requested.
        """
        self._changes.clear()
        self._overruns.clear()
        self._likely.clear()
        firsts = [questions.changes[0] for questions in proposed if questions.changes]
        judged = self._judged(firsts, market)
        passing = [
            questions for questions in proposed if questions.changes and self._passes(questions.changes[0], judged)
        ]
        represented = self._count(passing, judged, market)
        rest = [questions for questions in passing if id(questions) not in represented]
        judged |= self._judged([question for questions in rest for question in questions.changes[1:]], market)
        missing = [query for question, query in judged.values() if self._exceeds_slo(question, judged)]
        for query, latency in zip(missing, likely_latencies(missing, market), strict=True):
            inputs = _latency_inputs(query)
            self._likely[_key(*inputs)] = inputs, latency

    def show(self, shown: Iterable[Latencies], market: Market) -> None:
        """Forecast all shown figures of several latencies: before, after, and the replicas that serve either."""
        known = [row for row in shown if row.ends is not None]
        self._latencies_of([end for row in known for end in row.ends or ()], market)
        self._fewest_of(
            [(end, (float(row.count),), tail_limits(row.slo)) for row in known for end in row.ends or ()], market
        )

    def judge(self, rows: Iterable[Latencies], market: Market) -> None:
        """Forecast the latency after several changes together, ahead of its first use."""
        self._latencies_of([row.ends[1] for row in rows if row.ends is not None], market)

    def _judged(self, questions: Sequence[Question], market: Market) -> dict[int, tuple[Question, LatencyQuery]]:
        """Forecast each change and compare its latency with the SLO.

        Return the latency queries by the identity of their question, of the changes that have one.
        """
        known = [(question, load) for question in questions if (load := self._measured_load(question.seen)) is not None]
        self._calibrate({id(question.now): (question.now, load) for question, load in known}.values(), market)
        judged = self._compare(known, market)
        by_slo: dict[Slo, list[LatencyQuery]] = {}
        for question, query in judged.values():
            by_slo.setdefault(question.slo, []).append(query)
        for slo, queries in by_slo.items():
            overruns_of_slo = self._overruns.setdefault(slo, {})
            for query, result in zip(queries, overruns(queries, near_miss_limits(slo), market), strict=True):
                inputs = _latency_inputs(query)
                overruns_of_slo[_key(*inputs)] = inputs, result
        return judged

    def _calibrate(self, present: Iterable[tuple[Deployment, MeasuredLoad]], market: Market) -> None:
        missing = [inputs for inputs in present if _key(*inputs) not in self._calibrations]
        calibrations = calibrate_all([self._measured(now, load) for now, load in missing], market)
        for inputs, calibration in zip(missing, calibrations, strict=True):
            self._calibrations[_key(*inputs)] = inputs, calibration

    def _compare(
        self, known: Sequence[tuple[Question, MeasuredLoad]], market: Market
    ) -> dict[int, tuple[Question, LatencyQuery]]:
        """Forecast each change; return the latency queries by the identity of their question.

        A change has one if it likely serves the demand and its arrivals were measured.
        """
        ready = [
            (question, load, calibration.for_change(question.to))
            for question, load in known
            if isinstance(calibration := self._calibrations[_key(question.now, load)][1], Calibration)
        ]
        comparisons = [
            Comparison(question.now, question.to, load.load, calibration) for question, load, calibration in ready
        ]
        judged = {}
        for (question, load, calibration), change in zip(ready, compare_all(comparisons, market), strict=True):
            inputs = question.now, question.to, load
            self._changes[_key(*inputs)] = inputs, change
            requests = self.arrivals(question.seen)
            if isinstance(change, Change) and change.after.demand is not None and not isinstance(requests, NotMeasured):
                judged[id(question)] = question, LatencyQuery(question.to, load.load, requests.arrivals, calibration)
        return judged

    def _passes(self, question: Question, judged: Mapping[int, tuple[Question, LatencyQuery]]) -> bool:
        """Return whether a deployment serves its demand within the SLO after its change."""
        return id(question) in judged and not self._exceeds_slo(question, judged)

    def _exceeds_slo(self, question: Question, judged: Mapping[int, tuple[Question, LatencyQuery]]) -> bool:
        key = _key(*_latency_inputs(judged[id(question)][1]))
        return self._overruns[question.slo][key][1] is not False

    def _count(
        self,
        passing: Iterable[Questions],
        judged: Mapping[int, tuple[Question, LatencyQuery]],
        market: Market,
    ) -> set[int]:
        """Compute the number of replicas of services whose first deployment passes.

        Return the identities of the questions that need no forecast of the other deployments.
        """
        queries: dict[int, tuple[ReplicaQuestion, tuple[LatencyQuery, tuple[float, ...], SloMs]]] = {}
        for questions in passing:
            replicas, first = questions.replicas, questions.changes[0]
            if replicas is not None:
                load, (_, query) = self.load(first.seen), judged[id(first)]
                change = self._changes[_key(first.now, first.to, load)][1]
                factors = arrival_factors(full_batch(change) if isinstance(change, Change) else None)
                service_query = LatencyQuery(replicas.to, query.load, replicas.arrivals, query.calibration)
                queries[id(questions)] = replicas, (service_query, factors, replicas.limits)
        self._fewest_of((query for _, query in queries.values()), market)
        represented = set()
        for key, (replicas, (query, own_factors, limits)) in queries.items():
            counts = self._fewest[limits, own_factors][_key(*_replica_inputs(query))][1]
            if not isinstance(counts, Abstained) and not replicas.all_stay(counts[1]):
                represented.add(key)
        return represented

    def _fewest_of(self, queries: Iterable[tuple[LatencyQuery, tuple[float, ...], SloMs]], market: Market) -> None:
        by_limits: dict[SloMs, dict[tuple[tuple[int, ...], tuple[float, ...]], LatencyQuery]] = {}
        for query, factors, limits in queries:
            key = _key(*_replica_inputs(query))
            if key not in self._fewest.get((limits, factors), {}):
                by_limits.setdefault(limits, {})[key, factors] = query
        for limits, by_key in by_limits.items():
            missing = [(query, factors) for (_, factors), query in by_key.items()]
            for (query, factors), counts in zip(missing, fewest_all(missing, limits, market), strict=True):
                inputs = _replica_inputs(query)
                self._fewest.setdefault((limits, factors), {})[_key(*inputs)] = inputs, counts

    def _latencies_of(self, queries: Iterable[LatencyQuery], market: Market) -> None:
        by_key = {_key(*_latency_inputs(query)): query for query in queries}
        missing = [query for key, query in by_key.items() if key not in self._latencies]
        for query, latency in zip(missing, latencies(missing, market), strict=True):
            inputs = _latency_inputs(query)
            self._latencies[_key(*inputs)] = inputs, latency

    def uncached(self) -> "Forecasts":
        """Return an empty cache with the same verified changes."""
        return Forecasts(self.realised)

    def _measured(self, now: Deployment, load: MeasuredLoad) -> Measured:
        return replace(_measured(now, load), realised=self.realised.get(now.deployment_id, ()))

    def _measured_load(self, seen: Evidence) -> MeasuredLoad | None:
        try:
            return self.load(seen)
        except NotMeasured:
            return None


def full_batch(change: Change) -> Range | None:
    """Return the generated tokens/s of a full batch after a change, None where it was not forecast."""
    return change.after.saturated.tok_s if change.after.saturated else None


def arrival_factors(at_most: Range | None) -> tuple[float, float, float]:
    """Return factors on arrivals for the slow end of a forecast, its likely value and its fast end.

    `at_most`: generated tokens/s of a full batch, as `full_batch` returns them.
    """
    if at_most is None:
        return 1.0, 1.0, 1.0
    low, likely, high = at_most
    return likely / low, 1.0, likely / high


def _key(*inputs: object) -> tuple[int, ...]:
    return tuple(map(id, inputs))


def _latency_inputs(query: LatencyQuery) -> Key:
    return query.deployment, query.arrivals, query.calibration


def _replica_inputs(query: LatencyQuery) -> Key:
    return query.deployment, query.load, query.arrivals, query.calibration


def _once(known: Known[T], inputs: Key, compute: Callable[[], T]) -> T:
    key = _key(*inputs)
    if key not in known:
        known[key] = inputs, compute()
    return known[key][1]


def _or_missing(measure: Callable[[Evidence], T], seen: Evidence) -> T | NotMeasured:
    try:
        return measure(seen)
    except NotMeasured as missing:
        return missing


def _measured(now: Deployment, load: MeasuredLoad) -> Measured:
    return Measured(
        now,
        load.load,
        load.busy_tok_s,
        load.tpot_ms,
        load.ttft_ms,
        load.kv_use,
        load.memory_active,
        load.gemm_active,
        load.points,
    )
