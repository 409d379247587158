"""Prices of proposals: one call of a rule becomes a recommendation; a shard prices its calls in batches."""

import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar

from pertoken.advisor.changes.commands import commands
from pertoken.advisor.changes.title import (
    FLEET,
    AdviceTarget,
    PricingChoices,
    change_lines,
    edits,
    effort_of,
    present_values,
    risk_of,
    target_of,
    title,
    touches,
)
from pertoken.advisor.checks import (
    full_batch_factor,
    held_again,
    published_notes,
    refusal_by_facts,
    refusal_by_settings,
)
from pertoken.advisor.leaving import Departure, best_by_service, departures
from pertoken.advisor.present import Present, evidence_lines, owner_of, prices_of
from pertoken.advisor.proposals import Candidate, SentRefusal, candidate, encoded, refusal_of, validated
from pertoken.advisor.refusals import RefusedChange, folded
from pertoken.advisor.worker.child import Inputs, trace
from pertoken.advisor.worker.run import RuleInfo, RuleRun, TargetResult
from pertoken.evidence import Evidence
from pertoken.forecast.tiers import split_tier
from pertoken.metrics import label_of
from pertoken.proof.recommendation import LatencyLine, Recommendation, Refusal, State, Variant, identity
from pertoken.rule import InvalidEdit, Proposal
from pertoken.savings.context import Context
from pertoken.savings.estimate import Estimate, estimate, prepare, prepare_shown
from pertoken.savings.saving import Saving
from pertoken.savings.sizing import objectives
from pertoken.savings.slo import FIGURES, Latencies
from pertoken.state.deployment import WEIGHT_BYTES, Deployment
from pertoken.state.service import Service, Slo
from pertoken.units import format_usd
from pertoken.window.figures import TICK_S, Progress

MAX_PROPOSALS = 100
"""Maximum different proposals of one rule for one target."""
NO_SAVING = "no-saving"
COSTS_MORE = "costs-more"
"""The bill would rise by more than the capacity is worth."""
WORTHLESS = (NO_SAVING, COSTS_MORE)
FEWER_BITS_GAIN = 1.15
"""Minimum saving of weights below 8 bits over those in 8 bits, which alter outputs less. A judgement."""
MAX_VARIANTS = 3
"""Maximum variants of one rule for one target that save most: of those that plans count, and of the others."""


@dataclass
class TargetOutcome:
    """Variants and refusals of a rule for one target."""

    variants: list[Variant] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    ignored: int = 0
    """Proposals that equal the present."""
    already: dict[str, None] = field(default_factory=dict)
    """Present values that the ignored proposals set again, as phrases."""


@dataclass(frozen=True)
class ValidProposals:
    """Proposals of a rule for one target, validated and not yet priced."""

    candidates: Sequence[tuple[Candidate, AdviceTarget]]
    """Distinct candidates, each with its own target."""
    by_target: Mapping[AdviceTarget, TargetOutcome]
    """Outcomes by target; pricing adds variants and refusals."""

    @property
    def size(self) -> int:
        """Number of deployments and services that the candidates change, summed over candidates."""
        return sum(len(possible.diff.targets) for possible, _ in self.candidates)


@dataclass(frozen=True)
class PricedProposals:
    """Proposals of a rule for one target, with prices."""

    proposed: ValidProposals
    kept: Mapping[AdviceTarget, Sequence[tuple[Candidate, Estimate]]]
    """Candidates that become variants, by target, best first."""
    worthless: Sequence[tuple[Candidate, Estimate]] = ()
    """Candidates that are refused because they save nothing alone."""

    @property
    def candidates(self) -> Iterator[tuple[Candidate, Estimate]]:
        """All of these candidates."""
        return chain(*self.kept.values(), self.worthless)


