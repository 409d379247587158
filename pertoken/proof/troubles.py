"""Troubles of the moment: outages, overload, missed objectives, changed outputs, regressions, lost prices, alerts."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pertoken.costs.report.fleet_report import fleet_report
from pertoken.costs.report.lines import DeploymentLine, FleetReport, HostLine, Trouble, TroubleKind
from pertoken.metrics import FIGURES, MIN_STUCK_S
from pertoken.proof.recommendation import GO_BACK, Recommendation, short_id
from pertoken.proof.stored import standing
from pertoken.proof.verdicts import Verdict, VerdictResult, standing_verdicts
from pertoken.settings.alerts import BUDGET, DEFAULTS
from pertoken.state.service import Slo
from pertoken.store import repository
from pertoken.store.connect.open import Store
from pertoken.store.schema.advice import AlertRow
from pertoken.units import format_duration

WINDOW_S = 3600
"""Window of the figures that troubles are judged by."""
MAX_TTFT_S = 30.0
"""p95 of the time to first token above which an engine counts as saturated, whatever its objective (judgement)."""
MAX_SILENT_S = 7 * 86_400
"""Time after which a silent host counts as retired (judgement)."""
FIRING = ("FIRING", "CLEARING")
"""Stored states of an alert that fired and is not resolved."""
MAX_NAMES = 2
"""Names of silent hosts in one line."""
Objectives = Callable[[str], Slo]
"""Returns the objectives of a served model."""
_ORDER = {kind: number for number, kind in enumerate(TroubleKind)}
_OBJECTIVES = (
    ("ttft_p50_ms", "ttft_p50_s", "TTFT p50"),
    ("ttft_p95_ms", "ttft_p95_s", "TTFT p95"),
    ("tpot_p50_ms", "tpot_p50_s", "TPOT p50"),
    ("tpot_p95_ms", "tpot_p95_s", "TPOT p95"),
)
"""Objective, field of a deployment's line, and name."""


def with_troubles(report: FleetReport, store: Store, objectives: Objectives, as_of: int | None = None) -> FleetReport:
    """Return a report with the troubles at its end, the most urgent first.

    Raises StoreError. Troubles cover the last `WINDOW_S` seconds, independent of the report's window. `as_of`: past
    time of the report; alerts are left out then, because only their present states are stored.
    """
    alerts: Sequence[AlertRow] = ()
    if store.advice is not None and as_of is None:
        with store.read("advice") as connection:
            alerts = repository.alerts(connection)
    same = report.window_s == WINDOW_S
    recent = report if same else fleet_report(store, WINDOW_S, report.now_ts, dated=as_of is not None)
    lines = list(troubles(recent, standing_verdicts(store, as_of), objectives, alerts))
    return replace(report, troubles=with_commands(lines, standing(store, as_of)) if lines else ())


def troubles(
    report: FleetReport, verdicts: Iterable[Verdict], objectives: Objectives, alerts: Iterable[AlertRow] = ()
) -> tuple[Trouble, ...]:
    """Return the troubles at the end of a report: by kind, and of one kind the dearest first.

    `verdicts`: newest change first.
    """
    silent = {host.name for host in report.hosts if is_silent(host)}
    lines = [line for line in report.deployments if not line.ended and line.host not in silent]
    raised = [trouble for line in lines for trouble in _of_deployment(line, report.window_s, objectives(line.model))]
    raised += _silent_hosts(report)
    raised += _regressions({line.deployment_id: line for line in lines}, verdicts)
    raised += _lost_prices(report)
    raised += (_alert(row) for row in alerts if row.state in FIRING and not _is_shown(row))
    return tuple(sorted(raised, key=lambda trouble: (_ORDER[trouble.kind], -(trouble.nano_usd_per_hour or 0))))


