"""Forecasts of one advice run: those of many proposals are computed side by side, and each only once."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pertoken.catalog.market import Market
from pertoken.evidence import Evidence, NotMeasured
from pertoken.forecast.host import Measured, calibrate_all
from pertoken.forecast.queue.latency import Asked, Latency, latencies, overruns
from pertoken.forecast.second_opinion.opinion import Opinion
from pertoken.forecast.served import Abstained
from pertoken.forecast.serving import Calibration, Change, Comparison, Forecast, compare_all
from pertoken.savings.load import MeasuredArrivals, MeasuredLoad, measured_arrivals, measured_load
from pertoken.savings.slo import fewest, near_miss_limits
from pertoken.state.deployment import Deployment
from pertoken.state.service import Slo

T = TypeVar("T")
Key = tuple[object, ...]
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
class Questions:
    """The deployments of one service that a proposal changes."""

    of: tuple[Question, ...]
    resized: bool
    """Whether the busiest replica stands for all of them."""


@dataclass(frozen=True, slots=True)
class Forecasts:
    """What was forecast already in a run. Values are computed when they are asked for, or before by `prepare`."""

    _loads: Known[MeasuredLoad | NotMeasured] = field(default_factory=dict)
    _arrivals: Known[MeasuredArrivals | NotMeasured] = field(default_factory=dict)
    _calibrations: Known[Calibration | Abstained | ValueError] = field(default_factory=dict)
    _changes: Known[Change | Forecast | Abstained] = field(default_factory=dict)
    """Of the proposals of the last `prepare`, and later ones; so are the overruns."""
    _latencies: Known[Latency | Abstained] = field(default_factory=dict)
    """Of all proposals: what runs now is an end of many of them. So are the counts of replicas."""
    _fewest: dict[tuple[Slo, int], Known[int | None]] = field(default_factory=dict)
    _overruns: dict[Slo, Known[bool | Abstained]] = field(default_factory=dict)

    def load(self, seen: Evidence) -> MeasuredLoad:
        """Return the measured load in the evidence. Raises NotMeasured."""
        found = _once(self._loads, (seen,), lambda: _or_missing(measured_load, seen))
        if isinstance(found, NotMeasured):
            raise found
        return found

    def arrivals(self, seen: Evidence) -> MeasuredArrivals | NotMeasured:
        """Return the measured arrivals in the evidence, or what was not measured."""
        return _once(self._arrivals, (seen,), lambda: _or_missing(measured_arrivals, seen))

    def calibration(self, now: Deployment, load: MeasuredLoad, market: Market) -> Calibration:
        """Return what a deployment's own measurements show of the model. Raises Abstained or ValueError."""
        found = _once(self._calibrations, (now, load), lambda: calibrate_all([_measured(now, load)], market)[0])
        if isinstance(found, Exception):
            raise found
        return found

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
        found = _once(self._changes, key, lambda: compare_all([comparison], market, opinion)[0])
        if isinstance(found, Abstained):
            raise found
        return found

    def overruns(self, asked: Asked, slo: Slo, market: Market) -> bool:
        """Return whether the likely latency after a change refuses it. Raises Abstained."""
        known = self._overruns.setdefault(slo, {})
        found = _once(known, _of(asked), lambda: overruns([asked], near_miss_limits(slo), market)[0])
        if isinstance(found, Abstained):
            raise found
        return found

    def latency(self, asked: Asked, market: Market) -> Latency:
        """Return the latency of one deployment. Raises Abstained."""
        found = _once(self._latencies, _of(asked), lambda: latencies([asked], market)[0])
        if isinstance(found, Abstained):
            raise found
        return found

    def fewest(self, asked: Asked, slo: Slo, count: int, market: Market) -> int | None:
        """Return the fewest replicas that hold `count` times the arrivals of one, as `slo.fewest`. Raises Abstained."""
        known = self._fewest.setdefault((slo, count), {})
        return _once(known, _of(asked), lambda: fewest(asked, slo, count, market))

    def prepare(self, proposed: Sequence[Questions], market: Market, opinion: Opinion | None) -> None:
        """Forecast many changes side by side. What cannot be forecast is raised when it is asked for."""
        self._changes.clear()
        self._overruns.clear()
        known = [
            (each, load) for one in proposed for each in one.of if (load := self._measured_load(each.seen)) is not None
        ]
        self._calibrate({id(each.now): (each.now, load) for each, load in known}.values(), market)
        judged = self._compare(known, market, opinion)
        by_slo: dict[Slo, list[Asked]] = {}
        for question, asked in judged.values():
            by_slo.setdefault(question.slo, []).append(asked)
        for slo, some in by_slo.items():
            results = overruns(some, near_miss_limits(slo), market)
            pairs = zip(some, results, strict=True)
            self._overruns[slo] = {_key(*_of(asked)): (_of(asked), result) for asked, result in pairs}
        ends = {_key(*_of(asked)): asked for one in proposed for asked in self._ends(one, judged)}
        shown = [asked for key, asked in ends.items() if key not in self._latencies]
        for asked, latency in zip(shown, latencies(shown, market), strict=True):
            self._latencies[_key(*_of(asked))] = _of(asked), latency

    def _calibrate(self, present: Iterable[tuple[Deployment, MeasuredLoad]], market: Market) -> None:
        fresh = [each for each in present if _key(*each) not in self._calibrations]
        found = calibrate_all([_measured(now, load) for now, load in fresh], market)
        for each, calibration in zip(fresh, found, strict=True):
            self._calibrations[_key(*each)] = each, calibration

    def _compare(
        self, known: Sequence[tuple[Question, MeasuredLoad]], market: Market, opinion: Opinion | None
    ) -> dict[int, tuple[Question, Asked]]:
        """Compare each change; return those whose latency decides, by the identity of their question."""
        ready = [
            (each, load, calibration)
            for each, load in known
            if isinstance(calibration := self._calibrations[_key(each.now, load)][1], Calibration)
        ]
        comparisons = [Comparison(each.now, each.to, load.load, calibration) for each, load, calibration in ready]
        judged = {}
        for (each, load, calibration), change in zip(ready, compare_all(comparisons, market, opinion), strict=True):
            of = each.now, each.to, load, opinion
            self._changes[_key(*of)] = of, change
            requests = self.arrivals(each.seen)
            if isinstance(change, Change) and change.after.demand is not None and not isinstance(requests, NotMeasured):
                judged[id(each)] = each, Asked(each.to, load.load, requests.arrivals, calibration)
        return judged

    def _ends(self, one: Questions, judged: Mapping[int, tuple[Question, Asked]]) -> Iterator[Asked]:
        """Yield what the latencies of a proposal are forecast from: after it and, of the first, before it."""
        shown = self._shown(one, judged)
        yield from (judged[id(each)][1] for each in shown)
        for each in shown[:1]:
            asked = judged[id(each)][1]
            if not self._overruns[each.slo][_key(*_of(asked))][1]:
                yield replace(asked, deployment=each.now)

    def _shown(self, one: Questions, judged: Mapping[int, tuple[Question, Asked]]) -> Sequence[Question]:
        """Return the deployments whose latency is shown: the first that refuses the proposal, else those kept."""
        for each in one.of:
            if id(each) not in judged:
                return ()
            if self._overruns[each.slo][_key(*_of(judged[id(each)][1]))][1]:
                return (each,)
        if one.resized and one.of:
            return (max(one.of, key=lambda each: self.load(each.seen).busy),)
        return one.of

    def _measured_load(self, seen: Evidence) -> MeasuredLoad | None:
        try:
            return self.load(seen)
        except NotMeasured:
            return None


def _key(*of: object) -> tuple[int, ...]:
    return tuple(map(id, of))


def _of(asked: Asked) -> Key:
    return asked.deployment, asked.arrivals, asked.calibration


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
        load.products_active,
    )