@dataclass(frozen=True)
class Pricing:
    """Prices the proposals of rules."""

    gathered: Present
    progress: Callable[[float], None] = lambda share: None
    """Called with the share of the proposals that are priced."""

    @property
    def context(self) -> Context:
        """Context of `gathered`."""
        return self.gathered.context

    def proposed(self, rule_id: str, subject: Deployment | Service | None, yielded: Sequence[object]) -> ValidProposals:
        """Validate the values that a rule yielded, as a worker sends them.

        Raises the first error of any value: the caller makes it a FAILED row of the rule.
        """
        present, by_target = self.gathered.fleet, defaultdict[AdviceTarget, TargetOutcome](TargetOutcome)
        call_target = self.target(subject)
        keys: set[str] = set()
        proposals: list[tuple[Candidate, AdviceTarget]] = []
        for record in yielded:
            refused = refusal_of(record)
            if refused is not None:
                target = call_target if subject is not None else self._about(refused)
                by_target[target].refusals.append(Refusal(refused.code, refused.reason))
                continue
            configured = rule_id in self.gathered.configured_rules
            possible = candidate(present, record, subject, self.context.market, configured=configured)
            if possible is None:
                by_target[call_target].ignored += 1
                by_target[call_target].already |= dict.fromkeys(present_values(record, present))
                continue
            if possible.diff.key in keys:
                continue
            keys.add(possible.diff.key)
            if len(keys) > MAX_PROPOSALS:
                raise ValueError(f"it made more than {MAX_PROPOSALS} different proposals")
            target = call_target if subject is not None else target_of(possible.diff, present)
            by_target[target]  # so that the target has an outcome without variants
            refusal = self._refusal(possible, configured=configured)
            if refusal is not None:
                by_target[target].refusals.append(self._refused(possible, refusal))
                continue
            proposals.append((possible, target))
        if not by_target:
            by_target[call_target].refusals.append(
                Refusal("no-reason", "the rule yielded neither a proposal nor a reason")
            )
        return ValidProposals(proposals, by_target)

    def valid(self, rule_id: str, proposal: Proposal) -> ValidProposals:
        """Validate a proposal over the fleet that this program makes; no candidates if it is refused or no change.

        Raises InvalidEdit for a fleet that no edit produces.
        """
        present, configured = self.gathered.fleet, rule_id in self.gathered.configured_rules
        possible = validated(present, proposal, None, self.context.market, configured=configured)
        if possible is None or self._refusal(possible, configured=configured) is not None:
            return ValidProposals((), {})
        target = target_of(possible.diff, present)
        return ValidProposals([(possible, target)], {target: TargetOutcome()})

    def _refusal(self, possible: Candidate, *, configured: bool) -> Refusal | None:
        """Return why settings or published facts refuse a candidate; None if they do not."""
        present, context = self.gathered.fleet, self.context
        return refusal_by_settings(possible.diff, present, possible.after, self.gathered.forbidden) or refusal_by_facts(
            present, possible.after, context.market, accepted=configured
        )

    def prepare(self, together: Iterable[ValidProposals]) -> None:
        """Forecast the proposals of several targets in one batch, which is faster than one by one.

        Raises the first error of any proposal.
        """
        fleets = [possible.after for proposed in together for possible, _ in proposed.candidates]
        prepare(self.gathered.fleet, fleets, self.context)

    def priced(self, together: Sequence[ValidProposals]) -> list[PricedProposals | Exception]:
        """Price the proposals of several targets, and keep those that save most of each.

        A target gets the error of a proposal that cannot be priced.
        """
        candidates = [possible for proposed in together for possible, _ in proposed.candidates]
        estimates = [
            self._estimate(possible, position / len(candidates)) for position, possible in enumerate(candidates)
        ]
        doubted = (
            money.latency
            for possible, money in zip(candidates, estimates, strict=True)
            if isinstance(money, Estimate) and money.latency is not None and self._may_hold_again(possible, money)
        )
        with suppress(Exception):  # then each is forecast alone, so that only its target fails
            self.context.forecasts.judge(doubted, self.context.market)
        judged = (self._judged(possible, money) for possible, money in zip(candidates, estimates, strict=True))
        return [self._kept(proposed, [next(judged) for _ in proposed.candidates]) for proposed in together]

    def _estimate(self, possible: Candidate, share: float) -> Estimate | Exception:
        """Return the estimate of a candidate, or the error of pricing it. `share` of the candidates come before it."""
        self.progress(share)
        try:
            return estimate(self.gathered.fleet, possible.after, self.context, possible.diff)
        except Exception as error:  # only its target fails: the others are still priced
            return error

    def _judged(self, possible: Candidate, money: Estimate | Exception) -> tuple[Estimate, Refusal | None] | Exception:
        """Return an estimate and why it is not worth showing, or the error of pricing it."""
        if isinstance(money, Exception):
            return money
        try:
            refusal = _against(money)
            if refusal is None:
                return money, None
            if self._may_hold_again(possible, money) and (missed := self._holds_again(possible, money)):
                return replace(money, saving=None, unpriced=missed), None
            return money, self._refused(possible, refusal)
        except Exception as error:
            return error

    def _kept(
        self, proposed: ValidProposals, judged: Sequence[tuple[Estimate, Refusal | None] | Exception]
    ) -> PricedProposals | Exception:
        """Return the candidates of a target that save most, with its other candidates refused; or its first error."""
        kept, worthless = defaultdict[AdviceTarget, list[tuple[Candidate, Estimate]]](list), []
        for (possible, target), result in zip(proposed.candidates, judged, strict=True):
            if isinstance(result, Exception):
                return result
            money, refusal = result
            if refusal is not None:
                proposed.by_target[target].refusals.append(refusal)
                worthless += [(possible, money)] * (refusal.code in WORTHLESS)
            else:
                kept[target].append((possible, money))
        return PricedProposals(
            proposed,
            {target: self._best(candidates, proposed.by_target[target]) for target, candidates in kept.items()},
            worthless,
        )

    def _best(
        self, candidates: Sequence[tuple[Candidate, Estimate]], outcome: TargetOutcome
    ) -> list[tuple[Candidate, Estimate]]:
        """Return the candidates of a target that save most; weights in fewer bits that save little more are refused."""
        eight_bits = [_saving(money) for possible, money in candidates if _weight_bytes(possible) == 1]
        bankable, capacity = max(eight_bits, default=(0, 0))
        enough = bankable * FEWER_BITS_GAIN, capacity * FEWER_BITS_GAIN
        best = []
        for possible, money in sorted(candidates, key=_rank):
            if _weight_bytes(possible) < 1 and (0, 0) < _saving(money) <= enough:
                reason = f"it saves less than {FEWER_BITS_GAIN - 1:.0%} more than weights in 8 bits"
                outcome.refusals.append(self._refused(possible, Refusal("fewer-bits", reason)))
            else:
                best.append((possible, money))
        counted = [(possible, money) for possible, money in best if money.uncounted is None]
        uncounted = [(possible, money) for possible, money in best if money.uncounted is not None]
        return sorted((*counted[:MAX_VARIANTS], *uncounted[:MAX_VARIANTS]), key=_surest)

    def prepare_shown(self, together: Iterable[PricedProposals]) -> None:
        """Forecast the figures to show for several targets' proposals in one batch.

        Raises the first error of any proposal.
        """
        shown = (money for priced in together for kept in priced.kept.values() for _, money in kept)
        prepare_shown(shown, self.context)

    def outcomes(self, priced: PricedProposals) -> Mapping[AdviceTarget, TargetOutcome]:
        """Return the outcomes of a rule by target, variants best first. Raises the first error of any proposal."""
        by_target = priced.proposed.by_target
        for target, candidates in by_target.items():
            candidates.variants = [self._variant(possible, money) for possible, money in priced.kept.get(target, ())]
            candidates.refusals = folded(candidates.refusals)
            if not candidates.variants and not candidates.refusals:
                candidates.refusals.append(Refusal("equals-present", _equals_present(candidates)))
        return by_target

    def target(self, subject: Deployment | Service | None) -> AdviceTarget:
        """Return the target of a call for a deployment, a service or (None) the fleet."""
        if isinstance(subject, Service):
            return AdviceTarget("service", subject.name, subject.name)
        if isinstance(subject, Deployment):
            host = self.gathered.addresses.hosts.get(subject.deployment_id)
            label = f"{subject.name} on {host}" if host else subject.name
            return AdviceTarget("deployment", str(subject.deployment_id), label)
        return FLEET

    def _about(self, refused: SentRefusal) -> AdviceTarget:
        """Return the target of a refusal over the fleet. Raises InvalidEdit for a subject outside the fleet."""
        if refused.about is None:
            return FLEET
        kind, key = refused.about
        if kind == "service":
            return self.target(self.gathered.fleet.service(str(key)))
        if kind == "deployment":
            return self.target(self.gathered.fleet.deployment(int(key)))
        host_id = self.gathered.fleet.device(int(key)).host_id if kind == "device" else int(key)
        host = self.gathered.fleet.host(host_id)
        return AdviceTarget("host", str(host.host_id), host.name)

    def _refused(self, possible: Candidate, refusal: Refusal) -> RefusedChange:
        what = title(possible.diff, self.gathered.fleet, PricingChoices())
        return RefusedChange(refusal.code, refusal.reason, what)

    def _variant(self, possible: Candidate, money: Estimate) -> Variant:
        present, difference = self.gathered.fleet, possible.diff
        chosen = PricingChoices(money.resized, money.released, priced=money.unpriced is None, placed=money.ordered)
        step = commands(difference, present, self.gathered.addresses, chosen)
        changed = touches(difference, present)
        tier, assumptions = split_tier(money.assumptions)
        return Variant(
            key=difference.key,
            title=title(difference, present, chosen),
            changes=change_lines(difference, present, chosen),
            edits=edits(difference),
            commands=step.apply,
            undo=step.undo,
            saving=money.saving,
            if_confirmed=money.if_confirmed,
            to_confirm=money.to_confirm,
            throughput_ratio=money.throughput_ratio,
            slo=money.slo,
            latency=self._latency(money.latency, changed),
            latency_unknown=money.latency.unknown if money.latency else None,
            replicas_needed=money.latency.replicas if money.latency else None,
            replicas=money.replicas,
            released=money.released,
            moving=money.moving_lines,
            moving_once=money.moving.once,
            risk=risk_of(possible.proposal, difference),
            effort=effort_of(possible.proposal, difference),
            requires=possible.proposal.requires,
            excludes=possible.proposal.excludes,
            touches=changed,
            provenance=money.provenance.label if money.provenance is not None else None,
            unpriced=money.unpriced,
            break_even=money.break_even,
            tier=tier,
            assumptions=assumptions,
            against=(
                *money.against,
                *possible.proposal.against,
                *published_notes(present, possible.after, self.context.market),
            ),
            proposal=json.dumps(encoded(possible.proposal, present), sort_keys=True),
        )

    def _may_hold_again(self, possible: Candidate, money: Estimate) -> bool:
        """Return whether a change saves nothing, and its only service misses an objective now."""
        refusal = _against(money)
        if refusal is None or refusal.code not in WORTHLESS:
            return False
        names = self._services(possible)
        return len(names) == 1 and self._misses(self.gathered.fleet.service(names[0]))

    def _holds_again(self, possible: Candidate, money: Estimate) -> str | None:
        """Return missed objectives that the change would meet; None if there are none, or it misses others."""
        touched = map("service:{}".format, self._services(possible))
        lines = [line for line in self._latency(money.latency, touched) if line.slo_ms is not None]
        return held_again(lines, full_batch_factor(possible.diff, money, self.context))

    def _services(self, possible: Candidate) -> list[str]:
        changed = touches(possible.diff, self.gathered.fleet)
        return [touched.partition(":")[2] for touched in changed if "service:" in touched]

    def _misses(self, service: Service) -> bool:
        """Return whether a measured latency of a service is above its objective."""
        slo = objectives(service, self.context)
        if slo == Slo():
            return False
        seen = self.context.services.get(service.name, Evidence({}))
        limits = ((figure, getattr(slo, name)) for figure, name in FIGURES.items())
        return any(
            limit is not None and (ms := _measured_ms(seen, figure)) is not None and ms > limit
            for figure, limit in limits
        )

    def _latency(self, latencies: Latencies | None, changed: Iterable[str]) -> tuple[LatencyLine, ...]:
        """Return the forecast and measured latency of the changed service; empty if several change."""
        if latencies is None or latencies.before is None or latencies.after is None or latencies.provenance is None:
            return ()
        names = [touched.partition(":")[2] for touched in changed if touched.startswith("service:")]
        seen = self.context.services.get(names[0], Evidence({})) if len(names) == 1 else Evidence({})
        slo = objectives(self.gathered.fleet.service(names[0]), self.context) if len(names) == 1 else Slo()
        return tuple(
            LatencyLine(
                figure,
                getattr(latencies.before, name),
                getattr(latencies.after, name),
                _measured_ms(seen, figure),
                getattr(slo, name),
                latencies.provenance.label,
            )
            for figure, name in FIGURES.items()
        )