def with_commands(lines: Iterable[Trouble], advice: Sequence[Recommendation]) -> tuple[Trouble, ...]:
    """Return troubles of deployments with the command that shows the open advice against them, where there is any."""
    by_deployment: defaultdict[int | None, list[Recommendation]] = defaultdict(list)
    for row in sorted((row for row in advice if row.counted and row.best), key=lambda row: row.rank, reverse=True):
        edits = row.best.edits if row.best else ()
        for deployment_id in {row.deployment_id, *(edit.target for edit in edits if edit.kind == "deployment")}:
            by_deployment[int(deployment_id) if deployment_id is not None else None].append(row)
    return tuple(_with_command(line, by_deployment.get(line.deployment_id, ())) for line in lines)


def stuck_s(line: DeploymentLine, window_s: int) -> float | None:
    """Return how long an engine with requests has generated nothing, at least, in seconds; None: it is not stuck.

    An engine that counts tokens only at the end of a request is stuck if the whole window has none. The telemetry of an
    engine that cannot be read is lost: it is not stuck.
    """
    has_requests = bool(line.running_now or line.waiting_now) and line.fault is None
    if line.ended or not has_requests or line.generated_tok_s_now != 0 or line.prompt_tok_s_now != 0:
        return None
    observed = [tokens for tokens in line.spark if tokens is not None]
    zeros = next((n for n, tokens in enumerate(reversed(observed)) if tokens), len(observed))
    if line.late and zeros < len(observed):
        return None
    slice_s = window_s / max(1, len(line.spark))
    # Slices that nobody observed are no silence.
    silent_s = zeros * slice_s if line.silent_s is None else min(line.silent_s, (zeros + 1) * slice_s)
    return silent_s if silent_s >= min(MIN_STUCK_S, window_s / 2) else None


def is_unread(line: DeploymentLine) -> bool:
    """Return whether an engine that was read in the window cannot be read now."""
    return not line.ended and line.fault is not None and line.coverage > 0


def slo_ratios(line: DeploymentLine, slo: Slo) -> Mapping[str, float]:
    """Return each measured latency that has an objective over that objective, by its name."""
    pairs = ((name, getattr(line, field), getattr(slo, objective)) for objective, field, name in _OBJECTIVES)
    return {name: value * 1000 / limit for name, value, limit in pairs if value is not None and limit is not None}


def _of_deployment(line: DeploymentLine, window_s: int, slo: Slo) -> Iterator[Trouble]:
    def trouble(kind: TroubleKind, reason: str, command: str = "pertoken advise") -> Trouble:
        target = f"{line.model} on {line.host}"
        return Trouble(kind, target, reason, command, line.nano_usd_per_hour, line.deployment_id)

    running, waiting = line.running_now or 0.0, line.waiting_now or 0.0
    silent_s = stuck_s(line, window_s)
    if line.fault is not None:
        if is_unread(line):
            yield trouble(TroubleKind.SILENT, line.fault, "pertoken doctor")
        return
    if silent_s is not None:
        requests = f"{running:.0f} requests run and {waiting:.0f} wait"
        yield trouble(TroubleKind.STUCK, f"{requests}, but no token came for {format_duration(silent_s)} or longer")
        return
    if waiting >= 1 and waiting > running:
        ttft = "" if line.ttft_p95_s is None else f", TTFT p95 {line.ttft_p95_s:.3g} s"
        yield trouble(TroubleKind.SATURATED, f"{waiting:.0f} requests wait, {running:.0f} run{ttft}")
    elif line.ttft_p95_s is not None and line.ttft_p95_s >= MAX_TTFT_S:
        yield trouble(TroubleKind.SATURATED, f"1 request in 20 waits {line.ttft_p95_s:.0f} s or longer to begin")
    missed = {name: ratio for name, ratio in slo_ratios(line, slo).items() if ratio > 1}
    if missed:
        texts = (f"{name} is {ratio:.2g} times its objective" for name, ratio in missed.items())
        yield trouble(TroubleKind.MISSED, ", ".join(texts))


def is_silent(host: HostLine) -> bool:
    """Return whether the agent of a host stopped lately: telemetry that was imported or generated just ends."""
    return (
        host.stale and not host.imported and not host.generated and host.age_s is not None and host.age_s < MAX_SILENT_S
    )


