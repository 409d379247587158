"""A plan for other programs and people: JSON values, Markdown, a shell script, and patches of Kubernetes objects.

Nothing here runs a command. All formats list the commands of a step in the order in which they are safe to run.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from pertoken.advisor.changes.servers import PROCESSES
from pertoken.advisor.plan.plan import Money, Plan, PlanStep
from pertoken.errors import BadInput
from pertoken.printable import literal
from pertoken.proof.recommendation import Recommendation, Variant, short_id
from pertoken.savings.sensitivity import At
from pertoken.state.service import HOURS_OF_WEEK, Schedule
from pertoken.text.advice_sheet import HOW_TO_APPLY, HOW_TO_UNDO, advice_sheet
from pertoken.text.words import slo_verdict
from pertoken.units import HOURS_PER_MONTH, NANO_USD, format_duration, format_usd

PROGRAMS = ("kubectl", "nvidia-smi", "aws", "gcloud", "az")
"""Programs that start a runnable line; every other line is a sentence for people."""
_ON_HOST = re.compile(r"on ([A-Za-z0-9][A-Za-z0-9._-]*): (.+)")
_WORDS = "KIND NAME NAMESPACE IMAGE SERVICE POD TEMPLATE ZONE GROUP OFFERING VCPU MEMORY TYPE COUNT"
_FILL_IN = re.compile(rf"\b({_WORDS.replace(' ', '|')}|[A-Z]+_ID)\b")
_LOOKUP = re.compile(r"INSTANCE=\$\((.+)\)")
"""A command that finds the id of the instance which the next line deletes."""
_UNUSED = re.compile(rf"on ([A-Za-z0-9][A-Za-z0-9._-]*): {re.escape(PROCESSES)}(?:  #.*)?")
_INSTANCE = "$INSTANCE"
_NO_INPUT = " < /dev/null"
"""Input of each program: standard input holds the answers of a person."""
_HEALTH = re.compile(r"curl [a-z -]+ http://ADDRESS(/[A-Za-z0-9/_-]*)(?:  # ADDRESS: (.*))?")
_DESTROYS = re.compile(r"\b(terminate-instances|delete|scale|stop|drain)\b| -mig [01]\b| -d[cg]i\b")
"""Commands that stop servers or delete something, wherever the word is."""
_HEAD = """\
# Read it before you run it. It asks about each step by hand, and before each line that stops or deletes something;
# any answer but y ends it. --yes gives every answer; a server that does not serve still ends it.
"""
_FUNCTIONS = """\
set -eu
case "${1-}" in
--yes) yes=yes ;;
'') yes=no ;;
*) echo "usage: $0 [--yes]" >&2; exit 2 ;;
esac

stop() {
    echo "$1; the lines below did not run." >&2
    exit 1
}

ask() { # TEXT QUESTION
    printf '%s\\n' "$1"
    [ "$yes" = no ] || return 0
    printf '%s [y/N] ' "$2"
    answer=
    read -r answer || stop 'There was no answer'
    case "$answer" in
    y | Y | yes) ;;
    *) stop 'It was declined' ;;
    esac
}

by_hand() { ask "By hand: $1" 'Is it done?'; }

before() { ask "Next: $1" 'Run it?'; }

serves() { # VARIABLE ADDRESSES PATH SERVERS
    addresses=$2
    if [ -z "$addresses" ] && [ "$yes" = no ]; then
        printf 'Address (host:port) of %s: ' "$4"
        read -r addresses || addresses=
    fi
    [ -n "$addresses" ] || stop "$1 is not set: the address (host:port) of $4"
    for address in $addresses; do
        case "$address" in
        *://*) ;;
        *) address=http://$address ;;
        esac
        curl --fail --silent --show-error --max-time 10 --output /dev/null "$address$3" ||
            stop "$address$3 does not answer"
        echo "$address serves."
    done
}