def _measured_ms(seen: Evidence, figure: str) -> float | None:
    """Return the measured value of a figure of `FIGURES`, milliseconds; None if not measured."""
    metric, _, quantile = figure.partition(" ")
    series = seen.peek(f"{metric.lower()}_s")
    return None if series is None else 1000 * float(getattr(series, quantile))


def _equals_present(outcome: TargetOutcome) -> str:
    """Return why proposals that change nothing are refused, with the values that are already present."""
    values = ", ".join(outcome.already)
    return f"already so: {values}" if values else f"proposals that equal the present state: {outcome.ignored}"


def _against(money: Estimate) -> Refusal | None:
    """Return why a priced proposal is not worth showing; None if it is."""
    if money.infeasible is not None:
        return Refusal(money.refusal_code, money.infeasible)
    if money.uncounted is not None:
        return None
    if money.saving is None or money.saving.worthless:
        code = COSTS_MORE if money.saving is not None and money.saving.pays_more else NO_SAVING
        return Refusal(code, "; ".join([_saved(money), *money.other_against]))
    return None


def _saved(money: Estimate) -> str:
    text = "the forecast shows no saving"
    if money.saving is not None:
        net, capacity = money.saving.rank
        text += f": {format_usd(net)} of the bill and {format_usd(capacity)} of capacity a month"
    if money.throughput_ratio is not None:
        low, likely, high = money.throughput_ratio
        text += f", at {likely:.2f} ({low:.2f} to {high:.2f}) times the tokens/s"
    return text


