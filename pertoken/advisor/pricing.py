"""Validate and price the proposals of a rule for one target: variants, refusals, and ignored proposals."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pertoken.advisor.changes.already import present_values
from pertoken.advisor.changes.commands import commands
from pertoken.advisor.changes.edits import edits
from pertoken.advisor.changes.title import change_lines, title
from pertoken.advisor.checks.candidate import Candidate, candidate
from pertoken.advisor.checks.objectives import full_batch_factor, held_again
from pertoken.advisor.checks.permitted import refusal as refusal_by_settings
from pertoken.advisor.checks.published import notes as published_notes
from pertoken.advisor.checks.published import refusal as refusal_by_facts
from pertoken.advisor.groups import Chosen
from pertoken.advisor.nature import FLEET, Target, effort_of, risk_of, target_of, touches
from pertoken.advisor.present import Present
from pertoken.advisor.refusals import RefusedChange, folded
from pertoken.advisor.worker.wire import Refused, encoded, refusal_of
from pertoken.evidence import Evidence
from pertoken.forecast.tiers import split_tier
from pertoken.proof.recommendation import LatencyLine, Refusal, Variant
from pertoken.savings.context import Context
from pertoken.savings.estimate import Estimate, estimate, prepare, prepare_shown
from pertoken.savings.present import FIGURES
from pertoken.savings.saving import Saving
from pertoken.savings.sizing import objectives
from pertoken.savings.slo import Latencies
from pertoken.state.deployment import Deployment
from pertoken.state.model import WEIGHT_BYTES
from pertoken.state.service import Service, Slo
from pertoken.units import format_usd

MAX_PROPOSALS = 100
"""Maximum different proposals of one rule for one target."""
NO_SAVING = "no-saving"
COSTS_MORE = "costs-more"
"""The bill would rise by more than the capacity is worth."""
WORTHLESS = (NO_SAVING, COSTS_MORE)
FEWER_BITS_GAIN = 1.15
"""Minimum saving of weights below 8 bits over those in 8 bits, which alter outputs less. A judgement."""
MAX_VARIANTS = 3
"""Maximum variants of one rule for one target: those that save most are kept."""


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
class Proposed:
    """Proposals of a rule for one target, validated and not yet priced."""

    target: Target
    """Target of the rule's call."""
    candidates: Sequence[tuple[Candidate, Target]]
    """Distinct candidates, each with its own target."""
    by_target: Mapping[Target, TargetOutcome]
    """Outcomes by target; pricing adds variants and refusals."""

    @property
    def size(self) -> int:
        """Number of deployments and services that the candidates change, summed over candidates."""
        return sum(len(possible.diff.targets) for possible, _ in self.candidates)


@dataclass(frozen=True)
class Priced:
    """Proposals of a rule for one target, with prices."""

    proposed: Proposed
    kept: Mapping[Target, Sequence[tuple[Candidate, Estimate]]]
    """Candidates that become variants, by target, best first."""
    worthless: Sequence[tuple[Candidate, Estimate]] = ()
    """Candidates that are refused because they save nothing alone."""


