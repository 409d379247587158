"""A recommendation as files for a pull request: kustomize, Helm, KEDA, HPA, and the body of an issue.

The objects are JSON, which is YAML too. Sources: kustomization.yaml of Kustomize, values of the vLLM Production Stack
chart, ScaledObject (keda.sh/v1alpha1) of KEDA, HorizontalPodAutoscaler (autoscaling/v2), November 2026. Nothing here
is applied.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pertoken.errors import BadInput
from pertoken.printable import literal
from pertoken.proof.recommendation import Recommendation, Variant, short_id
from pertoken.state.service import HOURS_OF_WEEK, Schedule
from pertoken.text.advice.sheet import HOW_TO_APPLY, HOW_TO_UNDO, advice_sheet
from pertoken.text.plan.export import escaped, patch_of
from pertoken.units import format_usd

MONTH_H = 730
_QUEUED = "1"
"""Requests that wait for each replica from which one more is started (judgement)."""


class FileFormat(StrEnum):
    """Kind of file."""

    KUSTOMIZE = "kustomize"
    HELM = "helm"
    KEDA = "keda"
    HPA = "hpa"
    ISSUE = "issue"


@dataclass(frozen=True, slots=True)
class ServiceCost:
    """Replicas of the service that a recommendation changes, and what they cost now."""

    models: tuple[str, ...]
    """Served model names."""
    replicas: int
    nano_usd_per_hour: int | None
    """Of all replicas; None without a price."""

    def per_month(self, replicas: int) -> str:
        """Return what a number of replicas costs a month."""
        if self.nano_usd_per_hour is None or not self.replicas:
            return "unknown: no device has a price"
        return f"{format_usd(round(self.nano_usd_per_hour / self.replicas * replicas * MONTH_H))} a month"


def file_of(row: Recommendation, form: FileFormat, cost: ServiceCost, now_ts: float) -> str:
    """Return a recommendation as a file, with a line break at its end. Raises BadInput where it has no such form."""
    variant = row.chosen
    if variant is None:
        raise BadInput(f"{short_id(row)} proposes nothing: {row.reason or row.title}")
    if form is FileFormat.ISSUE:
        return "\n".join(_issue(row, variant, now_ts)) + "\n"
    body = _BODIES[form](row, variant, cost)
    return "\n".join([*_head(row, variant), *body]) + "\n"


def _head(row: Recommendation, variant: Variant) -> Iterator[str]:
    yield f"# {literal(variant.title)}: {literal(row.target)}, by the rule {row.rule_id} of pertoken ({short_id(row)})"
    yield f"# {_worth(variant)}"
    yield from (f"# To do by hand: {literal(line)}" for line in variant.commands if patch_of(line) is None)
    yield f"# Undo: {literal('; '.join(variant.undo)) or 'unknown'}"


def _worth(variant: Variant) -> str:
    if variant.saving is None:
        return f"Worth: unknown; {literal(variant.uncounted or 'it was not priced')}"
    moneys = {"off the bill": variant.saving.net, "capacity": variant.saving.capacity}
    texts = [f"{name} {' / '.join(map(format_usd, money))}" for name, money in moneys.items() if any(money)]
    return f"Worth a month, low / likely / high: {', '.join(texts) or 'nothing'}"


# -- kustomize -----------------------------------------------------------------------------------------------------


def _kustomize(row: Recommendation, variant: Variant, cost: ServiceCost) -> list[str]:
    replicas, patches = (
        _replicas(variant),
        [patch for line in variant.commands if (patch := patch_of(line)) is not None],
    )
    names = sorted({name for kind, name, _, _ in patches if kind == "Deployment"}) or ["NAME"]
    if not patches and replicas is None:
        raise BadInput(f"{short_id(row)} changes no object of Kubernetes that is known; --as issue has its commands")
    values: dict[str, Any] = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    if patches:
        values["patches"] = [
            {"target": {"kind": kind, "name": name, "namespace": namespace}, "patch": operations}
            for kind, name, namespace, operations in patches
        ]
    if replicas is not None:
        values["replicas"] = [{"name": name, "count": replicas[1]} for name in names]
    return [*_bounds(replicas, cost), *_fill_in(values), _json(values)]


# -- Helm ----------------------------------------------------------------------------------------------------------


def _helm(row: Recommendation, variant: Variant, cost: ServiceCost) -> list[str]:
    replicas, patches = (
        _replicas(variant),
        [patch for line in variant.commands if (patch := patch_of(line)) is not None],
    )
    words = [word for _, _, _, operations in patches[:1] for word in _arguments(operations)]
    words = words or [word for line in variant.commands if line.startswith("set --") for word in line.split()[1:]]
    entry: dict[str, Any] = {"name": patches[0][1] if patches else "NAME"}
    if replicas is not None:
        entry["replicaCount"] = replicas[1]
    if words:
        entry["vllmConfig"] = {"extraArgs": words}
    if len(entry) == 1:
        raise BadInput(f"{short_id(row)} changes no argument and no number of replicas; --as issue has its commands")
    values = {"servingEngineSpec": {"modelSpec": [entry]}}
    return [
        "# Values of the vLLM Production Stack chart, for the entry of this model: Helm replaces whole lists.",
        *_bounds(replicas, cost),
        *_fill_in(values),
        _json(values),
    ]


def _arguments(operations: str) -> list[str]:
    """Return the words that a JSON patch appends to the command line of an engine."""
    words: list[str] = []
    for operation in json.loads(operations):
        if operation["path"].endswith("/args/-"):
            words.append(operation["value"])
        elif operation["path"].endswith("/env/-"):
            words += operation["value"]["value"].split()
    return words


# -- KEDA and HPA ---------------------------------------------------------------------------------------------------


def _keda(row: Recommendation, variant: Variant, cost: ServiceCost) -> list[str]:
    replicas, schedule = _replicas(variant), _schedule(variant)
    if schedule is not None and schedule.asleep:
        raise BadInput(f"{short_id(row)}: a service that sleeps keeps its replicas, so that KEDA cannot express it")
    if replicas is None and schedule is None:
        raise BadInput(f"{short_id(row)} changes no number of replicas; --as kustomize or --as issue has its commands")
    low, high = sorted(replicas or (cost.replicas, cost.replicas))
    if schedule is None:
        metadata = {"serverAddress": "PROMETHEUS", "query": _waiting_query(cost), "threshold": _QUEUED}
        triggers: list[dict[str, Any]] = [{"type": "prometheus", "metadata": metadata}]
    else:
        counts = _counts(schedule, high)
        low, high, triggers = min(counts), max(counts), list(_cron_triggers(counts))
    values = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "NAME"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "NAME"},
            "minReplicaCount": low,
            "maxReplicaCount": high,
            "cooldownPeriod": 300,
            "triggers": triggers,
        },
    }
    return [_priced_range(low, high, cost), *_fill_in(values), _json(values)]


def _hpa(row: Recommendation, variant: Variant, cost: ServiceCost) -> list[str]:
    if _schedule(variant) is not None:
        raise BadInput(f"{short_id(row)} follows the hours of the week, which an HPA cannot express; --as keda does")
    if (replicas := _replicas(variant)) is None:
        raise BadInput(f"{short_id(row)} changes no number of replicas; --as kustomize or --as issue has its commands")
    low, high = sorted(replicas)
    if low < 1:
        raise BadInput(f"{short_id(row)}: an HPA keeps at least one replica; --as keda reaches none")
    target = {"type": "AverageValue", "averageValue": _QUEUED}
    values = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "NAME"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "NAME"},
            "minReplicas": low,
            "maxReplicas": high,
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
            "metrics": [{"type": "External", "external": {"metric": {"name": "METRIC"}, "target": target}}],
        },
    }
    query = f"# Query of METRIC: {literal(_waiting_query(cost))}"
    return [_priced_range(low, high, cost), *_fill_in(values), query, _json(values)]


def _priced_range(low: int, high: int, cost: ServiceCost) -> str:
    return f"# At the least {low} replicas, {cost.per_month(low)}; at the most {high}, {cost.per_month(high)}."


def _waiting_query(cost: ServiceCost) -> str:
    """Return the Prometheus query of the requests that wait for a service."""
    models = "|".join(re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", model) for model in cost.models)
    return f"sum(pertoken_requests_waiting{{model=~{_json(models)}}})"


_BODIES = {FileFormat.KUSTOMIZE: _kustomize, FileFormat.HELM: _helm, FileFormat.KEDA: _keda, FileFormat.HPA: _hpa}


def _schedule(variant: Variant) -> Schedule | None:
    """Return the schedule that a variant gives a service; None for another change."""
    edit = next((edit for edit in variant.edits if edit.field == "schedule" and edit.after), None)
    if edit is None:
        return None
    after = edit.after
    replicas = tuple((int(hour), int(count)) for hour, count in after.get("replicas", ()))
    return Schedule(frozenset(after.get("off", ())), frozenset(after.get("asleep", ())), replicas)


def _counts(schedule: Schedule, replicas: int) -> list[int]:
    """Return the number of replicas in each hour of the week."""
    fixed = dict(schedule.replicas)
    return [0 if hour in schedule.off else fixed.get(hour, replicas) for hour in range(HOURS_OF_WEEK)]


def _cron_triggers(counts: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield a trigger for each stretch of the week with one number of replicas above 0: KEDA takes the largest."""
    starts = [hour for hour in range(HOURS_OF_WEEK) if counts[hour] != counts[hour - 1]]
    for start, end in zip(starts, [*starts[1:], *starts[:1]], strict=True):
        if counts[start]:
            times = {"timezone": "UTC", "start": _cron(start), "end": _cron(end)}
            yield {"type": "cron", "metadata": times | {"desiredReplicas": str(counts[start])}}