def _saving(money: Estimate) -> tuple[float, float]:
    """Return the likely dollars that leave the bill, and dollars of capacity; 0 where unpriced."""
    saving = money.saving or Saving()
    return saving.net[1], saving.capacity[1]


def _weight_bytes(possible: Candidate) -> float:
    """Return the fewest bytes of a parameter that a candidate changes weights to; infinite where it changes none."""
    dtypes = (change.after for change in possible.diff.changes if change.field == "weight_dtype")
    return min((WEIGHT_BYTES.get(str(dtype), math.inf) for dtype in dtypes), default=math.inf)


def _rank(candidate: tuple[Candidate, Estimate]) -> tuple[float, ...]:
    """Return the sort key of a candidate: largest saving first."""
    _, money = candidate
    confirmed, unconfirmed = money.saving or Saving(), money.if_confirmed or Saving()
    return tuple(-dollars for dollars in (*confirmed.rank, *unconfirmed.rank))


def _surest(candidate: tuple[Candidate, Estimate]) -> tuple[float, ...]:
    """Return the sort key of a candidate: largest sure saving first."""
    _, money = candidate
    confirmed, unconfirmed = money.saving or Saving(), money.if_confirmed or Saving()
    return tuple(-dollars for dollars in (*confirmed.sure_first(), *unconfirmed.sure_first()))


