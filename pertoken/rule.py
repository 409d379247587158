"""Public surface of a plugin: a rule is a pure function from what was measured and what runs now to candidate states.

    from collections.abc import Iterator

    from pertoken.rule import Deployment, Evidence, Skip, rule, skip

    @rule("lower-context-limit")
    def lower_context_limit(seen: Evidence, now: Deployment) -> Iterator[Deployment | Skip]:
        '''Lower the context limit where requests stay far below it.

        ## Why it saves
        ...
        ## When it is wrong
        ...
        ## How to apply
        ...
        ## Sources
        ...
        '''
        limit, longest = now.max_model_len, seen.prompt_len.max + seen.generated_len.max
        if limit is None:
            yield skip("limit-unknown", "the context limit is not known")
            return
        enough = 1024
        while enough < 2 * longest:
            enough *= 2
        if enough < limit:
            yield now.but(max_model_len=enough)
        else:
            yield skip("context-used", f"requests reach {longest:.0f} of {limit} tokens")

A rule names its inputs as parameters:

- `now`: one `Deployment`; the rule runs once per deployment, and `seen` is the `Evidence` of that one.
- `service`: one `Service`; the rule runs once per service, and `seen` is of the sum of its deployments.
- `fleet`: the whole `Fleet`. A rule that names neither `now` nor `service` runs once, and its `seen` is a
  `FleetEvidence`: `seen.of(host)`, `seen.of(device)`, `seen.of(service)`, `seen.of(deployment)`.
- `market`: the read-only catalog of accelerators, list prices and model shapes.
- `options`: values in `[rules.ID]` of the configuration. Its annotation is a frozen dataclass whose fields all have
  defaults: `few_running: int = option(16, "requests per device", low=0)`.

Each series of `seen` has `mean`, `max`, `n` and the quantiles `p10`, `p25`, `p50`, `p75`, `p90`, `p95` and `p99`.
`seen.hours.NAME` is its mean in each of the 168 hours of the week (UTC, Monday 00:00 first), None for hours without
observations.

The window is the last 7 days (`advisor.since`). `@rule("its-id", window="28d")` sets another one, 1 minute to 28
days: a rule about the hours of a week needs a longer window, a rule about the present a shorter one, such as "1h".
A rule with a long window names all series that it reads, so that no other is read for it: four weeks of a large fleet
take long. `@rule("its-id", window="28d", series=("generated_tok_s", "load_s"))`
`seen.epochs` are the earlier epochs of the deployment in the last eight weeks, oldest first, each with its
`engine_version`, `driver` and `knobs`, and with what `changed` since. Its `present.ratio` is the device time per token
of the present epoch over that of this one at like load (low, likely, high). Where the two cannot be compared it is
None, and `present.code` and `present.reason` hold why.

It yields edited states (a Deployment, a Service or a Fleet), or `skip(code, reason)`, in any combination. The edits:

- Of a deployment: `but(knob=...)`, `on(Placement(...))`, `on_devices(ids)`, `serving_share(share)`, `restarted()`,
  `expecting(low, likely, high, source)`.
- Of a service, for all its deployments: `but(knob=...)`, `on(Placement(...), all_but=1)`, `resized()` (the fewest
  replicas that sustain the demand), `scaled_to(n)` (such as `service.scaled_to(len(service.deployments) - 1)`),
  `serving(output_len=times(0.7))`, `scheduled(off(hours))`, `expecting(...)`. Pricing chooses which replicas go.
- Of the fleet: `replace(now, one, other)`, `merge(deployments, into)`, `release(host)`, `partition(device, profile)`,
  `commit(Commitment(...))`; `edit(service)` puts an edited service or deployment into it, for several changes at once.

`fleet.slowest_link(now.device_ids)` is the slowest link between devices: one of `LINKS`, None if not known.
`docs/rules.md` lists every knob with its range, and every series of `seen` with its unit.
`propose(state, risk=..., effort=..., requires=..., excludes=..., against=...)` adds properties for people. A rule
never computes money: the advisor prices the difference between the present and each proposal. `pertoken.testing` runs a
rule over typical situations and checks that it conforms; `pertoken rules check FILE` prints both.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pertoken.catalog.engine_lines import EngineLine, version_numbers
from pertoken.catalog.market import Accelerator, Market
from pertoken.catalog.offers import Offer, TokenOffer
from pertoken.evidence import Comparison, Epoch, Evidence, NotMeasured, Series
from pertoken.metrics import SERIES
from pertoken.settings.keys import option, options_of, read_options
from pertoken.state.deployment import Commitment, Deployment, Placement
from pertoken.state.fleet import LINKS, Device, Fleet, Host, Partition
from pertoken.state.knobs import InvalidEdit, UnknownKnob
from pertoken.state.model import WEIGHT_BYTES, Model
from pertoken.state.service import FEWEST, Demand, Schedule, Service, asleep, off, times, to
from pertoken.units import counted, format_duration, parse_duration_s

__all__ = [
    "FEWEST",
    "LINKS",
    "WEIGHT_BYTES",
    "Accelerator",
    "Commitment",
    "Comparison",
    "Demand",
    "Deployment",
    "Device",
    "EngineLine",
    "Epoch",
    "Evidence",
    "Fleet",
    "FleetEvidence",
    "Host",
    "InvalidEdit",
    "Market",
    "Model",
    "NotMeasured",
    "Offer",
    "Partition",
    "Placement",
    "Proposal",
    "Rule",
    "Schedule",
    "Series",
    "Service",
    "Skip",
    "TokenOffer",
    "UnknownKnob",
    "asleep",
    "counted",
    "off",
    "option",
    "propose",
    "rule",
    "skip",
    "times",
    "to",
    "version_numbers",
]

PARAMETERS = ("seen", "now", "service", "fleet", "market", "options")
SECTIONS = ("Why it saves", "When it is wrong", "How to apply", "Sources")
"""Sections a rule's docstring must have, in this order."""
RISKS = ("none", "latency", "availability", "quality")
"""Possible harm of a change, least severe first."""
EFFORTS = ("low", "medium", "high")
"""Low: applied while the engine serves. Medium: the engine restarts. High: changes of hardware, model or programs."""

