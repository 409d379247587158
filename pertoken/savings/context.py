"""Inputs of pricing beside two fleets: evidence, prices, the market, and settings that bind every change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import TypeVar

from pertoken.arrivals import Arrivals
from pertoken.catalog.market import Market
from pertoken.catalog.offers import Offer
from pertoken.evidence import Evidence, NotMeasured
from pertoken.forecast.calibration import Realised
from pertoken.forecast.host import BusyMeasurements, Calibration, calibrate_all, carried
from pertoken.forecast.latency import (
    Counts,
    Latency,
    LatencyQuery,
    LikelyLatency,
    Limits,
    SloMs,
    fewest_all,
    latencies,
    likely_latencies,
    overruns,
)
from pertoken.forecast.served import Abstained
from pertoken.forecast.serving import BeforeAfter, ChangeUnderLoad, Forecast, Range, compare_all
from pertoken.savings.load import MeasuredArrivals, MeasuredLoad, measured_arrivals, measured_load
from pertoken.savings.saving import NOTHING as NOTHING
from pertoken.savings.saving import Money as Money
from pertoken.savings.slo import Latencies, PresentLatency, has_objective, presents_under
from pertoken.state.deployment import Deployment
from pertoken.state.service import Slo

T = TypeVar("T")
Key = tuple[object, ...]
Known = dict[tuple[int, ...], tuple[Key, T]]
"""Results by the identities of their inputs. The inputs are kept with a result, so that no identity is reused."""
Q = TypeVar("Q")
ReplicaQuery = tuple[LatencyQuery, tuple[float, ...], SloMs]
"""Arguments of `fewest_all`: a query, the factors on its arrivals, and limits."""


@dataclass(frozen=True, slots=True)
class ForecastQuestion:
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
    all_stay: Callable[[int | None], bool]
    """Returns whether all replicas stay if the demand takes this number of them (None: no number serves it)."""


@dataclass(frozen=True, slots=True)
class ServiceQuestions:
    """Forecasts that one service needs for a proposal."""

    changes: tuple[ForecastQuestion, ...]
    """The deployments that change. If only the number of replicas changes, the busiest deployment unchanged."""
    replicas: ReplicaQuestion | None = None
    """The number of replicas to compute, if it changes. The first of `changes` then represents all replicas."""


_ByQuestion = dict[int, tuple[ForecastQuestion, LatencyQuery, Limits]]
"""Queries of the latency after changes, with limits in ms of the forecast, by the identity of the question."""


@dataclass(frozen=True, slots=True)
class Forecasts:
    """Cache of an advice run's forecasts. Values are computed when first requested, or earlier by `prepare`."""

    realised: Mapping[int, tuple[Realised, ...]] = field(default_factory=dict)
    """Verified changes by deployment id. They calibrate the forecasts of the deployment."""
    _loads: Known[MeasuredLoad | NotMeasured] = field(default_factory=dict)
    _arrivals: Known[MeasuredArrivals | NotMeasured] = field(default_factory=dict)
    _calibrations: Known[Calibration | Abstained | ValueError] = field(default_factory=dict)
    _presents: Known[PresentLatency | Abstained] = field(default_factory=dict)
    _changes: Known[BeforeAfter | Forecast | Abstained] = field(default_factory=dict)
    """Cleared by `prepare`, like `_overruns`."""
    _unchanged: Known[BeforeAfter | Forecast | Abstained] = field(default_factory=dict)
    """Present deployments compared with themselves. Kept for the whole run."""
    _latencies: Known[Latency | Abstained] = field(default_factory=dict)
    """Kept for the whole run, like `_fewest`: many proposals share the present deployments."""
    _likely: Known[LikelyLatency | Abstained] = field(default_factory=dict)
    """Of changes that exceed the SLO. Cleared by `prepare`."""
    _fewest: dict[tuple[SloMs, tuple[float, ...]], Known[Counts | Abstained]] = field(default_factory=dict)
    _overruns: dict[Limits, Known[bool | Abstained]] = field(default_factory=dict)

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
        _once(self._loads, (seen,), lambda: _or_missing(measured_load, seen))
        self.arrivals(seen)

    def calibration(self, deployment: Deployment, load: MeasuredLoad, market: Market) -> Calibration:
        """Return the calibration of the model on a deployment's own measurements. Raises Abstained or ValueError."""
        calibration = _once(
            self._calibrations, (deployment, load), lambda: calibrate_all([self._measured(deployment, load)], market)[0]
        )
        if isinstance(calibration, Exception):
            raise calibration
        return calibration

    def change(
        self,
        deployment: Deployment,
        to: Deployment,
        load: MeasuredLoad,
        calibration: Calibration,
        market: Market,
    ) -> BeforeAfter | Forecast:
        """Return the forecast effect of a change. Raises Abstained."""
        comparison = ChangeUnderLoad(deployment, to, load.load, calibration)
        change = _once(
            self._unchanged if to is deployment else self._changes,
            (deployment, to, load, calibration),
            lambda: compare_all([comparison], market)[0],
        )
        if isinstance(change, Abstained):
            raise change
        return change

    def present(
        self, deployment: Deployment, load: MeasuredLoad, arrivals: Arrivals, calibration: Calibration, market: Market
    ) -> PresentLatency:
        """Return the present latency of a deployment, as measured and as forecast. Raises Abstained."""
        query = LatencyQuery(deployment, load.load, arrivals, calibration)
        return _forecast(self._presents, _latency_inputs(query), lambda: presents_under([(query, load)], market)[0])

    def overruns(self, query: LatencyQuery, limits: Limits, market: Market) -> bool:
        """Return whether the likely latency after a change exceeds one of its limits. Raises Abstained."""
        results = self._overruns.setdefault(limits, {})
        return _forecast(results, _latency_inputs(query), lambda: overruns([(query, limits)], market)[0])

    def likely(self, query: LatencyQuery, market: Market) -> LikelyLatency:
        """Return the likely latency of one deployment. Raises Abstained."""
        return _forecast(self._likely, _latency_inputs(query), lambda: likely_latencies([query], market)[0])

    def latency(self, query: LatencyQuery, market: Market) -> Latency:
        """Return the latency of one deployment. Raises Abstained."""
        return _forecast(self._latencies, _latency_inputs(query), lambda: latencies([query], market)[0])

    def replicas(self, query: LatencyQuery, factors: tuple[float, ...], limits: SloMs, market: Market) -> int | None:
        """Return the fewest replicas that serve the requests times the first factor, None if no number does.

        Raises Abstained.
        """
        return self.fewest(query, factors, limits, market)[0]

    def fewest(self, query: LatencyQuery, factors: tuple[float, ...], limits: SloMs, market: Market) -> Counts:
        """Return the fewest replicas that serve the arrivals times each factor, as `fewest_all`. Raises Abstained."""
        counts = self._fewest.setdefault((limits, factors), {})
        return _forecast(counts, _replica_inputs(query), lambda: fewest_all([(query, factors, limits)], market)[0])

    # -- many at once ----------------------------------------------------------------------------------------------

    def prepare(self, proposed: Sequence[ServiceQuestions], market: Market) -> None:
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
        missing = [query for key, (_, query, _) in judged.items() if self._exceeds_slo(key, judged)]
        for query, latency in zip(missing, likely_latencies(missing, market), strict=True):
            inputs = _latency_inputs(query)
            self._likely[_key(*inputs)] = inputs, latency

    def show(self, shown: Iterable[Latencies], market: Market) -> None:
        """Forecast all shown figures of several latencies: before, after, and the replicas that serve either."""
        rows = list(shown)
        self.judge(rows, market)
        self._fewest_of([query for row in rows for query in row.counted], market)

    def judge(self, rows: Iterable[Latencies], market: Market) -> None:
        """Forecast the latency after several changes together, ahead of its first use."""
        queries = (end for row in rows for end in row.ends or ())
        _fill(self._latencies, queries, _latency_inputs, lambda missing: latencies(missing, market))

    def failing(self, latencies: Sequence[Latencies], market: Market) -> list[bool]:
        """Return for each latency whether its verdict is `fail` by likely figures, a tenth of the time of `judge`."""
        queries = [
            (latency.proposed, latency.failing_limits)
            for latency in latencies
            if latency.proposed is not None and has_objective(latency.slo)
        ]
        exceeded = iter(overruns(queries, market))
        return [
            latency.proposed is not None and has_objective(latency.slo) and next(exceeded) is True
            for latency in latencies
        ]

    def _judged(self, questions: Sequence[ForecastQuestion], market: Market) -> _ByQuestion:
        """Forecast each change and compare its latency with the SLO.

        Return the latency queries of the changes that have one.
        """
        measured = [
            (question, load) for question in questions if (load := self._measured_load(question.seen)) is not None
        ]
        _fill(
            self._calibrations,
            ((question.now, load) for question, load in measured),
            lambda inputs: inputs,
            lambda missing: calibrate_all([self._measured(*inputs) for inputs in missing], market),
        )
        judged = self._compare(measured, market)
        by_limits: dict[Limits, list[LatencyQuery]] = {}
        for _, query, limits in judged.values():
            by_limits.setdefault(limits, []).append(query)
        limited = [(query, limits) for limits, queries in by_limits.items() for query in queries]
        for (query, limits), result in zip(limited, overruns(limited, market), strict=True):
            inputs = _latency_inputs(query)
            self._overruns.setdefault(limits, {})[_key(*inputs)] = inputs, result
        return judged

    def _compare(self, forecastable: Sequence[tuple[ForecastQuestion, MeasuredLoad]], market: Market) -> _ByQuestion:
        """Forecast each change; return the latency queries of those that would start, where arrivals were measured."""
        ready = [
            (question, load, calibration.for_change(question.to))
            for question, load in forecastable
            if isinstance(calibration := self._calibrations[_key(question.now, load)][1], Calibration)
        ]
        comparisons = [
            ChangeUnderLoad(question.now, question.to, load.load, calibration) for question, load, calibration in ready
        ]
        judged = []
        for (question, load, calibration), change in zip(ready, compare_all(comparisons, market), strict=True):
            inputs = question.now, question.to, load, calibration
            (self._unchanged if question.to is question.now else self._changes)[_key(*inputs)] = inputs, change
            requests = self.arrivals(question.seen)
            if isinstance(change, BeforeAfter) and not isinstance(requests, NotMeasured):
                query = LatencyQuery(question.now, load.load, requests.arrivals, calibration)
                judged.append((question, query, load))
        _fill(
            self._presents,
            ((query, load) for _, query, load in judged),
            lambda measured: _latency_inputs(measured[0]),
            lambda missing: presents_under(missing, market),
        )
        by_question: _ByQuestion = {}
        for question, query, _ in judged:
            present = self._presents[_key(*_latency_inputs(query))][1]
            if isinstance(present, PresentLatency):
                calibration = carried(present.query.calibration, question.to, market)
                proposed = replace(present.query, deployment=question.to, calibration=calibration)
                by_question[id(question)] = question, proposed, present.refusal_limits(question.slo)
        return by_question

    def _passes(self, question: ForecastQuestion, judged: _ByQuestion) -> bool:
        """Return whether a deployment serves its demand within the SLO after its change."""
        return id(question) in judged and not self._exceeds_slo(id(question), judged)

    def _exceeds_slo(self, key: int, judged: _ByQuestion) -> bool:
        _, query, limits = judged[key]
        return self._overruns[limits][_key(*_latency_inputs(query))][1] is not False

    def _count(self, passing: Iterable[ServiceQuestions], judged: _ByQuestion, market: Market) -> set[int]:
        """Compute the number of replicas of services whose first deployment passes.

        Return the identities of the questions that need no forecast of the other deployments.
        """
        queries: dict[int, tuple[ReplicaQuestion, ReplicaQuery]] = {}
        for questions in passing:
            replicas, first = questions.replicas, questions.changes[0]
            if replicas is not None:
                load, (_, query, _) = self.load(first.seen), judged[id(first)]
                calibration = self.calibration(first.now, load, market).for_change(first.to)
                change = self.change(first.now, first.to, load, calibration, market)
                arrivals = self.arrivals(first.seen)
                assert not isinstance(arrivals, NotMeasured)
                present = self.present(first.now, load, arrivals.arrivals, query.calibration, market)
                factors = arrival_factors(full_batch(change) if isinstance(change, BeforeAfter) else None, present)
                service_query = LatencyQuery(replicas.to, query.load, replicas.arrivals, query.calibration)
                queries[id(questions)] = replicas, (service_query, factors, present.tail_limits(first.slo))
        self._fewest_of((query for _, query in queries.values()), market)
        represented = set()
        for key, (replicas, (query, own_factors, limits)) in queries.items():
            counts = self._fewest[limits, own_factors][_key(*_replica_inputs(query))][1]
            if not isinstance(counts, Abstained) and not replicas.all_stay(counts[1]):
                represented.add(key)
        return represented

    def _fewest_of(self, queries: Iterable[ReplicaQuery], market: Market) -> None:
        missing = {
            (limits, factors, key): (query, factors, limits)
            for query, factors, limits in queries
            if (key := _key(*_replica_inputs(query))) not in self._fewest.get((limits, factors), {})
        }
        for (query, factors, limits), counts in zip(
            missing.values(), fewest_all(list(missing.values()), market), strict=True
        ):
            inputs = _replica_inputs(query)
            self._fewest.setdefault((limits, factors), {})[_key(*inputs)] = inputs, counts

    def uncached(self) -> Forecasts:
        """Return an empty cache with the same verified changes."""
        return Forecasts(self.realised)

    def _measured(self, deployment: Deployment, load: MeasuredLoad) -> BusyMeasurements:
        return replace(_measured(deployment, load), realised=self.realised.get(deployment.deployment_id, ()))

    def _measured_load(self, seen: Evidence) -> MeasuredLoad | None:
        try:
            return self.load(seen)
        except NotMeasured:
            return None