# -- rows -------------------------------------------------------------------------------------------------------------


T = TypeVar("T")

MAX_TOGETHER = 2048
"""Maximum changed deployments and services in one forecast batch, so that progress is visible: a batch takes about a
second. A quarter of it takes 4 % more time in all."""


@dataclass(frozen=True, slots=True)
class PricedCall:
    """Recommendations of one rule for one target."""

    position: int
    """Position of the target among all targets of the rule."""
    rows: tuple[Recommendation, ...]
    ended: bool
    """Whether the rule is not run for targets after this one."""


@dataclass(frozen=True, slots=True)
class PricedRun:
    """Recommendations of one rule for the targets of a shard."""

    calls: tuple[PricedCall, ...]
    departures: tuple[Departure, ...]
    """Departures that save most, by service."""
    seconds: float
    pricing_seconds: float


def priced_runs(runs: Sequence[RuleRun], inputs: Inputs, gathered: Present, progress: Progress) -> list[PricedRun]:
    """Make the rows of each rule."""
    total = sum(len(run.calls) for run in runs)
    pricer = _Pricer(gathered, lambda done: progress("pricing", min(1.0, done / max(1, total))))
    priced = []
    for run in runs:
        began = time.monotonic()
        calls = [
            PricedCall(inputs.position(call.target), tuple(rows), call.ended)
            for call, rows in zip(run.calls, pricer.rows(run), strict=True)
        ]
        departures = tuple(best_by_service(pricer.departures).values())
        priced.append(PricedRun(tuple(calls), departures, run.seconds, time.monotonic() - began))
    return priced


