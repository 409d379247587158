"""Baselines that a prediction must beat: a textbook roofline, and an interpolation between measured rates."""

from collections.abc import Sequence

import numpy as np

from benchmarks.forecast.baselines import BANDWIDTH_SHARE, FLOPS_SHARE
from benchmarks.load.predict import Configuration
from benchmarks.load.runs import OUTPUTS, Run
from pertoken.forecast.candidates import Array
from pertoken.forecast.terms import TERMS, prefill_seconds, seconds

AT = {name: place for place, name in enumerate(TERMS)}


def roofline(configuration: Configuration, runs: Sequence[Run]) -> list[Array]:
    """Return `OUTPUTS` of runs in a steady state: the longer of memory and products, and prefill; the power limit."""
    c = configuration.candidate
    limit = int(c.max_num_seqs[0] * c.dp[0])
    running = np.arange(1.0, limit + 1)
    term_s = seconds(c.spread(), running[None])[0]
    memory = term_s[:, [AT["weights"], AT["experts"], AT["kv_cache"]]].sum(axis=1) / BANDWIDTH_SHARE
    step_s = np.maximum(memory, term_s[:, AT["decode_flops"]] / FLOPS_SHARE)
    prefill_s = float(sum(part[0] for part in prefill_seconds(c, 1.0)[:2])) / FLOPS_SHARE
    predictions = []
    for run in runs:
        finished = running / (run.generated * step_s + running * prefill_s)
        at = min(int(np.searchsorted(np.maximum.accumulate(finished), run.rate)), limit - 1)
        tok_s = min(run.rate, float(finished[at])) * run.generated
        token_s = step_s[at] + running[at] * prefill_s / run.generated
        watts = float(configuration.device.limit_w[0])
        predictions.append(np.array([tok_s, 1000 * token_s, 1000 * (prefill_s + step_s[at]), watts]))
    return predictions


def neighbours(runs: Sequence[Run]) -> list[Array]:
    """Return `OUTPUTS` of runs of one configuration between those measured at the next rates, by logarithms.

    At the lowest and the highest rate it is the one neighbour. It sees what it is scored beside.
    """
    rates = np.log([run.rate for run in runs])
    measured = np.log(np.array([run.measured for run in runs]))
    predictions = []
    for place in range(len(runs)):
        others = np.array([row for row in range(len(runs)) if row != place], dtype=np.intp)
        values = np.full(len(OUTPUTS), np.nan)
        for column in range(len(OUTPUTS)):
            known = others[np.isfinite(measured[others, column])]
            if len(known):
                values[column] = np.exp(np.interp(rates[place], rates[known], measured[known, column]))
        predictions.append(values)
    return predictions