def full_batch(change: BeforeAfter) -> Range | None:
    """Return the generated tokens/s of a full batch after a change, None where it was not forecast."""
    return change.after.saturated.tok_s if change.after.saturated else None


def arrival_factors(at_most: Range | None, present: PresentLatency | None) -> tuple[float, float, float]:
    """Return factors on arrivals for the slow end of a forecast, its likely value and its fast end.

    `at_most`: generated tokens/s of a full batch, as `full_batch` returns them. `present`: the latency to compare the
    arrivals with; None where they were not measured.
    """
    share = 1.0 if present is None else present.load_share
    if at_most is None:
        return share, share, share
    low, likely, high = at_most
    return share * likely / low, share, share * likely / high


def _key(*inputs: object) -> tuple[int, ...]:
    return tuple(map(id, inputs))


def _latency_inputs(query: LatencyQuery) -> Key:
    return query.deployment, query.arrivals, query.calibration


def _replica_inputs(query: LatencyQuery) -> Key:
    return query.deployment, query.load, query.arrivals, query.calibration


def _once(results: Known[T], inputs: Key, compute: Callable[[], T]) -> T:
    key = _key(*inputs)
    if key not in results:
        results[key] = inputs, compute()
    return results[key][1]


def _forecast(results: Known[T | Abstained], inputs: Key, compute: Callable[[], T | Abstained]) -> T:
    """Return a forecast that is computed once. Raises Abstained."""
    forecast = _once(results, inputs, compute)
    if isinstance(forecast, Abstained):
        raise forecast
    return forecast