class _Pricer:
    """Makes rows from the results of rules, and reports progress."""

    def __init__(self, gathered: Present, report: Callable[[float], None]) -> None:
        """`report` is called with the number of priced calls."""
        self._pricing = Pricing(gathered, self._within_batch)
        self._measured = gathered.measured
        self._report = report
        self._done, self._batch = 0, 0
        self._reported = 0.0
        self.departures: list[Departure] = []
        """Departures of the last rule."""

    def rows(self, run: RuleRun) -> Iterator[list[Recommendation]]:
        """Yield the rows of one rule, call by call. A call that cannot be priced becomes a FAILED row."""
        self.departures = []
        for together in self._batches(run.rule.rule_id, run.calls):
            self._prepare(
                self._pricing.prepare, [proposed for _, proposed in together if isinstance(proposed, ValidProposals)]
            )
            priced = self._priced(together)
            results = [result for _, result in priced if isinstance(result, PricedProposals)]
            candidates = chain.from_iterable(result.candidates for result in results)
            self.departures += departures(run.rule.rule_id, candidates, self._pricing.gathered)
            self._prepare(self._pricing.prepare_shown, results)
            for call, result in priced:
                yield self._rows(run.rule, call, result)
                self._within_batch(0.0)

    def _batches(
        self, rule_id: str, calls: Iterable[TargetResult]
    ) -> Iterator[Sequence[tuple[TargetResult, ValidProposals | str | None]]]:
        """Yield calls in batches, each with its proposals, or the error that prevents pricing."""
        batch: list[tuple[TargetResult, ValidProposals | str | None]] = []
        count = 0
        for call in calls:
            self._within_batch(0.0)
            proposed = self._proposed(rule_id, call)
            batch.append((call, proposed))
            count += proposed.size if isinstance(proposed, ValidProposals) else 0
            if count >= MAX_TOGETHER:
                yield batch
                batch, count = [], 0
        yield batch

    def _proposed(self, rule_id: str, call: TargetResult) -> ValidProposals | str | None:
        """Return the proposals of a call, or its error; None for a blocked rule."""
        if call.blocked is not None or call.failed is not None:
            return call.failed
        try:
            return self._pricing.proposed(rule_id, call.target, json.loads(call.yielded))
        except Exception as error:  # only this target fails: the others are still priced
            return _failure(error)

    def _priced(
        self, together: Sequence[tuple[TargetResult, ValidProposals | str | None]]
    ) -> list[tuple[TargetResult, PricedProposals | str | None]]:
        """Return each call with its priced proposals, or with the error that prevents that."""
        self._batch = len(together)
        results = iter(
            self._pricing.priced([proposed for _, proposed in together if isinstance(proposed, ValidProposals)])
        )
        priced: list[tuple[TargetResult, PricedProposals | str | None]] = []
        for call, proposed in together:
            result = next(results) if isinstance(proposed, ValidProposals) else proposed
            priced.append((call, trace(result) if isinstance(result, Exception) else result))
        self._done, self._batch = self._done + len(together), 0
        return priced

    def _prepare(self, forecast: Callable[[Sequence[T]], None], together: Sequence[T]) -> None:
        """Forecast several targets in one batch; if that fails, each alone, so that one error affects one row."""
        try:
            forecast(together)
        except Exception:
            for item in together if len(together) > 1 else ():
                self._prepare(forecast, [item])

    def _within_batch(self, share: float) -> None:
        if (now_s := time.monotonic()) - self._reported >= TICK_S:
            self._reported = now_s
            self._report(self._done + share * self._batch)

    def _rows(self, rule: RuleInfo, call: TargetResult, priced: PricedProposals | str | None) -> list[Recommendation]:
        target = self._pricing.target(call.target)
        if call.blocked is not None:
            series, remedy = call.blocked
            return [self._row(rule, call, target, State.BLOCKED, f"{label_of(series)} was not measured", remedy)]
        failed = priced if isinstance(priced, str) else None
        if isinstance(priced, PricedProposals):
            try:
                outcomes = self._pricing.outcomes(priced)
            except Exception as error:  # only this proposal fails: the others are still priced
                failed = _failure(error)
            else:
                return [self._outcome_row(rule, call, *outcome) for outcome in outcomes.items()]
        assert failed is not None
        remedy = "The rule itself is broken: report it to its author."
        return [self._row(rule, call, target, State.FAILED, failed, remedy)]

    def _outcome_row(
        self, rule: RuleInfo, call: TargetResult, target: AdviceTarget, outcome: TargetOutcome
    ) -> Recommendation:
        if outcome.variants:
            return self._row(rule, call, target, State.OPEN, rule.title, outcome=outcome)
        reason = "; ".join(dict.fromkeys(refusal.reason for refusal in outcome.refusals))
        return self._row(rule, call, target, State.REFUSED, reason, outcome=outcome)

    def _row(
        self,
        rule: RuleInfo,
        call: TargetResult,
        target: AdviceTarget,
        state: State,
        reason: str,
        remedy: str | None = None,
        outcome: TargetOutcome | None = None,
    ) -> Recommendation:
        now_ts, gathered, outcome = self._pricing.context.now_ts, self._pricing.gathered, outcome or TargetOutcome()
        measured = self._measured if rule.window_s is None else gathered.windows.get(rule.window_s, self._measured)
        return Recommendation(
            recommendation_id=identity(rule.rule_id, target.kind, target.key),
            rule_id=rule.rule_id,
            state=state,
            title=outcome.variants[0].title if outcome.variants else rule.title,
            target=target.label,
            target_kind=target.kind,
            target_key=target.key,
            deployment_id=int(target.key) if target.kind == "deployment" else None,
            reason=reason,
            remedy=remedy,
            variants=tuple(outcome.variants),
            refusals=tuple(outcome.refusals),
            ignored=outcome.ignored,
            evidence=evidence_lines(call, target, gathered, measured),
            window_s=rule.window_s or gathered.window_s,
            owner=owner_of(target, gathered),
            prices=prices_of(target, gathered),
            output=call.output,
            created_ts=now_ts,
            updated_ts=now_ts,
        )


def _failure(error: Exception) -> str:
    """Return why a proposal cannot be priced: its error, or the traceback of a defect of this program."""
    return f"{type(error).__name__}: {error}" if isinstance(error, InvalidEdit) else trace(error)
