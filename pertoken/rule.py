"""The plugin contract: a rule is a pure function from what was seen and what runs now to candidate states.

    from pertoken.rule import Deployment, Evidence, rule, skip

    @rule("halve-context")
    def halve_context(seen: Evidence, now: Deployment):
        '''Serve a shorter context where nobody uses it.

        ## Why it saves
        ...
        ## When it is wrong
        ...
        ## How to apply
        ...
        ## Sources
        ...
        '''
        if seen.prompt_len.p95 > 4096:
            yield skip("prompts are long")
            return
        yield now.but(max_model_len=8192)

A rule names what it needs as parameters: `seen` (Evidence of one deployment), `now` (that Deployment), `market`
(the read-only catalog), `fleet` (all deployments and devices). With `now` it runs once per deployment, without
once per fleet. It yields a Deployment, a Fleet or `skip(reason)`; it never computes money.
"""

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pertoken.deployment import WEIGHT_BYTES, Deployment, Fleet, FleetDevice, Model, UnknownKnob
from pertoken.evidence import Evidence, NotMeasured, Series

__all__ = [
    "WEIGHT_BYTES",
    "Deployment",
    "Evidence",
    "Fleet",
    "FleetDevice",
    "Model",
    "NotMeasured",
    "Rule",
    "Series",
    "Skip",
    "UnknownKnob",
    "rule",
    "skip",
]

PARAMETERS = ("seen", "now", "market", "fleet")
SECTIONS = ("Why it saves", "When it is wrong", "How to apply", "Sources")
"""Sections a rule's docstring must have, in this order."""


@dataclass(frozen=True, slots=True)
class Skip:
    """A refusal: the rule looked and had nothing to propose, and says why."""

    reason: str


def skip(reason: str) -> Skip:
    """Yield this to refuse with a reason a person can check.

    Raises ValueError for an empty reason.
    """
    if not reason.strip():
        raise ValueError("a refusal needs its reason")
    return Skip(reason.strip())


@dataclass(frozen=True, slots=True)
class Rule:
    """A loaded rule: its id, its function, what it needs and its documentation."""

    rule_id: str
    function: Callable[..., Iterable[Any]]
    needs: tuple[str, ...]
    title: str
    sections: dict[str, str]

    def __call__(self, **arguments: Any) -> Iterable[Any]:
        """Run it with exactly the arguments it needs, by name."""
        return self.function(**arguments)

    @property
    def per_deployment(self) -> bool:
        """Whether it runs once for each deployment (it needs `now` or `seen`)."""
        return "now" in self.needs or "seen" in self.needs


def rule(rule_id: str) -> Callable[[Callable[..., Iterable[Any]]], Rule]:
    """Make a function a rule. `rule_id` is lower-case words joined by hyphens.

    Raises ValueError for a bad id, an unknown parameter, or a docstring without its title and sections.
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule_id):
        raise ValueError(f"rule id {rule_id!r}: use lower-case words joined by hyphens")

    def make(function: Callable[..., Iterable[Any]]) -> Rule:
        needs = tuple(inspect.signature(function).parameters)
        unknown = [name for name in needs if name not in PARAMETERS]
        if unknown:
            raise ValueError(
                f"rule {rule_id}: unknown parameter {unknown[0]!r}; a rule may ask for {', '.join(PARAMETERS)}"
            )
        title, sections = _documentation(rule_id, inspect.getdoc(function) or "")
        return Rule(rule_id, function, needs, title, sections)

    return make


def _documentation(rule_id: str, docstring: str) -> tuple[str, dict[str, str]]:
    title, *_ = docstring.strip().splitlines() or [""]
    pieces = re.split(r"^## +(.+?)\s*$", docstring, flags=re.MULTILINE)
    sections = {name: text.strip() for name, text in zip(pieces[1::2], pieces[2::2], strict=True)}
    missing = [name for name in SECTIONS if not sections.get(name)]
    if not title.strip() or missing:
        what = f"a section '## {missing[0]}'" if missing else "a first line that says what it does"
        raise ValueError(f"rule {rule_id}: its docstring needs {what}")
    return title.strip(), sections
