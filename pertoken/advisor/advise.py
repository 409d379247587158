"""One advice run: gather, run every rule, price what they propose, and keep what is worth a person's time."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pertoken.advisor.gather import Gathered, gather
from pertoken.advisor.recommendation import EvidenceLine, LatencyLine, Recommendation, State
from pertoken.advisor.rules import Loaded
from pertoken.advisor.run import Ran, run_rule
from pertoken.catalog import knobs
from pertoken.catalog.market import Market
from pertoken.config import Settings
from pertoken.costs.savings import Estimate, estimate
from pertoken.costs.slo import FIGURES, Latencies, Slo
from pertoken.deployment import Deployment, Fleet, Model
from pertoken.errors import BadInput
from pertoken.evidence import SERIES, Evidence
from pertoken.forecast.opinion import KernelTables, Opinion
from pertoken.store.ids import stable_id
from pertoken.store.open import Store

MOST_ALTERNATIVES = 3
"""Variants of one rule on one target that are kept: the ones that save most."""


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
) -> Advice:
    """Run every loaded rule over the window ending at `now_ts`. `progress` is told each step.

    Raises StoreError if the database cannot be read, BadInput if the setting for kernel tables names no file; a
    broken rule is a recommendation in state FAILED.
    """
    tables = settings.advisor_kernel_tables
    if tables and not Path(tables).is_file():
        raise BadInput(f"advisor.kernel_tables: {tables}: there is no such file")
    progress("reading telemetry")
    gathered = gather(store, market, window_s, now_ts)
    found: list[Recommendation] = []
    with KernelTables(tables) if tables else nullcontext() as opinion:
        for each in loaded:
            if each.error:
                found.append(_failed_load(each, now_ts))
            for rule in each.rules:
                progress(rule.rule_id)
                for ran in run_rule(rule, gathered, market, settings.advisor_rule_timeout):
                    found += _recommendations(ran, gathered, market, settings, now_ts, opinion)
    return Advice(now_ts, window_s, tuple(sorted(found, key=_rank)))


def _rank(each: Recommendation) -> tuple[object, ...]:
    order = list(State).index(each.state)
    likely = [-(money[1] if money else 0) for money in (each.bankable, each.capacity)]
    return (order, *likely, each.rule_id, each.target)


def _failed_load(each: Loaded, now_ts: int) -> Recommendation:
    return Recommendation(
        recommendation_id=stable_id("advice", each.name, "load"),
        rule_id=each.name,
        state=State.FAILED,
        title=f"{each.name} could not be loaded",
        target=each.origin,
        reason=each.error,
        remedy="Mend or uninstall the plugin; the other rules ran without it.",
        created_ts=now_ts,
        updated_ts=now_ts,
    )


def _recommendations(
    ran: Ran, gathered: Gathered, market: Market, settings: Settings, now_ts: int, opinion: Opinion | None
) -> list[Recommendation]:
    target = ran.now.served_model if ran.now else "the fleet"
    if ran.now and ran.now.host:
        target = f"{target} on {ran.now.host}"
    base = Recommendation(
        recommendation_id=stable_id("advice", ran.rule.rule_id, ran.now.deployment_id if ran.now else 0),
        rule_id=ran.rule.rule_id,
        state=State.REFUSED,
        title=ran.rule.title,
        target=target,
        deployment_id=ran.now.deployment_id if ran.now else None,
        evidence=_evidence(ran, gathered.names),
        created_ts=now_ts,
        updated_ts=now_ts,
    )
    if ran.blocked:
        missing = ran.blocked
        return [_but(base, State.BLOCKED, f"{missing.series} was not measured", remedy=missing.remedy)]
    if ran.failed:
        return [_but(base, State.FAILED, ran.failed, remedy="The rule itself is broken: tell its author.")]
    if ran.refusals:
        return [_but(base, State.REFUSED, "; ".join(ran.refusals))]
    priced = [(each, _price(each, ran, gathered, market, settings, now_ts, opinion)) for each in ran.proposals]
    worth = [(each, money) for each, money in priced if _against(money) is None]
    if not worth:
        reasons = dict.fromkeys(_against(money) or "" for _, money in priced)
        return [_but(base, State.REFUSED, "; ".join(reasons))]
    worth.sort(key=lambda pair: tuple(-(money[1] if money else 0) for money in (pair[1].bankable, pair[1].capacity)))
    return [_open(base, ran, each, money, gathered, settings) for each, money in worth[:MOST_ALTERNATIVES]]


def _price(
    proposal: Deployment | Fleet,
    ran: Ran,
    gathered: Gathered,
    market: Market,
    settings: Settings,
    now_ts: int,
    opinion: Opinion | None,
) -> Estimate:
    candidate = proposal
    if isinstance(candidate, Deployment):
        if ran.now is None:
            raise ValueError("a proposal about a deployment needs the deployment")
        candidate = gathered.fleet.replace(ran.now, candidate)
    return estimate(
        gathered.fleet,
        candidate,
        seen=gathered.seen,
        price_nano_usd_per_hour=gathered.price_nano_usd_per_hour.get,
        market=market,
        slo=_slo(settings),
        today=datetime.fromtimestamp(now_ts, UTC).date(),
        opinion=opinion,
    )


def _slo(settings: Settings) -> Slo:
    return Slo(settings.slo_ttft_ms, settings.slo_tpot_ms, settings.slo_ttft_p50_ms, settings.slo_tpot_p50_ms)


def _against(money: Estimate) -> str | None:
    """Why a priced proposal is not worth showing; None if it is."""
    if money.infeasible is not None:
        return money.infeasible
    if money.unpriced is not None:
        return None
    if all(each is None or each[1] <= 0 for each in (money.bankable, money.capacity)):
        return "; ".join(money.against) or "the forecast gives no saving"
    return None


def _open(
    base: Recommendation,
    ran: Ran,
    proposal: Deployment | Fleet,
    money: Estimate,
    gathered: Gathered,
    settings: Settings,
) -> Recommendation:
    changes, commands, undo, title = _action(base, ran, proposal, gathered)
    return Recommendation(
        recommendation_id=stable_id(
            "advice", base.rule_id, base.deployment_id or 0, *map(str, sorted(changes.items()))
        ),
        rule_id=base.rule_id,
        state=State.OPEN,
        title=title,
        target=base.target,
        deployment_id=base.deployment_id,
        changes=changes,
        commands=commands,
        undo=undo,
        bankable=money.bankable,
        capacity=money.capacity,
        throughput_ratio=money.throughput_ratio,
        slo=money.slo,
        latency=_latency(money.latency, gathered.seen.get(base.deployment_id or 0), settings),
        latency_unknown=money.latency.unknown if money.latency else None,
        replicas=money.latency.replicas if money.latency else None,
        provenance=money.provenance.label if money.provenance is not None else None,
        unpriced=money.unpriced,
        assumptions=money.assumptions,
        against=money.against,
        evidence=base.evidence,
        created_ts=base.created_ts,
        updated_ts=base.updated_ts,
    )


def _latency(found: Latencies | None, seen: Evidence | None, settings: Settings) -> tuple[LatencyLine, ...]:
    if found is None or found.before is None or found.after is None or found.provenance is None:
        return ()
    measured = dict(seen.items()) if seen else {}
    lines = []
    for figure, (field, objective) in FIGURES.items():
        name, _, quantile = figure.partition(" ")
        series = measured.get(f"{name.lower()}_s")
        lines.append(
            LatencyLine(
                figure,
                getattr(found.before, field),
                getattr(found.after, field),
                None if series is None else 1000 * float(getattr(series, quantile)),
                getattr(_slo(settings), objective),
                found.provenance.label,
            )
        )
    return tuple(lines)


def _action(
    base: Recommendation, ran: Ran, proposal: Deployment | Fleet, gathered: Gathered
) -> tuple[dict[str, tuple[str, str]], tuple[str, ...], tuple[str, ...], str]:
    """What changes, the commands for it and their undo, and a title that says it."""
    changes: dict[str, tuple[str, str]] = {}
    commands: list[str] = []
    undo: list[str] = []
    released: list[str] = []
    pairs: list[tuple[Deployment, Deployment]] = []
    if isinstance(proposal, Deployment) and ran.now:
        pairs = [(ran.now, proposal)]
    elif isinstance(proposal, Fleet):
        before = {each.deployment_id: each for each in gathered.fleet.deployments}
        pairs = [
            (before[each.deployment_id], each) for each in proposal.deployments if each != before[each.deployment_id]
        ]
        released = [gathered.names[each] for each in proposal.released]
        for name in released:
            changes[name] = ("paid", "released")
            commands.append(f"Drain {name} and give its device, or the instance it belongs to, back.")
            undo.append(f"Order {name} again.")
    for now, to in pairs:
        differing = now.changes_to(to)
        changes |= {name: (_shown(old), _shown(new)) for name, (old, new) in differing.items()}
        change = knobs.commands(now.engine, differing)
        commands += [*change.apply, *change.manual]
        undo += change.undo
    what = [f"release {', '.join(released)}"] if released else []
    what += _words({name: values for name, values in changes.items() if name not in released})
    return changes, tuple(commands), tuple(undo), ", ".join(what) or base.title


_SAID = {"model": "", "accelerator": "", "weight_dtype": "weights ", "kv_dtype": "KV cache "}
"""Changes that a title begins with, since a narrow screen cuts its end, and what it calls them."""


def _words(changes: Mapping[str, tuple[str, str]]) -> list[str]:
    """Each change in few words: `H100 SXM5 → H200 SXM`, `weights bf16 → fp8`, `tp 2 → 1`, `enforce_eager off`."""
    found = []
    for name in sorted(changes, key=lambda each: each not in _SAID):
        old, new = changes[name]
        if name == "model":
            old, new = (each.rpartition("/")[2] for each in (old, new))  # their makers go without saying
        switched = {"True": "on", "False": "off"}.get(new)
        found.append(f"{name} {switched}" if switched else f"{_SAID.get(name, f'{name} ')}{old} → {new}")
    return found


def _shown(value: object) -> str:
    if value is None:
        return "unknown"
    return value.name if isinstance(value, Model) else str(value)


def _but(base: Recommendation, state: State, reason: str, remedy: str | None = None) -> Recommendation:
    from dataclasses import replace

    return replace(base, state=state, reason=reason, remedy=remedy)


def _evidence(ran: Ran, names: Mapping[int, str]) -> tuple[EvidenceLine, ...]:
    return tuple(
        _line(f"{names[owner]}: {name}" if owner is not None else name, name, evidence)
        for owner, evidence in ran.evidence
        for name in evidence.read
    )


def _line(label: str, name: str, evidence: Evidence) -> EvidenceLine:
    spec = SERIES[name]
    measured = dict(evidence.items()).get(name)
    if measured is None:
        return EvidenceLine(label, spec.unit, None, None, None, 0, None, missing=spec.remedy)
    return EvidenceLine(
        label, spec.unit, measured.mean, measured.p50, measured.p95, measured.n, measured.provenance.label
    )