unused() { # HOST
    if ! processes=$(ssh "$1" 'PROCESSES' < /dev/null); then
        [ "$yes" = no ] || stop "The processes on $1 cannot be read"
        by_hand "Check that no process uses the devices of $1."
    elif [ -n "$processes" ]; then
        stop "Processes use the devices of $1"
    fi
}

exactly_one() {
    case "$INSTANCE" in
    '' | None | *[[:space:]]*) stop "Not exactly one instance was found: '$INSTANCE'" ;;
    esac
}
"""
_SERVERS = "each new server"
Steps = Iterable[tuple[str, tuple[str, ...], tuple[str, ...]]]


def script(comments: Iterable[str], steps: Steps) -> Iterator[str]:
    """Yield the lines of a script for steps: title, commands, and commands that undo them, which are comments."""
    body = list(_body(steps))
    yield "#!/bin/sh"
    yield from (f"# {literal(comment)}" for comment in comments)
    yield from _HEAD.splitlines()
    variables = [match[1] for line in body if (match := re.match(r"serves (ADDRESS_\d+) ", line))]
    if variables:
        yield f"# {', '.join(variables)}: environment variables with the addresses of the servers that are checked, as"
        yield "# host:port, several separated by spaces; it asks for those that are not set."
    yield from _FUNCTIONS.replace("PROCESSES", PROCESSES).splitlines()
    yield from body


def _body(steps: Steps) -> Iterator[str]:
    checks = 0
    for number, (title, commands, undo) in enumerate(steps, 1):
        yield from ("", f"# Step {number}: {literal(title)}")
        for line in commands:
            checks += _HEALTH.fullmatch(line) is not None
            yield from shell_lines(line, checks)
        yield from (f"# undo: {literal(line)}" for line in undo)


def shell_lines(line: str, check: int = 1) -> tuple[str, ...]:
    """Return one line of a plan for the script; `check` is the number of its health check."""
    if health := _HEALTH.fullmatch(line):
        variable = f"ADDRESS_{check}"
        servers = literal((health[2] or _SERVERS).removeprefix("host:port of "))
        return (f'serves {variable} "${{{variable}-}}" {health[1]} {shlex.quote(servers)}',)
    if unused := _UNUSED.fullmatch(line):
        return (f"unused {unused[1]}",)
    if lookup := _LOOKUP.fullmatch(line):
        command = _command(lookup[1])
        return (_by_hand(line),) if command is None else (f"INSTANCE=$({command}{_NO_INPUT})", "exactly_one")
    command = _command(line)
    if command is None:
        return (_by_hand(line),)
    if not _DESTROYS.search(command):
        return (command + _NO_INPUT,)
    shown = shlex.quote(command.removesuffix(f'"{_INSTANCE}"'))
    return (f"before {shown}" + f'"{_INSTANCE}"' * command.endswith(f'"{_INSTANCE}"'), command + _NO_INPUT)


def _by_hand(line: str) -> str:
    return f"by_hand {shlex.quote(literal(line))}"


def _command(line: str) -> str | None:
    """Return a command quoted for a shell; None for a sentence, and for a command with words to fill in."""
    on_host = _ON_HOST.fullmatch(line)
    try:
        words = shlex.split(on_host[2] if on_host else line, comments=True)
    except ValueError:
        return None
    command = shlex.join(words)
    if not words or words[0] not in PROGRAMS or _FILL_IN.search(command) or literal(command) != command:
        return None
    if words[-1] == _INSTANCE and not on_host:
        command = f'{shlex.join(words[:-1])} "{_INSTANCE}"'
    return f"ssh {on_host[1]} {shlex.quote(command)}" if on_host else command


class PlanFormat(StrEnum):
    """Output format of a plan."""

    MARKDOWN = "md"
    SHELL = "sh"
    KUBERNETES = "yaml"
    JSON = "json"


def exported(plan: Plan, window_s: int, form: PlanFormat) -> str:
    """Return the plan as text in a format, with a line break at the end."""
    if form is PlanFormat.JSON:
        return json.dumps(plan_values(plan, window_s), indent=2) + "\n"
    lines = {PlanFormat.MARKDOWN: _markdown, PlanFormat.SHELL: _shell, PlanFormat.KUBERNETES: _patches}[form](
        plan, window_s
    )
    return "\n".join(lines) + "\n"


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
        shown_number = f"{number} ✓" if step.accepted else str(number)
        cells = (shown_number, step.title, step.where, bill, step.effort, step.risk, slo_verdict(step.slo))
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
        for left_out in plan.left_out:
            yield f"- {escaped(f'{left_out.title}, {left_out.where}: {left_out.reason}')}"


def escaped(text: str) -> str:
    """Return a text as one line without markup of Markdown or HTML, and without mentions."""
    return re.sub(r"([\\`*_\[\]<>|#@])", r"\\\1", " ".join(literal(text).split()))


def _shell(plan: Plan, window_s: int) -> Iterator[str]:
    steps = [(f"{step.title}, {step.where}", step.commands, step.undo) for step in plan.steps]
    title = f"Plan of pertoken, from the last {format_duration(window_s)}"
    return script((title, f"Off the bill: {_range(plan.bankable)} a month"), steps)


def _patches(plan: Plan, window_s: int) -> Iterator[str]:
    yield f"# Plan of pertoken, from the last {format_duration(window_s)}: patches for a kustomization.yaml."
    commands = [(number, line) for number, step in enumerate(plan.steps, 1) for line in step.commands]
    patches = [(number, patch) for number, line in commands if (patch := patch_of(line)) is not None]
    if not patches:
        yield "# No step changes the arguments of an engine in a pod."
        yield "patches: []"
        return
    yield "patches:"
    for number, (kind, name, namespace, operations) in patches:
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


def _patches_of(commands: Iterable[str]) -> list[tuple[str, str, str, str]]:
    return [patch for line in commands if (patch := patch_of(line)) is not None]


def _range(money: Money) -> str:
    low, likely, high = map(format_usd, money)
    return f"{likely} ({low} to {high})" if low != high else likely


def plan_values(plan: Plan, window_s: int) -> dict[str, object]:
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
                "reason": left_out.reason,
            }
            for left_out in plan.left_out
        ],
        "unpriced_hosts": list(plan.unpriced_hosts),
        "sensitivity": [
            {"assumption": sensitivity.assumption, "low": _at(sensitivity.low), "high": _at(sensitivity.high)}
            for sensitivity in plan.sensitivity
        ],
    }


def _mtok_values(plan: Plan, spend_before: int, spend_after: int) -> dict[str, float] | None:
    mtok_before, mtok_after = plan.per_mtok(spend_before), plan.per_mtok(spend_after)
    if mtok_before is None or mtok_after is None:
        return None
    return {"before": mtok_before / NANO_USD, "after": mtok_after / NANO_USD}


def _step_values(number: int, step: PlanStep, plan: Plan) -> dict[str, object]:
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


def _at(end: At) -> dict[str, object]:
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
    return dict(zip(("low", "likely", "high"), map(_usd, money), strict=True))


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
    """Replicas of the service that a recommendation changes, and their present cost."""

    models: tuple[str, ...]
    replicas: int
    nano_usd_per_hour: int | None
    """Of all replicas; None without a price."""

    def per_month(self, replicas: int) -> str:
        """Return the monthly cost of a number of replicas."""
        if self.nano_usd_per_hour is None or not self.replicas:
            return "unknown: no device has a price"
        return f"{format_usd(round(self.nano_usd_per_hour / self.replicas * replicas * HOURS_PER_MONTH))} a month"


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


def _kustomize(row: Recommendation, variant: Variant, cost: ServiceCost) -> list[str]:
    replicas, patches = _replicas(variant), _patches_of(variant.commands)
    names = sorted({name for kind, name, _, _ in patches if kind == "Deployment"}) or ["NAME"]
    if not patches and replicas is None:
        raise BadInput(f"{short_id(row)} changes no object of Kubernetes that is known; --as issue has its commands")
    values: dict[str, object] = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    if patches:
        values["patches"] = [
            {"target": {"kind": kind, "name": name, "namespace": namespace}, "patch": operations}
            for kind, name, namespace, operations in patches
        ]
    if replicas is not None:
        values["replicas"] = [{"name": name, "count": replicas[1]} for name in names]
    return [*_bounds(replicas, cost), *_fill_in(values), _json(values)]


def _helm(row: Recommendation, variant: Variant, cost: ServiceCost) -> list[str]:
    replicas, patches = _replicas(variant), _patches_of(variant.commands)
    words = [word for _, _, _, operations in patches[:1] for word in _arguments(operations)]
    words = words or [word for line in variant.commands if line.startswith("set --") for word in line.split()[1:]]
    entry: dict[str, object] = {"name": patches[0][1] if patches else "NAME"}
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


def _keda(row: Recommendation, variant: Variant, cost: ServiceCost) -> list[str]:
    replicas, schedule = _replicas(variant), _schedule(variant)
    if schedule is not None and schedule.asleep:
        raise BadInput(f"{short_id(row)}: a service that sleeps keeps its replicas, so that KEDA cannot express it")
    if replicas is None and schedule is None:
        raise BadInput(f"{short_id(row)} changes no number of replicas; --as kustomize or --as issue has its commands")
    low, high = sorted(replicas or (cost.replicas, cost.replicas))
    if schedule is None:
        metadata = {"serverAddress": "PROMETHEUS", "query": _waiting_query(cost), "threshold": _QUEUED}
        triggers: list[dict[str, object]] = [{"type": "prometheus", "metadata": metadata}]
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
    after = next((edit.after for edit in variant.edits if edit.field == "schedule" and edit.after), None)
    if not isinstance(after, Mapping):
        return None
    replicas = tuple((int(hour), int(count)) for hour, count in after.get("replicas", ()))
    return Schedule(frozenset(after.get("off", ())), frozenset(after.get("asleep", ())), replicas)


def _counts(schedule: Schedule, replicas: int) -> list[int]:
    """Return the number of replicas in each hour of the week."""
    fixed = dict(schedule.replicas)
    return [0 if hour in schedule.off else fixed.get(hour, replicas) for hour in range(HOURS_OF_WEEK)]


def _cron_triggers(counts: Sequence[int]) -> Iterator[dict[str, object]]:
    """Yield a trigger for each interval of the week with one number of replicas above 0: KEDA takes the largest."""
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
        (edit.before, edit.after)
        for edit in variant.edits
        if edit.field == "replicas" and isinstance(edit.before, int) and isinstance(edit.after, int)
    )
    return variant.replicas or next(counts, None)


def _bounds(replicas: tuple[int, int] | None, cost: ServiceCost) -> list[str]:
    if replicas is None:
        return []
    n_before, n_after = replicas
    return [f"# {n_before} replicas cost {cost.per_month(n_before)}; {n_after}, {cost.per_month(n_after)}."]


def _json(value: object) -> str:
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


def _fill_in(values: Mapping[str, object]) -> list[str]:
    text = _json(values)
    words = [f"{word}: {meaning}" for word, meaning in _PLACEHOLDERS.items() if re.search(rf"\b{word}\b", text)]
    return [f"# Fill in {'; '.join(words)}."] if words else []


def _issue(row: Recommendation, variant: Variant, now_ts: float) -> Iterator[str]:
    yield f"# {escaped(variant.title)}: {escaped(row.target)}"
    yield from ("", escaped(_worth(variant)))
    for section in advice_sheet(row, now_ts, with_keys=False):
        heading = "Recommendation" if section.title == literal(variant.title) else section.title
        yield from ("", f"## {escaped(heading)}", "")
        for line in section.lines:
            text = line.removeprefix("· ") if isinstance(line, str) else ": ".join(line)
            yield f"    {text}" if section.title in (HOW_TO_APPLY, HOW_TO_UNDO) else f"- {escaped(text)}"
