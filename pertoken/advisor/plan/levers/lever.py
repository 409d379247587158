"""Levers: priced variants of recommendations as changes of a fleet."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from pertoken.advisor.checks.candidate import Candidate, candidate
from pertoken.advisor.checks.permitted import refusal
from pertoken.advisor.plan.levers import reach
from pertoken.advisor.plan.plan import EFFORTS, LeftOut, Limits
from pertoken.advisor.present import Present
from pertoken.errors import BadInput
from pertoken.proof.recommendation import Recommendation, State, Variant
from pertoken.state.fleet import Fleet

LEFT_OUT = "you left it out"
_ORDER = tuple(EFFORTS.values())


@dataclass(frozen=True, eq=False)
class Lever:
    """One variant of a recommendation."""

    base: Fleet
    """The present fleet."""
    row: Recommendation
    variant: Variant
    change: Candidate
    """The change of `base`."""

    @cached_property
    def key(self) -> tuple[str, str, str, str]:
        """Identity and sort key, independent of the order in which rules were loaded."""
        return self.row.rule_id, self.row.target_kind, self.row.target_key, self.variant.key

    @property
    def name(self) -> str:
        """Key as one text."""
        return "\x1f".join(self.key)

    @property
    def effort(self) -> str:
        """`minutes`, `hours` or `days`."""
        return EFFORTS[self.variant.effort]

    @property
    def touches(self) -> frozenset[str]:
        """Changed services and hosts: `service:NAME`, `host:ID`."""
        return frozenset(self.variant.touches)

    @cached_property
    def freed(self) -> frozenset[int]:
        """Ids of the devices that it may free or add deployments to."""
        return reach.freed_devices(self.base, self.change)

    @cached_property
    def hosts(self) -> frozenset[int]:
        """Ids of the hosts that it releases, and the hosts of `freed`."""
        return reach.acted_on(self.base, self.change, self.freed)

    @cached_property
    def committed(self) -> frozenset[int]:
        """Ids of the hosts covered by its commitments."""
        return reach.committed_hosts(self.base, self.change)

    @cached_property
    def is_commitment(self) -> bool:
        """Whether it only makes commitments."""
        return bool(self.change.diff.changes) and all(change.kind == "fleet" for change in self.change.diff.changes)

    @cached_property
    def is_schedule(self) -> bool:
        """Whether it changes a schedule."""
        return any(change.field == "schedule" for change in self.change.diff.changes)

    def left_out(self, reason: str) -> LeftOut:
        """Return it as left out of a plan."""
        return LeftOut(self.row.rule_id, self.row.recommendation_id, self.variant.title, self.row.target, reason)


def levers(
    gathered: Present, recommendations: Iterable[Recommendation], limits: Limits
) -> tuple[tuple[Lever, ...], tuple[LeftOut, ...]]:
    """Return the priced variants of open recommendations in their order by key, and those left out from the start.

    Raises BadInput for an effort that is none.
    """
    if limits.max_effort not in _ORDER:
        raise BadInput(f"max effort {limits.max_effort!r} is not possible: use {', '.join(_ORDER)}")
    kept: list[Lever] = []
    left: list[LeftOut] = []
    for row in recommendations:
        for variant in row.variants if row.state is State.OPEN else ():
            lever = _lever(gathered, row, variant, limits)
            if isinstance(lever, Lever):
                kept.append(lever)
            else:
                left.append(LeftOut(row.rule_id, row.recommendation_id, variant.title, row.target, lever))
    return tuple(sorted(kept, key=lambda lever: lever.key)), tuple(left)


def _lever(gathered: Present, row: Recommendation, variant: Variant, limits: Limits) -> Lever | str:
    """Return a variant as a lever, or why it cannot be one."""
    if row.recommendation_id in limits.without:
        return LEFT_OUT
    if row.unconfirmed is not None:
        return f"the last run did not confirm it: {row.unconfirmed}"
    if row.rule_id in limits.exclude:
        return f"{row.rule_id} is excluded"
    if _ORDER.index(EFFORTS[variant.effort]) > _ORDER.index(limits.max_effort):
        return f"it takes {EFFORTS[variant.effort]}, and at most {limits.max_effort} are asked for"
    if variant.uncounted is not None:
        return f"no money is counted for it: {variant.uncounted}"
    if not variant.proposal:
        return "it was stored by an older version: run `pertoken advise` again"
    base, market = gathered.fleet, gathered.context.market
    try:
        configured = row.rule_id in gathered.configured_rules
        change = candidate(base, json.loads(variant.proposal), None, market, configured=configured)
    except ValueError as error:
        return f"it does not apply any more: {error}"
    if change is None:
        return "it runs already"
    refused = refusal(change.diff, base, change.after, gathered.forbidden)
    return refused.reason if refused is not None else Lever(base, row, variant, change)
