"""Forecasts of one advice run: those of many proposals are computed side by side, and each only once."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pertoken.catalog.market import Market
from pertoken.evidence import Evidence, NotMeasured
from pertoken.forecast.host import Measured, calibrate_all
from pertoken.forecast.measured.realised import Realised
from pertoken.forecast.queue.latency import Latency, LatencyQuery, latencies, overruns
from pertoken.forecast.queue.load import Arrivals
from pertoken.forecast.queue.replicas import Counts, SloMs, fewest_all
from pertoken.forecast.second_opinion.opinion import Opinion
from pertoken.forecast.served import Abstained
from pertoken.forecast.serving import Calibration, Change, Comparison, Forecast, Range, compare_all
from pertoken.savings.load import MeasuredArrivals, MeasuredLoad, measured_arrivals, measured_load
from pertoken.savings.slo import Latencies, near_miss_limits, tail_limits
from pertoken.state.deployment import Deployment
from pertoken.state.service import Slo

T = TypeVar("T")
Key = tuple[object, ...]
Loads = tuple[MeasuredLoad | NotMeasured, MeasuredArrivals | NotMeasured]
"""The load and the arrivals of one subject, each or what was not measured."""
Known = dict[tuple[int, ...], tuple[Key, T]]
"""Results by the identity of what they are of, which is kept alive beside them."""


@dataclass(frozen=True, slots=True)
class Question:
    """A change of one deployment that has to be forecast."""

    now: Deployment
    to: Deployment
    seen: Evidence
    """Of `now`."""
    slo: Slo


@dataclass(frozen=True, slots=True)
class Sized:
    """Replicas of a service that have to be counted."""

    to: Deployment
    """Like each of them."""
    arrivals: Arrivals
    """Of the whole service."""
    limits: SloMs


@dataclass(frozen=True, slots=True)
class Questions:
    """Forecasts that one service needs for a proposal."""

    of: tuple[Question, ...]
    """Its deployments that change; where its replicas are counted and none changes, the busiest as it is."""
    sized: Sized | None = None
    """If they are counted, the busiest of `of` stands for all of them."""


@dataclass(frozen=True, slots=True)
class Forecasts:
    """Cache of an advice run's forecasts. Values are computed when first requested, or earlier by `prepare`."""

    realised: Mapping[int, tuple[Realised, ...]] = field(default_factory=dict)
    """Verified changes by deployment id, by which its forecast is calibrated."""
    _loads: Known[MeasuredLoad | NotMeasured] = field(default_factory=dict)
    _arrivals: Known[MeasuredArrivals | NotMeasured] = field(default_factory=dict)
    _calibrations: Known[Calibration | Abstained | ValueError] = field(default_factory=dict)
    _changes: Known[Change | Forecast | Abstained] = field(default_factory=dict)
    """Of the proposals of the last `prepare`, and later ones; so are the overruns."""
    _latencies: Known[Latency | Abstained] = field(default_factory=dict)
    """Of all proposals: what runs now is an end of many of them. So are the counts of replicas."""
    _fewest: dict[tuple[SloMs, tuple[float, ...]], Known[Counts | Abstained]] = field(default_factory=dict)
    _overruns: dict[Slo, Known[bool | Abstained]] = field(default_factory=dict)

    def load(self, seen: Evidence) -> MeasuredLoad:
        """Return the measured load in the evidence. Raises NotMeasured."""
        load = _once(self._loads, (seen,), lambda: _or_missing(measured_load, seen))
        if isinstance(load, NotMeasured):
            raise load
        return load

    def arrivals(self, seen: Evidence) -> MeasuredArrivals | NotMeasured:
        """Return the measured arrivals in the evidence, or what was not measured."""
        return _once(self._arrivals, (seen,), lambda: _or_missing(measured_arrivals, seen))

    def measure(self, seen: Evidence) -> None:
        """Find the load and the arrivals in the evidence, ahead of whoever asks for them."""
        self.measured(seen)

    def measured(self, seen: Evidence) -> Loads:
        """Return the load and the arrivals in the evidence."""
        load = _once(self._loads, (seen,), lambda: _or_missing(measured_load, seen))
        return load, self.arrivals(seen)

    def adopt(self, seen: Evidence, measured: Loads) -> None:
        """Take over what a fork of this process measured in the same evidence."""
        of = (seen,)
        (self._loads[_key(*of)], self._arrivals[_key(*of)]) = (of, measured[0]), (of, measured[1])

    def calibration(self, now: Deployment, load: MeasuredLoad, market: Market) -> Calibration:
        """Return what a deployment's own measurements show of the model. Raises Abstained or ValueError."""
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
        opinion: Opinion | None,
    ) -> Change | Forecast:
        """Return what a change does. Raises Abstained."""
        comparison = Comparison(now, to, load.load, calibration)
        key = (now, to, load, opinion)
        change = _once(self._changes, key, lambda: compare_all([comparison], market, opinion)[0])
        if isinstance(change, Abstained):
            raise change
        return change

    def overruns(self, asked: LatencyQuery, slo: Slo, market: Market) -> bool:
        """Return whether the likely latency after a change refuses it. Raises Abstained."""
        known = self._overruns.setdefault(slo, {})
        answer = _once(known, _of(asked), lambda: overruns([asked], near_miss_limits(slo), market)[0])
        if isinstance(answer, Abstained):
            raise answer
        return answer

    def latency(self, asked: LatencyQuery, market: Market) -> Latency:
        """Return the latency of one deployment. Raises Abstained."""
        latency = _once(self._latencies, _of(asked), lambda: latencies([asked], market)[0])
        if isinstance(latency, Abstained):
            raise latency
        return latency

    def replicas(self, asked: LatencyQuery, slo: Slo, count: int, market: Market) -> int | None:
        """Return the fewest replicas that hold `count` times the requests; None for no number. Raises Abstained."""
        return self.fewest(asked, (float(count),), tail_limits(slo), market)[0]

    def fewest(self, asked: LatencyQuery, factors: tuple[float, ...], limits: SloMs, market: Market) -> Counts:
        """Return the fewest replicas that hold the arrivals times each factor, as `fewest_all`. Raises Abstained."""
        known = self._fewest.setdefault((limits, factors), {})
        counts = _once(known, _sized(asked), lambda: fewest_all([(asked, factors)], limits, market)[0])
        if isinstance(counts, Abstained):
            raise counts
        return counts

    # -- many at once ----------------------------------------------------------------------------------------------

    def prepare(self, proposed: Sequence[Questions], market: Market, opinion: Opinion | None) -> None:
        """Forecast many changes side by side, as far as pricing asks for them: of a proposal that its first deployment
        refuses no other is forecast. What cannot be forecast is raised when it is asked for."""
        self._changes.clear()
        self._overruns.clear()
        firsts = [one.of[0] for one in proposed if one.of]
        judged = self._judged(firsts, market, opinion)
        stand = [one for one in proposed if one.of and self._stands(one.of[0], judged)]
        judged |= self._judged([question for one in stand for question in one.of[1:]], market, opinion)
        self._count(stand, judged, market, opinion)
        ends = [asked for one in proposed for asked in self._ends(one, judged)]
        self._latencies_of(ends, market)

    def show(self, shown: Iterable[Latencies], market: Market) -> None:
        """Forecast all that is shown of several latencies: before and after, and how many replicas hold either."""
        known = [row for row in shown if row.ends is not None]
        self._latencies_of([end for row in known for end in row.ends or ()], market)
        self._fewest_of(
            [(end, (float(row.count),), tail_limits(row.slo)) for row in known for end in row.ends or ()], market
        )

    def judge(self, read: Iterable[Latencies], market: Market) -> None:
        """Forecast the latency after several changes side by side, ahead of whoever reads it of all of them."""
        self._latencies_of([row.ends[1] for row in read if row.ends is not None], market)

    def _judged(
        self, questions: Sequence[Question], market: Market, opinion: Opinion | None
    ) -> dict[int, tuple[Question, LatencyQuery]]:
        """Compare each change, and judge its latency; return those that have one, by the identity of their question."""
        known = [(question, load) for question in questions if (load := self._measured_load(question.seen)) is not None]
        self._calibrate({id(question.now): (question.now, load) for question, load in known}.values(), market)
        judged = self._compare(known, market, opinion)
        by_slo: dict[Slo, list[LatencyQuery]] = {}
        for question, asked in judged.values():
            by_slo.setdefault(question.slo, []).append(asked)
        for slo, some in by_slo.items():
            of = self._overruns.setdefault(slo, {})
            for asked, result in zip(some, overruns(some, near_miss_limits(slo), market), strict=True):
                of[_key(*_of(asked))] = _of(asked), result
        return judged

    def _calibrate(self, present: Iterable[tuple[Deployment, MeasuredLoad]], market: Market) -> None:
        fresh = [question for question in present if _key(*question) not in self._calibrations]
        calibrations = calibrate_all([self._measured(now, load) for now, load in fresh], market)
        for question, calibration in zip(fresh, calibrations, strict=True):
            self._calibrations[_key(*question)] = question, calibration

    def _compare(
        self, known: Sequence[tuple[Question, MeasuredLoad]], market: Market, opinion: Opinion | None
    ) -> dict[int, tuple[Question, LatencyQuery]]:
        """Compare each change; return those whose latency decides, by the identity of their question."""
        ready = [
            (question, load, calibration.for_change(question.to))
            for question, load in known
            if isinstance(calibration := self._calibrations[_key(question.now, load)][1], Calibration)
        ]
        comparisons = [
            Comparison(question.now, question.to, load.load, calibration) for question, load, calibration in ready
        ]
        judged = {}
        for (question, load, calibration), change in zip(ready, compare_all(comparisons, market, opinion), strict=True):
            of = question.now, question.to, load, opinion
            self._changes[_key(*of)] = of, change
            requests = self.arrivals(question.seen)
            if isinstance(change, Change) and change.after.demand is not None and not isinstance(requests, NotMeasured):
                judged[id(question)] = question, LatencyQuery(question.to, load.load, requests.arrivals, calibration)
        return judged

    def _stands(self, question: Question, judged: Mapping[int, tuple[Question, LatencyQuery]]) -> bool:
        """Return whether a change of one deployment is not refused for its own latency or demand."""
        return id(question) in judged and not self._late(question, judged)

    def _late(self, question: Question, judged: Mapping[int, tuple[Question, LatencyQuery]]) -> bool:
        return self._overruns[question.slo][_key(*_of(judged[id(question)][1]))][1] is not False

    def _count(
        self,
        stand: Iterable[Questions],
        judged: Mapping[int, tuple[Question, LatencyQuery]],
        market: Market,
        opinion: Opinion | None,
    ) -> None:
        """Count the replicas of services of which all deployments stand."""
        counted = []
        for one in stand:
            if one.sized is not None and all(self._stands(question, judged) for question in one.of):
                busiest = self._busiest(one)
                load, (_, asked) = self.load(busiest.seen), judged[id(busiest)]
                change = self._changes[_key(busiest.now, busiest.to, load, opinion)][1]
                factors = arrival_factors(full_batch(change) if isinstance(change, Change) else None)
                whole = LatencyQuery(one.sized.to, asked.load, one.sized.arrivals, asked.calibration)
                counted.append((whole, factors, one.sized.limits))
        self._fewest_of(counted, market)

    def _busiest(self, one: Questions) -> Question:
        return max(one.of, key=lambda question: self.load(question.seen).busy)

    def _fewest_of(self, sized: Iterable[tuple[LatencyQuery, tuple[float, ...], SloMs]], market: Market) -> None:
        by_limits: dict[SloMs, dict[tuple[tuple[int, ...], tuple[float, ...]], LatencyQuery]] = {}
        for asked, factors, limits in sized:
            key = _key(*_sized(asked))
            if key not in self._fewest.get((limits, factors), {}):
                by_limits.setdefault(limits, {})[key, factors] = asked
        for limits, some in by_limits.items():
            of = [(asked, factors) for (_, factors), asked in some.items()]
            for (asked, factors), counts in zip(of, fewest_all(of, limits, market), strict=True):
                self._fewest.setdefault((limits, factors), {})[_key(*_sized(asked))] = _sized(asked), counts

    def _latencies_of(self, ends: Iterable[LatencyQuery], market: Market) -> None:
        fresh = {_key(*_of(asked)): asked for asked in ends}
        left = [asked for key, asked in fresh.items() if key not in self._latencies]
        for asked, latency in zip(left, latencies(left, market), strict=True):
            self._latencies[_key(*_of(asked))] = _of(asked), latency

    def _ends(self, one: Questions, judged: Mapping[int, tuple[Question, LatencyQuery]]) -> Iterator[LatencyQuery]:
        """Yield what the latencies after a proposal are forecast from: of the first deployment that refuses it, else of
        those that are shown."""
        for question in one.of:
            if id(question) not in judged:
                return
            if self._late(question, judged):
                yield judged[id(question)][1]
                return
        if one.sized is not None and one.of:
            yield judged[id(self._busiest(one))][1]
        else:
            yield from (judged[id(question)][1] for question in one.of)

    def uncached(self) -> "Forecasts":
        """Return forecasts of which none is made yet, with the same verified changes."""
        return Forecasts(self.realised)

    def _measured(self, now: Deployment, load: MeasuredLoad) -> Measured:
        return replace(_measured(now, load), realised=self.realised.get(now.deployment_id, ()))

    def _measured_load(self, seen: Evidence) -> MeasuredLoad | None:
        try:
            return self.load(seen)
        except NotMeasured:
            return None


def full_batch(change: Change) -> Range | None:
    """Return the generated tokens/s of a full batch after a change; None where it was not forecast."""
    return change.after.saturated.tok_s if change.after.saturated else None


def arrival_factors(at_most: Range | None) -> tuple[float, float, float]:
    """Return the factors on arrivals that stand for the slow end of a forecast, for what is likely, and for its fast
    end; `at_most` as `full_batch`."""
    if at_most is None:
        return 1.0, 1.0, 1.0
    low, likely, high = at_most
    return likely / low, 1.0, likely / high


def _key(*of: object) -> tuple[int, ...]:
    return tuple(map(id, of))


def _of(asked: LatencyQuery) -> Key:
    return asked.deployment, asked.arrivals, asked.calibration


def _sized(asked: LatencyQuery) -> Key:
    return asked.deployment, asked.load, asked.arrivals, asked.calibration


def _once(known: Known[T], of: Key, compute: Callable[[], T]) -> T:
    key = _key(*of)
    if key not in known:
        known[key] = of, compute()
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
