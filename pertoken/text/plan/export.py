"""A plan for other programs and people: JSON values, Markdown, a shell script, and patches of Kubernetes objects.

Nothing here runs a command. All formats list the commands of a step in the order in which they are safe to run.
"""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from typing import Any

from pertoken.advisor.plan.plan import Money, Plan, Step
from pertoken.advisor.plan.script import script
from pertoken.printable import literal
from pertoken.savings.sensitivity import At
from pertoken.text.words import slo_verdict
from pertoken.units import NANO_USD, format_duration, format_usd

LOW, LIKELY, HIGH = range(3)


class Format(StrEnum):
    """Output format of a plan."""

    MARKDOWN = "md"
    SHELL = "sh"
    KUBERNETES = "yaml"
    JSON = "json"

    @property
    def label(self) -> str:
        """Name of the format for people."""
        return {"md": "Markdown", "sh": "shell script", "yaml": "Kubernetes patch", "json": "JSON"}[self.value]


def exported(plan: Plan, window_s: int, form: Format) -> str:
    """Return the plan as text in a format, with a line break at the end."""
    if form is Format.JSON:
        return json.dumps(plan_values(plan, window_s), indent=2) + "\n"
    lines = {Format.MARKDOWN: _markdown, Format.SHELL: _shell, Format.KUBERNETES: _patches}[form](plan, window_s)
    return "\n".join(lines) + "\n"


# -- Markdown ------------------------------------------------------------------------------------------------------


def _markdown(plan: Plan, window_s: int) -> Iterator[str]:
    yield f"# Plan, from the last {format_duration(window_s)}"
    yield ""
    yield f"- Bill now: {format_usd(plan.spend)} a month; after all steps: {format_usd(plan.spend_after)}"
    yield f"- Off the bill: {_range(plan.bankable)} a month"
    yield f"- More capacity on the same bill: {_range(plan.capacity) if any(plan.capacity) else 'none found'}"
    if plan.sensitivity:
        yield f"- Least certain: {escaped(plan.sensitivity[0].assumption)}"
    yield ""
    yield "| step | change | where | bill a month | work | risk | SLO |"
    yield "| ---: | --- | --- | ---: | --- | --- | --- |"
    for number, step in enumerate(plan.steps, 1):
        bill = f"{format_usd(step.spend_before)} → {format_usd(step.spend_after)}"
        cells = (
            f"{number} ✓" if step.accepted else str(number),
            step.title,
            step.where,
            bill,
            step.effort,
            step.risk,
            slo_verdict(step.slo),
        )
        yield f"| {' | '.join(map(escaped, cells))} |"
    for number, step in enumerate(plan.steps, 1):
        yield from ("", f"## Step {number}: {escaped(step.title)}")
        for heading, lines in (("Do", step.commands), ("Undo", step.undo)):
            yield from ("", f"{heading}:", "", *(f"    {literal(line)}" for line in lines))
        tier = (step.tier.assumption,) if step.tier else ()
        notes = (*step.against, *tier, *step.assumptions, *step.conflicts)
        yield from (("", *(f"- {escaped(note)}" for note in notes)) if notes else ())
    if plan.left_out:
        yield from ("", "## Left out", "")
        yield from (
            f"- {escaped(f'{left_out.title}, {left_out.where}: {left_out.reason}')}" for left_out in plan.left_out
        )


def escaped(text: str) -> str:
    """Return a text as one line, of which Markdown and HTML format nothing and that mentions nobody."""
    return re.sub(r"([\\`*_\[\]<>|#@])", r"\\\1", " ".join(literal(text).split()))


def _shell(plan: Plan, window_s: int) -> Iterator[str]:
    steps = [(f"{step.title}, {step.where}", step.commands, step.undo) for step in plan.steps]
    title = f"Plan of pertoken, from the last {format_duration(window_s)}"
    return script((title, f"Off the bill: {_range(plan.bankable)} a month"), steps)


# -- Kubernetes ----------------------------------------------------------------------------------------------------


def _patches(plan: Plan, window_s: int) -> Iterator[str]:
    yield f"# Plan of pertoken, from the last {format_duration(window_s)}: patches for a kustomization.yaml."
    commands = [(number, line) for number, step in enumerate(plan.steps, 1) for line in step.commands]
    known = [(number, patch) for number, line in commands if (patch := patch_of(line)) is not None]
    if not known:
        yield "# No step changes the arguments of an engine in a pod."
        yield "patches: []"
        return
    yield "patches:"
    for number, (kind, name, namespace, operations) in known:
        yield f"# step {number}"
        target = {"kind": kind, "name": name, "namespace": namespace}
        yield f"- target: {json.dumps(target)}"
        yield f"  patch: {json.dumps(operations)}"


