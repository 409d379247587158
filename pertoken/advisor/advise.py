"""One advice run: gather, run every rule, price what they propose, and keep what is worth a person's time."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from pertoken.advisor.nature import FLEET, Target
from pertoken.advisor.present import Present, present
from pertoken.advisor.pricing import Found, Pricing
from pertoken.advisor.recommendation import EvidenceLine, Recommendation, State
from pertoken.advisor.rules import Loaded
from pertoken.advisor.run import Broken, Inputs, Ran, SubjectKey, run_rule
from pertoken.advisor.values import storable
from pertoken.catalog.market import Market
from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.evidence import Evidence
from pertoken.forecast.second_opinion.opinion import KernelTables, Opinion
from pertoken.metrics import SERIES
from pertoken.rule import subject_key
from pertoken.store.connect.open import Store
from pertoken.store.schema.ids import stable_id


@dataclass(frozen=True, slots=True)
class Advice:
    """The outcome of one run, best first."""

    now_ts: int
    window_s: int
    recommendations: tuple[Recommendation, ...]


def advise(
    store: Store,
    loaded: Iterable[Loaded],
    market: Market,
    settings: Settings,
    window_s: int,
    now_ts: int,
    progress: Callable[[str], None] = lambda step: None,
    *,
    dated: bool = False,
) -> Advice:
    """Run every loaded rule over the window ending at `now_ts`. `progress` is called with each step.

    `dated`: `now_ts`, a whole minute, is in the past, and everything is as of then.
    Raises StoreError if the database cannot be read, BadInput if the setting for kernel tables names no file; a
    broken rule is a recommendation in state FAILED.
    """
    tables = settings.advisor_kernel_tables
    if tables and not Path(tables).is_file():
        raise BadInput(f"advisor.kernel_tables: {tables}: there is no such file")
    progress("reading telemetry")
    gathered = present(store, market, window_s, now_ts, settings, dated=dated)
    with KernelTables(tables) if tables else nullcontext() as opinion:
        recommendations = advice_of(loaded, gathered, settings.advisor_rule_timeout, opinion, progress)
    return Advice(now_ts, window_s, recommendations)


def advice_of(
    loaded: Iterable[Loaded],
    gathered: Present,
    timeout_s: float,
    opinion: Opinion | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> tuple[Recommendation, ...]:
    """Run every loaded rule over what was gathered; best first."""
    now_ts = gathered.context.now_ts
    pricing = Pricing(gathered, replace(gathered.context, opinion=opinion))
    inputs = Inputs(gathered)
    rows: list[Recommendation] = []
    for each in loaded:
        if each.error:
            rows.append(_failed_load(each, now_ts))
        for rule in each.rules:
            progress(rule.rule_id)
            for ran in run_rule(rule, inputs, timeout_s, pricing.results):
                rows += _rows(ran, pricing, inputs, now_ts)
    return tuple(sorted(rows, key=_rank))


def identity(rule_id: str, target: Target, life: int = 1) -> int:
    """Return the id of a recommendation: of its rule, its target and its life, whatever state it is in."""
    return stable_id("advice", rule_id, target.kind, target.key, life)


def _rank(each: Recommendation) -> tuple[object, ...]:
    order = list(State).index(each.state)
    best = each.best
    monies = (best.bankable, best.capacity) if best else (None, None)
    return (order, *(-(money[1] if money else 0) for money in monies), each.rule_id, each.target, each.target_key)


def _failed_load(each: Loaded, now_ts: int) -> Recommendation:
    target = Target("load", "", each.origin)
    return Recommendation(
        recommendation_id=identity(each.name, target),
        rule_id=each.name,
        state=State.FAILED,
        title=f"{each.name} could not be loaded",
        target=target.label,
        target_kind=target.kind,
        target_key=target.key,
        reason=each.error,
        remedy="Mend or uninstall the plugin; the other rules ran without it.",
        created_ts=now_ts,
        updated_ts=now_ts,
    )


def _rows(ran: Ran[Mapping[Target, Found]], pricing: Pricing, inputs: Inputs, now_ts: int) -> list[Recommendation]:
    outcome = ran.outcome
    if not isinstance(outcome, Broken):
        return [_row(ran, target, found, inputs, now_ts) for target, found in outcome.items()]
    base = _base(ran, pricing.target(ran.asked), inputs, now_ts)
    if outcome.blocked is not None:
        series, missing = outcome.blocked
        return [replace(base, state=State.BLOCKED, reason=f"{series} was not measured", remedy=missing)]
    remedy = "The rule itself is broken: report it to its author."
    return [replace(base, state=State.FAILED, reason=outcome.failed, remedy=remedy)]


def _row(ran: Ran[Mapping[Target, Found]], target: Target, found: Found, inputs: Inputs, now_ts: int) -> Recommendation:
    base = _base(ran, target, inputs, now_ts)
    refusals = tuple(found.refusals)
    if not found.variants:
        reason = "; ".join(dict.fromkeys(each.reason for each in refusals))
        return replace(base, reason=reason, refusals=refusals, ignored=found.ignored)
    return replace(
        base,
        state=State.OPEN,
        title=found.variants[0].title,
        variants=tuple(found.variants),
        refusals=refusals,
        ignored=found.ignored,
    )


def _base(ran: Ran[Mapping[Target, Found]], target: Target, inputs: Inputs, now_ts: int) -> Recommendation:
    return Recommendation(
        recommendation_id=identity(ran.rule.rule_id, target),
        rule_id=ran.rule.rule_id,
        state=State.REFUSED,
        title=storable(ran.rule.title),
        target=target.label,
        target_kind=target.kind,
        target_key=target.key,
        deployment_id=int(target.key) if target.kind == "deployment" else None,
        evidence=_evidence(ran, target, inputs),
        created_ts=now_ts,
        updated_ts=now_ts,
    )


def _evidence(ran: Ran[Mapping[Target, Found]], target: Target, inputs: Inputs) -> tuple[EvidenceLine, ...]:
    """Return a line for each series that was read of a target, or of what it consists of, as it was gathered."""
    own = None if ran.asked is None else subject_key(ran.asked)
    return tuple(
        _line(
            f"{_name(subject, inputs.gathered)}: {name}" if subject is not None else name,
            name,
            inputs.measured.get(subject or own or ("", ""), Evidence({})),
        )
        for subject, names in ran.read
        if subject is None or _part_of(subject, target, inputs.gathered)
        for name in names
    )


def _part_of(subject: SubjectKey, target: Target, gathered: Present) -> bool:
    kind, key = subject
    if target == FLEET:
        return True
    if target.kind == "host":
        host = gathered.fleet.host(int(target.key))
        return subject == ("host", host.host_id) or (kind == "device" and key in host.device_ids)
    deployments = gathered.fleet.service(target.key).deployments if target.kind == "service" else ()
    ids = {each.deployment_id for each in deployments}
    return str(key) == target.key or (kind == "deployment" and key in ids)


def _name(subject: SubjectKey, gathered: Present) -> str:
    _, key = subject
    return key if isinstance(key, str) else gathered.names.get(key, str(key))


def _line(label: str, name: str, evidence: Evidence) -> EvidenceLine:
    spec = SERIES[name]
    measured = evidence.peek(name)
    if measured is None:
        return EvidenceLine(label, spec.unit, None, None, None, 0, None, missing=spec.remedy)
    return EvidenceLine(label, spec.unit, measured.mean, measured.p50, measured.p95, measured.n, measured.origin)
