"""The load of each deployment and service, found once ahead of the rules and half of it in a fork."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pertoken.advisor.forked import Forked, can_fork
from pertoken.evidence import Evidence, Series, adopt, unmade
from pertoken.savings.context import Context
from pertoken.savings.forecasts import Loads
from pertoken.window.progress import TICK_S, Progress, ticking

MIN_SHARED = 200
"""Deployments and services from which a fork measures half: of 1,000 deployments it saves 2.4 s of 4.9 s."""
PHASE = "measuring loads"


class _Found(NamedTuple):
    """What was found of one subject, as a fork returns it."""

    measured: Loads
    made: Mapping[str, Series | None]
    """Series that were made for it."""


def measure_loads(context: Context, progress: Progress) -> None:
    """Find the load and the arrivals of each deployment and service, and with them the series that most rules read.

    Each rule runs in a fork of its own: what was made before is made for all of them.
    """
    seen = tuple({id(each): each for each in (*context.deployments.values(), *context.services.values())}.values())
    if len(seen) < MIN_SHARED or not can_fork():
        for each in ticking(seen, len(seen), PHASE, progress):
            context.forecasts.measure(each)
        return
    ours, theirs = seen[0::2], seen[1::2]

    def work(report: Callable[[int], None]) -> list[_Found]:
        found = []
        for done, each in enumerate(theirs):
            found.append(_found(each, context))
            report(done + 1)
        return found

    with Forked(work) as other:
        for each in ticking(ours, len(ours), PHASE, progress):
            context.forecasts.measure(each)
        found = other.result(lambda: progress(PHASE, other.done / len(theirs)), TICK_S)
    _take_over(theirs, found, context)


def _found(seen: Evidence, context: Context) -> _Found:
    before = unmade(seen)
    context.forecasts.measure(seen)
    measured = context.forecasts.measured(seen)
    return _Found(measured, {name: seen.peek(name) for name in sorted(before - unmade(seen))})


def _take_over(of: Sequence[Evidence], found: Sequence[_Found], context: Context) -> None:
    for seen, each in zip(of, found, strict=True):
        adopt(seen, each.made)
        context.forecasts.adopt(seen, each.measured)