def _fill(
    results: Known[T], queries: Iterable[Q], inputs_of: Callable[[Q], Key], compute: Callable[[list[Q]], Iterable[T]]
) -> None:
    """Compute the results that are missing together."""
    missing = {key: query for query in queries if (key := _key(*inputs_of(query))) not in results}
    for (key, query), result in zip(missing.items(), compute(list(missing.values())), strict=True):
        results[key] = inputs_of(query), result


def _or_missing(measure: Callable[[Evidence], T], seen: Evidence) -> T | NotMeasured:
    try:
        return measure(seen)
    except NotMeasured as missing:
        return missing


def _measured(deployment: Deployment, assumed: MeasuredLoad) -> BusyMeasurements:
    load = assumed.calibrated_on or assumed
    return BusyMeasurements(
        deployment,
        load.load,
        load.busy_tok_s,
        load.tpot_ms,
        load.ttft_ms,
        load.kv_use,
        load.memory_active,
        load.gemm_active,
        load.evidence.operating_points(),
    )


@dataclass(frozen=True, slots=True)
class EnergyPrice:
    """Price of a kilowatt-hour for the owner of the hardware."""

    nano_usd_per_kwh: int
    pue: float
    """Power usage effectiveness: facility energy over device energy, 1 or more."""


@dataclass(frozen=True, slots=True)
class Context:
    """Evidence and prices of one advice run."""

    market: Market
    now_ts: int
    """Epoch seconds, UTC: commitments that ended before are over; listed prices age against it."""
    deployments: Mapping[int, Evidence] = field(default_factory=dict)
    """Evidence by deployment id."""
    services: Mapping[str, Evidence] = field(default_factory=dict)
    """Evidence of the sum of each service's deployments, minute by minute, by service name."""
    devices: Mapping[int, Evidence] = field(default_factory=dict)
    """Evidence by device id."""
    nano_usd_per_hour: Mapping[int, int | None] = field(default_factory=dict)
    """Price by device id, in force now; of a partition its share of the device's. None where no price is set."""
    slo: Slo = field(default_factory=Slo)
    """Objectives of services that have none of their own."""
    listed: Mapping[int, str] = field(default_factory=dict)
    """Source, date and marks of the list price by device id, where nobody set a price."""
    priced_by: Mapping[int, Offer] = field(default_factory=dict)
    """The list price itself, for the same device ids."""
    allowed_regions: frozenset[str] = frozenset()
    """Regions that a service may move to, beside the one it runs in."""
    token_apis: frozenset[str] = frozenset()
    """Serverless APIs that may get prompts, after a person compared their answers."""
    energy: EnergyPrice | None = None
    destination_end: int | None = None
    """End of the interval of prices elsewhere at which the likely bill is: 0 (low) or 2 (high); None: its middle."""
    forecasts: Forecasts = field(default_factory=Forecasts, compare=False, repr=False)
    """Forecasts of this run."""

    @property
    def today(self) -> date:
        """The day of `now_ts`, UTC."""
        return datetime.fromtimestamp(self.now_ts, UTC).date()

    def evidence(self, deployment_id: int) -> Evidence:
        """Return the measurements of a deployment; nothing for one that does not run yet."""
        seen = self.deployments.get(deployment_id)
        return Evidence({}) if seen is None else seen