def _cron(hour_of_week: int) -> str:
    return f"0 {hour_of_week % 24} * * {(hour_of_week // 24 + 1) % 7}"


def _replicas(variant: Variant) -> tuple[int, int] | None:
    """Return the number of replicas before and after; None where it stays."""
    counts = (
        (edit.before, edit.after) for edit in variant.edits if edit.field == "replicas" and isinstance(edit.after, int)
    )
    return variant.replicas or next(counts, None)


def _bounds(replicas: tuple[int, int] | None, cost: ServiceCost) -> list[str]:
    if replicas is None:
        return []
    before, after = replicas
    return [f"# {before} replicas cost {cost.per_month(before)}; {after}, {cost.per_month(after)}."]


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


_PLACEHOLDERS = {
    "NAME": "the Deployment of this service",
    "NAMESPACE": "its namespace",
    "KIND": "the kind of the object that owns its pods",
    "IMAGE": "your image of that version",
    "SERVICE": "the worker of this model",
    "METRIC": "the name under which your metrics adapter (prometheus-adapter) serves the query below",
    "PROMETHEUS": "the address of the Prometheus that scrapes the agents",
}


def _fill_in(values: Mapping[str, Any]) -> list[str]:
    text = _json(values)
    words = [f"{word}: {meaning}" for word, meaning in _PLACEHOLDERS.items() if re.search(rf"\b{word}\b", text)]
    return [f"# Fill in {'; '.join(words)}."] if words else []


# -- Issue ---------------------------------------------------------------------------------------------------------


def _issue(row: Recommendation, variant: Variant, now_ts: float) -> Iterator[str]:
    yield f"# {escaped(variant.title)}: {escaped(row.target)}"
    yield from ("", escaped(_worth(variant)))
    for section in advice_sheet(row, now_ts, with_keys=False):
        heading = "Recommendation" if section.title == literal(variant.title) else section.title
        yield from ("", f"## {escaped(heading)}", "")
        for line in section.lines:
            text = line.removeprefix("· ") if isinstance(line, str) else ": ".join(line)
            yield f"    {text}" if section.title in (HOW_TO_APPLY, HOW_TO_UNDO) else f"- {escaped(text)}"
