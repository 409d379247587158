"""Measurement of the load of each deployment and service, once before the rules run. A fork measures half of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pertoken.advisor.forked import Forked, can_fork
from pertoken.evidence import Evidence, Series, adopt, unmade
from pertoken.savings.context import Context
from pertoken.savings.forecasts import Loads
from pertoken.window.progress import TICK_S, Progress, ticking

MIN_SHARED = 200
"""Minimum deployments and services for a fork to measure half of them: it saves 2.4 s of 4.9 s for 1,000."""
PHASE = "measuring loads"


class _Measured(NamedTuple):
    """Load of one subject as a fork returns it."""

    measured: Loads
    made: Mapping[str, Series | None]
    """Series that the measurement computed."""


def measure_loads(context: Context, progress: Progress) -> None:
    """Measure the load and the arrivals of each deployment and service, and the series that most rules read.

    Rules run in forks of this process: series computed here are computed once for all of them.
    """
    seen = tuple(
        {
            id(deployment): deployment for deployment in (*context.deployments.values(), *context.services.values())
        }.values()
    )
    if len(seen) < MIN_SHARED or not can_fork():
        for evidence in ticking(seen, len(seen), PHASE, progress):
            context.forecasts.measure(evidence)
        return
    own_half, fork_half = seen[0::2], seen[1::2]

    def work(report: Callable[[int], None]) -> list[_Measured]:
        measured = []
        for done, evidence in enumerate(fork_half):
            measured.append(_measure(evidence, context))
            report(done + 1)
        return measured

    with Forked(work) as fork:
        for evidence in ticking(own_half, len(own_half), PHASE, progress):
            context.forecasts.measure(evidence)
        fork_results = fork.result(lambda: progress(PHASE, fork.done / len(fork_half)), TICK_S)
    _adopt(fork_half, fork_results, context)


def _measure(seen: Evidence, context: Context) -> _Measured:
    before = unmade(seen)
    context.forecasts.measure(seen)
    measured = context.forecasts.measured(seen)
    return _Measured(measured, {name: seen.peek(name) for name in sorted(before - unmade(seen))})


def _adopt(evidence: Sequence[Evidence], results: Sequence[_Measured], context: Context) -> None:
    for seen, result in zip(evidence, results, strict=True):
        adopt(seen, result.made)
        context.forecasts.adopt(seen, result.measured)
