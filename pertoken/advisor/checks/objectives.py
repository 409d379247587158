"""Changes that save nothing but meet an objective that is missed now: shown without a saving."""

from collections.abc import Sequence

from pertoken.proof.recommendation import LatencyLine
from pertoken.savings.context import Context
from pertoken.savings.estimate import Estimate
from pertoken.state.diff import Diff

LIKELY = 1
"""Index of the likely figure of a range."""


def full_batch_factor(difference: Diff, money: Estimate, context: Context) -> float | None:
    """Return the time per token at the lowered batch limit over the present time per token.

    It is the ratio of requests over the ratio of tokens/s: 0.75 of the requests at 0.9 of the tokens/s take 0.83 of
    the time. None if no batch limit falls below the running requests.
    """
    ratio = money.throughput_ratio
    for change in difference.changes:
        if change.field == "max_num_seqs" and ratio is not None and ratio[LIKELY] > 0:
            running = context.evidence(int(change.target)).peek("running")
            if running is not None and running.mean > change.after:
                return float(change.after) / running.mean / ratio[LIKELY]
    return None


def held_again(lines: Sequence[LatencyLine], tpot_factor: float | None) -> str | None:
    """Return as text which missed objectives a change would meet; None if there are none, or it misses others.

    All `lines` have objectives. A missed TPOT is scaled by `tpot_factor` if known: the forecast spreads requests
    evenly, but bursts fill batches.
    """
    held = []
    for line in lines:
        assert line.slo_ms is not None
        if line.after is None:
            return None
        after_ms = line.after[LIKELY]
        if line.measured_ms is not None and line.measured_ms > line.slo_ms:
            if tpot_factor is not None and line.figure.startswith("TPOT"):
                after_ms = tpot_factor * line.measured_ms
            held.append(
                f"it saves nothing but meets the {line.figure} objective: {line.measured_ms:.0f} ms measured, about "
                f"{after_ms:.0f} ms is expected, and the objective is {line.slo_ms:.0f} ms"
            )
        if after_ms > line.slo_ms:
            return None
    return "; ".join(held) or None