@dataclass(frozen=True)
class Pricing:
    """Prices the proposals of rules."""

    gathered: Present
    context: Context
    """Context of `gathered`."""
    progress: Callable[[float], None] = lambda share: None
    """Called with the share of the proposals that are priced."""

    def proposed(self, rule_id: str, asked: Deployment | Service | None, yielded: Sequence[object]) -> Proposed:
        """Validate the values that a rule yielded, as a worker sends them.

        Raises the first error of any value: the caller makes it a FAILED row of the rule.
        """
        before, by_target = self.gathered.fleet, defaultdict[Target, TargetOutcome](TargetOutcome)
        own = self.target(asked)
        keys: set[str] = set()
        proposals: list[tuple[Candidate, Target]] = []
        for record in yielded:
            refused = refusal_of(record)
            if refused is not None:
                target = own if asked is not None else self._about(refused)
                by_target[target].refusals.append(Refusal(refused.code, refused.reason))
                continue
            configured = rule_id in self.gathered.configured_rules
            possible = candidate(before, record, asked, self.context.market, configured=configured)
            if possible is None:
                by_target[own].ignored += 1
                by_target[own].already |= dict.fromkeys(present_values(record, before))
                continue
            if possible.diff.key in keys:
                continue
            keys.add(possible.diff.key)
            if len(keys) > MAX_PROPOSALS:
                raise ValueError(f"it made more than {MAX_PROPOSALS} different proposals")
            target = own if asked is not None else target_of(possible.diff, before)
            by_target[target]  # so that the target has an outcome without variants
            refusal = refusal_by_settings(
                possible.diff, before, possible.after, self.gathered.forbidden
            ) or refusal_by_facts(before, possible.after, self.context.market, accepted=configured)
            if refusal is not None:
                by_target[target].refusals.append(self._refused(possible, refusal))
                continue
            proposals.append((possible, target))
        if not by_target:
            by_target[own].refusals.append(Refusal("no-reason", "the rule yielded neither a proposal nor a reason"))
        return Proposed(own, proposals, by_target)

    def prepare(self, together: Iterable[Proposed]) -> None:
        """Forecast the proposals of several targets in one batch, which is faster than one by one.

        Raises the first error of any proposal.
        """
        fleets = [possible.after for proposed in together for possible, _ in proposed.candidates]
        prepare(self.gathered.fleet, fleets, self.context)

    def priced(self, together: Sequence[Proposed]) -> list[Priced | Exception]:
        """Price the proposals of several targets, and keep those that save most of each.

        A target gets the error of a proposal that cannot be priced.
        """
        count = sum(len(proposed.candidates) for proposed in together)
        candidates = (possible for proposed in together for possible, _ in proposed.candidates)
        judged = (self._judged(possible, place / count) for place, possible in enumerate(candidates))
        return [self._kept(proposed, [next(judged) for _ in proposed.candidates]) for proposed in together]

    def _judged(self, possible: Candidate, share: float) -> tuple[Estimate, Refusal | None] | Exception:
        """Return the estimate of a candidate and why it is not worth showing, or the error of pricing it.

        `share` of the candidates come before it.
        """
        self.progress(share)
        try:
            money = estimate(self.gathered.fleet, possible.after, self.context, possible.diff)
            refusal = _against(money)
            if refusal is None:
                return money, None
            if refusal.code in WORTHLESS and (held := self._holds_again(possible, money)):
                return replace(money, saving=None, unpriced=held), None
            return money, self._refused(possible, refusal)
        except Exception as error:  # only its target fails: the others are still priced
            return error

    def _kept(
        self, proposed: Proposed, judged: Sequence[tuple[Estimate, Refusal | None] | Exception]
    ) -> Priced | Exception:
        """Return the candidates of a target that save most, with its other candidates refused; or its first error."""
        kept, worthless = defaultdict[Target, list[tuple[Candidate, Estimate]]](list), []
        for (possible, target), result in zip(proposed.candidates, judged, strict=True):
            if isinstance(result, Exception):
                return result
            money, refusal = result
            if refusal is not None:
                proposed.by_target[target].refusals.append(refusal)
                worthless += [(possible, money)] * (refusal.code in WORTHLESS)
            else:
                kept[target].append((possible, money))
        return Priced(
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
        return best[:MAX_VARIANTS]

    def prepare_shown(self, together: Iterable[Priced]) -> None:
        """Forecast the figures to show for several targets' proposals in one batch.

        Raises the first error of any proposal.
        """
        shown = (money for priced in together for kept in priced.kept.values() for _, money in kept)
        prepare_shown(shown, self.context)

    def outcomes(self, priced: Priced) -> Mapping[Target, TargetOutcome]:
        """Return the outcomes of a rule by target, variants best first. Raises the first error of any proposal."""
        by_target = priced.proposed.by_target
        for target, candidates in by_target.items():
            candidates.variants = [self._variant(possible, money) for possible, money in priced.kept.get(target, ())]
            candidates.refusals = folded(candidates.refusals)
            if not candidates.variants and not candidates.refusals:
                candidates.refusals.append(Refusal("equals-present", _equals_present(candidates)))
        return by_target

    def target(self, asked: Deployment | Service | None) -> Target:
        """Return the target of a call for a deployment, a service or (None) the fleet."""
        if isinstance(asked, Service):
            return Target("service", asked.name, asked.name)
        if isinstance(asked, Deployment):
            host = self.gathered.addresses.hosts.get(asked.deployment_id)
            label = f"{asked.name} on {host}" if host else asked.name
            return Target("deployment", str(asked.deployment_id), label)
        return FLEET

    def _about(self, refused: Refused) -> Target:
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
        return Target("host", str(host.host_id), host.name)

    def _refused(self, possible: Candidate, refusal: Refusal) -> RefusedChange:
        what = title(possible.diff, self.gathered.fleet, Chosen())
        return RefusedChange(refusal.code, refusal.reason, what)

    def _variant(self, possible: Candidate, money: Estimate) -> Variant:
        before, difference = self.gathered.fleet, possible.diff
        chosen = Chosen(money.resized, money.released, priced=money.unpriced is None, placed=money.ordered)
        step = commands(difference, before, self.gathered.addresses, chosen)
        changed = touches(difference, before)
        tier, assumptions = split_tier(money.assumptions)
        return Variant(
            key=difference.key,
            title=title(difference, before, chosen),
            changes=change_lines(difference, before, chosen),
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
                *published_notes(before, possible.after, self.context.market),
            ),
            proposal=json.dumps(encoded(possible.proposal, before), sort_keys=True),
        )

    def _holds_again(self, possible: Candidate, money: Estimate) -> str | None:
        """Return missed objectives that the change would meet; None if there are none, or it misses others."""
        names = [
            touched.partition(":")[2]
            for touched in touches(possible.diff, self.gathered.fleet)
            if "service:" in touched
        ]
        services = [self.gathered.fleet.service(name) for name in names]
        if len(services) != 1 or not self._misses(services[0]):
            return None
        lines = [
            line for line in self._latency(money.latency, map("service:{}".format, names)) if line.slo_ms is not None
        ]
        return held_again(lines, full_batch_factor(possible.diff, money, self.context))

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
        lines = []
        for figure, name in FIGURES.items():
            lines.append(
                LatencyLine(
                    figure,
                    getattr(latencies.before, name),
                    getattr(latencies.after, name),
                    _measured_ms(seen, figure),
                    getattr(slo, name),
                    latencies.provenance.label,
                )
            )
        return tuple(lines)


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
    """Return why a proposal saves nothing, with its figures."""
    text = "the forecast shows no saving"
    if money.saving is not None:
        net, capacity = money.saving.rank
        text += f": {format_usd(net)} of the bill and {format_usd(capacity)} of capacity a month"
    if money.throughput_ratio is not None:
        low, likely, high = money.throughput_ratio
        text += f", at {likely:.2f} ({low:.2f} to {high:.2f}) times the tokens/s"
    return text


def _saving(money: Estimate) -> tuple[float, float]:
    """Return the likely dollars that leave the bill, and those of capacity; 0 where unpriced."""
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