def _silent_hosts(report: FleetReport) -> Iterator[Trouble]:
    silent = [host for host in report.hosts if is_silent(host)]
    if not silent:
        return
    names = [host.name for host in silent]
    rates = [
        line.nano_usd_per_hour
        for line in report.devices
        if line.host in set(names) and line.nano_usd_per_hour is not None
    ]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    min_age_s = min(host.age_s or 0 for host in silent)
    reason = f"nothing was stored for {format_duration(min_age_s)}{' or longer' if len(silent) > 1 else ''}"
    target = f"{', '.join(names[:MAX_NAMES])}{more}"
    yield Trouble(TroubleKind.SILENT, target, reason, "pertoken agent status", sum(rates) if rates else None)


def _regressions(lines: Mapping[int, DeploymentLine], verdicts: Iterable[Verdict]) -> Iterator[Trouble]:
    """Yield the deployments where the newest change made tokens dearer, or altered outputs that nobody checked."""
    newest: dict[int, Verdict] = {}
    for verdict in verdicts:
        newest.setdefault(verdict.deployment_id, verdict)
    for deployment_id, verdict in newest.items():
        line, judged = lines.get(deployment_id), verdict.judgement
        changed = ", ".join(dict.fromkeys(edit.field.replace("_", " ") for edit in verdict.edits)) or "configuration"
        since = f"since its {changed} changed"
        if line is not None and judged.result is VerdictResult.OUTPUT_CHANGED:
            reason = f"{since}, {judged.reason}"
            yield Trouble(TroubleKind.OUTPUT, verdict.name, reason, "pertoken advise", None, deployment_id)
        if line is None or judged.result is not VerdictResult.DEARER or judged.effect is None:
            continue
        low, likely, high = judged.effect
        per_hour = line.nano_usd_per_hour
        added = None if per_hour is None else round(per_hour * likely / (1 + likely))
        reason = f"{since}, a token costs {likely:+.0%} ({low:+.0%} to {high:+.0%})"
        yield Trouble(TroubleKind.REGRESSED, verdict.name, reason, "pertoken advise", added, deployment_id)


def _lost_prices(report: FleetReport) -> Iterator[Trouble]:
    for lost in report.lost_prices:
        target = lost.name if lost.devices == 1 else f"{lost.devices} devices {lost.name}"
        command = f'pertoken prices set DOLLARS --for "{lost.name}"'
        reason = "it has no price any more: its dollars are unknown"
        yield Trouble(TroubleKind.UNPRICED, target, reason, command, lost.nano_usd_per_hour)


def _is_shown(row: AlertRow) -> bool:
    """Return whether a firing alert repeats a trouble: a default one, but for that on the budget."""
    default = DEFAULTS.get(row.name)
    return default is not None and row.name != BUDGET and json.loads(row.body)["figure"] == default.when.figure


def _alert(row: AlertRow) -> Trouble:
    body = json.loads(row.body)
    figure = FIGURES.get(body["figure"])
    unit = f" {figure.unit}" if figure else ""
    value = "not known now" if body["value"] is None else f"{body['value']:g}{unit}"
    reason = f"{row.name}: {body['figure']} is {value} (limit {body['operator']} {body['limit']:g})"
    return Trouble(TroubleKind.ALERT, row.target, reason, "pertoken alerts list")


def _with_command(line: Trouble, advice: Sequence[Recommendation]) -> Trouble:
    row = None if line.deployment_id is None else next((row for row in advice if _mends(line.kind, row)), None)
    return line if row is None else replace(line, command=f"pertoken advise show {short_id(row)}")


def _mends(kind: TroubleKind, row: Recommendation) -> bool:
    """Return whether advice is the first thing to do against a trouble of its deployment."""
    variant = row.best
    if variant is None:
        return False
    if kind is TroubleKind.STUCK:
        return any(edit.field == "restart" for edit in variant.edits)
    if kind in (TroubleKind.REGRESSED, TroubleKind.OUTPUT):
        return row.rule_id == GO_BACK
    faster = variant.throughput_ratio is not None and variant.throughput_ratio[1] > 1
    return kind in (TroubleKind.SATURATED, TroubleKind.MISSED) and faster and variant.slo != "fail"