def patch_of(line: str) -> tuple[str, str, str, str] | None:
    """Return kind, name, namespace and JSON patch of a command from `changes.kubernetes`; None for other lines."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return None
    if words[:2] != ["kubectl", "-n"] or len(words) != 9 or words[3] != "patch" or words[6] != "--type=json":
        return None
    kind = {"deployment": "Deployment", "llminferenceservice": "LLMInferenceService"}.get(words[4], words[4])
    return kind.partition(".")[0], words[5], words[2], words[8]


def _range(money: Money) -> str:
    low, likely, high = map(format_usd, money)
    return f"{likely} ({low} to {high})" if low != high else likely


# -- JSON ----------------------------------------------------------------------------------------------------------


def plan_values(plan: Plan, window_s: int) -> dict[str, Any]:
    """Return a plan as JSON values; dollars are per month of 730 hours."""
    return {
        "since_s": window_s,
        "spend_usd_per_month": _usd(plan.spend),
        "spend_after_usd_per_month": _usd(plan.spend_after),
        "bankable_usd_per_month": _money(plan.bankable),
        "capacity_usd_per_month": _money(plan.capacity),
        "usd_per_mtok": _mtok_values(plan, plan.spend, plan.spend_after),
        "exact": plan.exact,
        "steps": [_step_values(number, step, plan) for number, step in enumerate(plan.steps, 1)],
        "left_out": [
            {
                "rule_id": left_out.rule_id,
                "id": _id(left_out.recommendation_id),
                "what": left_out.title,
                "where": left_out.where,
            }
            | {"reason": left_out.reason}
            for left_out in plan.left_out
        ],
        "unpriced_hosts": list(plan.unpriced_hosts),
        "sensitivity": [
            {"assumption": sensitivity.assumption, "low": _at(sensitivity.low), "high": _at(sensitivity.high)}
            for sensitivity in plan.sensitivity
        ],
    }


def _mtok_values(plan: Plan, before: int, after: int) -> dict[str, float] | None:
    now, then = plan.per_mtok(before), plan.per_mtok(after)
    return None if now is None or then is None else {"before": now / NANO_USD, "after": then / NANO_USD}


def _step_values(number: int, step: Step, plan: Plan) -> dict[str, Any]:
    return {
        "number": number,
        "rule_id": step.rule_id,
        "id": _id(step.recommendation_id),
        "variant": step.variant_key,
        "what": step.title,
        "where": step.where,
        "risk": step.risk,
        "effort": step.effort,
        "spend_before_usd_per_month": _usd(step.spend_before),
        "spend_after_usd_per_month": _usd(step.spend_after),
        "usd_per_mtok": _mtok_values(plan, step.spend_before, step.spend_after),
        "bankable_usd_per_month": _money(step.bankable),
        "capacity_usd_per_month": _money(step.capacity),
        "accepted": step.accepted,
        "slo": step.slo,
        "slo_headroom": None if step.headroom is None else asdict(step.headroom) | {"share": step.headroom.share},
        "replicas": None if step.replicas is None else {"before": step.replicas[0], "after": step.replicas[1]},
        "released": list(step.released),
        "commands": list(step.commands),
        "undo": list(step.undo),
        "conflicts": list(step.conflicts),
        "forecast": None if step.tier is None else asdict(step.tier),
        "assumptions": list(step.assumptions),
        "against": list(step.against),
    }


def _at(end: At) -> dict[str, Any]:
    return {
        "value": end.value,
        "bankable_usd_per_month": _usd(end.bankable),
        "capacity_usd_per_month": _usd(end.capacity),
        "refused": end.refused,
        "without": list(end.without),
    }


def _id(recommendation_id: int) -> str:
    return f"{recommendation_id % 2**64:016x}"


def _usd(nano_usd: int) -> float:
    return round(nano_usd / NANO_USD, 2)


def _money(money: Money) -> dict[str, float]:
    return {"low": _usd(money[LOW]), "likely": _usd(money[LIKELY]), "high": _usd(money[HIGH])}