MIN_WINDOW_S, MAX_WINDOW_S = 60, 28 * 86_400
"""Limits of the window of a rule, seconds."""
MAX_REASON = 2000
"""Maximum characters of a refusal's reason."""
MAX_RELATED = 100
"""Maximum rules that a proposal requires, or excludes, and reasons against it."""

Subject = Deployment | Service | Device | Partition | Host
"""Subject of evidence or of a refusal."""

_WORDS = r"[a-z0-9]+(-[a-z0-9]+)*"


@dataclass(frozen=True, slots=True)
class Skip:
    """A refusal: no proposal, with a code for programs and a reason for people."""

    code: str
    reason: str
    about: Subject | None = None


def skip(code: str, reason: str, about: Subject | None = None) -> Skip:
    """Yield this to refuse: `skip("not-memory-bound", "decode does not wait on memory")`.

    `about` names the service, deployment or host a rule over the fleet refuses for. Raises ValueError for a code that
    is not lower-case words joined by hyphens, or a reason that is empty or longer than `MAX_REASON`.
    """
    if not isinstance(code, str) or not re.fullmatch(_WORDS, code):
        raise ValueError(f"refusal code {code!r}: use lower-case words joined by hyphens")
    if not isinstance(reason, str) or not reason.strip():
        raise ValueError("a refusal needs its reason")
    if len(reason) > MAX_REASON:
        raise ValueError(f"the reason of refusal {code} has {len(reason):,} characters: use at most {MAX_REASON:,}")
    return Skip(code, reason.strip(), about)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed state with properties that the advisor cannot derive; see `propose`."""

    state: Deployment | Service | Fleet
    risk: str | None = None
    effort: str | None = None
    requires: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    against: tuple[str, ...] = ()


def propose(
    state: Deployment | Service | Fleet,
    *,
    risk: str | None = None,
    effort: str | None = None,
    requires: Iterable[str] = (),
    excludes: Iterable[str] = (),
    against: Iterable[str] = (),
) -> Proposal:
    """Yield this instead of a bare state to add its risk and effort, and the ids of rules it requires or excludes.

    `against` are sentences that speak against the change, or name an unknown. The default risk is the highest
    risk of the changed knobs; the default effort depends on whether an engine restarts.
    Raises ValueError for a value outside `RISKS` or `EFFORTS`, an invalid rule id, or an empty or too long reason.
    """
    if not isinstance(state, Deployment | Service | Fleet):
        raise ValueError(f"propose() takes a Deployment, a Service or a Fleet, not {type(state).__name__}")
    for name, word, words in (("risk", risk, RISKS), ("effort", effort, EFFORTS)):
        if word is not None and word not in words:
            raise ValueError(f"{name}={word!r}: use one of {', '.join(words)}")
    related = tuple(requires), tuple(excludes)
    for rule_id in (*related[0], *related[1]):
        if not isinstance(rule_id, str) or not re.fullmatch(_WORDS, rule_id):
            raise ValueError(f"{rule_id!r} is not a rule id")
    if max(map(len, related)) > MAX_RELATED:
        raise ValueError(f"a proposal requires or excludes at most {MAX_RELATED} rules")
    reasons = tuple(against)
    if len(reasons) > MAX_RELATED:
        raise ValueError(f"a proposal has at most {MAX_RELATED} reasons against it")
    for reason in reasons:
        if not isinstance(reason, str) or not reason.strip() or len(reason) > MAX_REASON:
            raise ValueError(f"a reason against a proposal is a text of at most {MAX_REASON:,} characters")
    return Proposal(state, risk, effort, *related, reasons)


def subject_key(subject: object) -> tuple[str, int | str]:
    """Return the kind and id of a subject: `("service", "chat")`. A partition is of kind `device`.

    Raises TypeError for anything else.
    """
    match subject:
        case Deployment():
            return "deployment", subject.deployment_id
        case Service():
            return "service", subject.name
        case Device():
            return "device", subject.device_id
        case Partition():
            return "device", subject.partition_id
        case Host():
            return "host", subject.host_id
    raise TypeError(f"{type(subject).__name__} is not a deployment, service, device, partition or host")


class FleetEvidence:
    """Evidence of a fleet by subject: `seen.of(host).held.mean`."""

    def __init__(self, measured: Mapping[tuple[str, int | str], Evidence]) -> None:
        self._measured = measured
        self._requested: dict[tuple[str, int | str], Evidence] = {}

    def of(self, subject: Subject) -> Evidence:
        """Return the evidence of one subject; a new subject has no series."""
        key = subject_key(subject)
        if key not in self._requested:
            measured = self._measured.get(key)
            self._requested[key] = Evidence({}) if measured is None else measured.fresh()
        return self._requested[key]

    @property
    def read(self) -> tuple[tuple[tuple[str, int | str], Evidence], ...]:
        """Evidence of each subject with a series that was read, by kind and id."""
        return tuple((key, evidence) for key, evidence in self._requested.items() if evidence.read)


@dataclass(frozen=True, slots=True)
class Rule:
    """A loaded rule: its id, its function, the parameters it names, its documentation and its options."""

    rule_id: str
    function: Callable[..., Iterable[Any]]
    needs: tuple[str, ...]
    """Parameters that a run passes; options are already bound."""
    title: str
    sections: dict[str, str]
    options: Any = None
    """Its configured options, an instance of its dataclass; None for a rule without options."""
    window: str | None = None
    """Its window, such as `28d`; None: the window of the run (`advisor.since`)."""
    series: tuple[str, ...] | None = None
    """Names of the series that it reads in its window; None: any."""

    @property
    def window_s(self) -> int | None:
        """Length of its window, seconds; None: the window of the run."""
        return None if self.window is None else int(parse_duration_s(self.window))

    def __call__(self, **arguments: Any) -> Iterable[Any]:
        """Run the rule with the arguments of `needs`, by name."""
        return self.function(**arguments) if self.options is None else self.function(options=self.options, **arguments)

    def configured(self, values: Mapping[str, object]) -> "Rule":
        """Return this rule with the values of `[rules.ID]` and defaults for its other options.

        Raises ValueError with a message that begins with the unknown or invalid key.
        """
        if self.options is None:
            raise ValueError(f"{next(iter(values), '')}: the rule has no options")
        return replace(self, options=read_options(type(self.options), values))

    @property
    def scope(self) -> str:
        """Scope of one call: `deployment`, `service` or `fleet`."""
        return "deployment" if "now" in self.needs else "service" if "service" in self.needs else "fleet"


def rule(
    rule_id: str, *, window: str | None = None, series: Iterable[str] | None = None
) -> Callable[[Callable[..., Iterable[Any]]], Rule]:
    """Make a function a rule. `rule_id` is lower-case words joined by hyphens.

    `window` is the length of its evidence, such as "1h" or "28d"; the default is the window of the run. `series` names
    all that it reads in a window of its own; the default is any series, which takes longer to read.
    Raises ValueError for an invalid id or window, an unknown series or parameter, both `now` and `service`, options
    that are not a frozen dataclass with defaults, or a docstring without its title and sections.
    """
    if not re.fullmatch(_WORDS, rule_id):
        raise ValueError(f"rule id {rule_id!r}: use lower-case words joined by hyphens")
    _check_window(rule_id, window)
    declared = None if series is None else _declared(rule_id, window, series)

    def make(function: Callable[..., Iterable[Any]]) -> Rule:
        needs = tuple(inspect.signature(function).parameters)
        unknown = [name for name in needs if name not in PARAMETERS]
        if unknown:
            raise ValueError(
                f"rule {rule_id}: unknown parameter {unknown[0]!r}; a rule may name {', '.join(PARAMETERS)}"
            )
        if {"now", "service"} <= set(needs):
            raise ValueError(f"rule {rule_id}: name `now` to run per deployment or `service` to run per service")
        options = _default_options(rule_id, function) if "options" in needs else None
        title, sections = _documentation(rule_id, inspect.getdoc(function) or "")
        given = tuple(name for name in needs if name != "options")
        return Rule(rule_id, function, given, title, sections, options, window, declared)

    return make


def _check_window(rule_id: str, window: object) -> None:
    if window is None:
        return
    try:
        if not isinstance(window, str):
            raise ValueError("write it as text")
        if not MIN_WINDOW_S <= parse_duration_s(window) <= MAX_WINDOW_S:
            raise ValueError("it is too short or too long")
    except ValueError as error:
        limits = f"from {format_duration(MIN_WINDOW_S)} to {format_duration(MAX_WINDOW_S)}"
        raise ValueError(f'rule {rule_id}: window={window!r}: {error}; use {limits}, such as "1h"') from None


def _declared(rule_id: str, window: str | None, series: Iterable[str]) -> tuple[str, ...]:
    names = (series,) if isinstance(series, str) else tuple(series)
    if window is None:
        raise ValueError(f"rule {rule_id}: series={names!r}: only a rule with a window of its own declares its series")
    if unknown := [name for name in names if name not in SERIES]:
        raise ValueError(f"rule {rule_id}: not a series: {unknown[0]!r}; known: {', '.join(SERIES)}")
    return names


def _default_options(rule_id: str, function: Callable[..., Iterable[object]]) -> object:
    kind = inspect.signature(function).parameters["options"].annotation
    try:
        if isinstance(kind, str):  # `from __future__ import annotations`
            kind = _named(kind, getattr(function, "__globals__", {}))
        options_of(kind)
    except (ValueError, NameError) as error:
        raise ValueError(f"rule {rule_id}: the annotation of `options`: {error}") from None
    return kind()


def _named(annotation: str, names: Mapping[str, object]) -> object:
    """Return the value of a dotted name among the names of a module. Raises NameError for an unknown name."""
    first, *rest = annotation.strip("'\"").split(".")
    if first not in names:
        raise NameError(f"name {annotation!r} is not defined")
    value = names[first]
    for name in rest:
        if not hasattr(value, name):
            raise NameError(f"name {annotation!r} is not defined")
        value = getattr(value, name)
    return value


def _documentation(rule_id: str, docstring: str) -> tuple[str, dict[str, str]]:
    title, *_ = docstring.strip().splitlines() or [""]
    pieces = re.split(r"^## +(.+?)\s*$", docstring, flags=re.MULTILINE)
    sections = {name: text.strip() for name, text in zip(pieces[1::2], pieces[2::2], strict=True)}
    missing = [name for name in SECTIONS if not sections.get(name)]
    if not title.strip() or missing:
        what = f"a section '## {missing[0]}'" if missing else "a first line that states what it does"
        raise ValueError(f"rule {rule_id}: its docstring needs {what}")
    return title.strip(), sections
