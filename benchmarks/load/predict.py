"""Predictions of runs: each configuration as an engine that is played at the run's rate, as the finite run it was."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.load.engine import Engine, engines, request_s
from benchmarks.load.play import arrivals, play
from benchmarks.load.runs import OUTPUTS, STEP_TOKENS, Run, accelerator, candidates, fits
from benchmarks.load.unmeasured_watts import unmeasured_busy_w, unmeasured_log_sd
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.efficiency import deviation, efficiency
from pertoken.forecast.power import CandidateWatts, busy_w, full_w, idle_w, products_share
from pertoken.forecast.serving import Z_80

TTFT = OUTPUTS.index("ttft_p50_ms")
SEEDS = 3
"""Draws of the arrivals; predictions are their geometric mean."""


OVER_LIMIT = 1.05
"""Of a power limit, that means of samples reach: the limit is held on average, and meters are off by some percent."""


@dataclass(frozen=True, slots=True)
class Widths:
    """Half widths of the logarithms that 80 % intervals are made of."""

    time: float
    """Of everything that the engine does together: a run is played that much slower and faster."""
    request: float
    """Of what a request takes beside the engine."""
    own: float
    """Of each output, whatever the engine's speed: what the arithmetic misses."""
    wait: float
    """Of the share of a TTFT that is spent in the queue. A wait is the small difference of arrivals and service, so it
    also depends on the balance of prompts and decode, which an engine that is slower in everything does not show."""
    power: float


UNMEASURED = Widths(time=0.4, request=0.5, own=0.1, wait=0.3, power=Z_80 * unmeasured_log_sd())
CALIBRATED = Widths(time=0.28, request=0.35, own=0.1, wait=0.3, power=0.15)
"""Chosen on the public runs so that coverage is about 85 %: with the widths that the other configurations ask for, it
is 80 to 86 % of those left out without host data, 79 to 83 % calibrated. `wait` is a judgement: without it the
intervals of TTFT alone held 79 % of these runs, and misses were waits of servers that did not keep up."""


@dataclass(frozen=True, slots=True)
class Known:
    """Calibration of a configuration: deviations of log times by group, of the request's own time, and of watts."""

    groups: Array
    request: float = 0.0
    power: float | None = None
    """Logarithm of measured over modelled watts; None where they were not measured."""

    @classmethod
    def nothing(cls) -> "Known":
        """As the table has it."""
        return cls(np.zeros(len(deviation().names)))


@dataclass(frozen=True, slots=True)
class Prediction:
    """Of one run, in the order of `OUTPUTS`; None where nothing is predicted, with the reason."""

    low: tuple[float, ...]
    likely: tuple[float, ...]
    high: tuple[float, ...]


class Refused(Exception):
    """A configuration that would not start, or of which too little is known."""


class Configuration:
    """Runs of one configuration, ready to be played. Raises Refused."""

    def __init__(self, run: Run) -> None:
        self.candidate: Candidates = candidates([run])
        if not fits(self.candidate):
            raise Refused(f"the weights of {run.cells['model']} do not fit in {run.cells['gpu']}")
        listed = accelerator(run)
        if listed is None:
            raise Refused(f"the device {run.cells['gpu']!r} is not known")
        self.accelerator = listed.name
        limit_w = np.nan if listed.tdp_w is None else listed.tdp_w
        watts = idle_w(listed.name, limit_w), limit_w, full_w(listed.name, limit_w)
        self.device = CandidateWatts(*(np.array([watts_of_run]) for watts_of_run in watts))

    def engine(self, known: Known) -> Engine:
        """One replica of it."""
        shift = (known.groups @ deviation().groups)[None]
        return engines(self.candidate, efficiency(), STEP_TOKENS, shift)[0]

    def figures(self, run: Run, engine: Engine, request: float) -> Array:
        """Logarithms of `OUTPUTS` but watts, of TPOT and TTFT at p90, of running sequences and of busy tokens/s."""
        dp = float(self.candidate.dp[0])
        n = max(1, round(run.requests / dp))
        prompt, generated = np.full(n, run.prompt), np.full(n, run.generated)
        seen = []
        for seed in range(SEEDS):
            at = arrivals(np.random.default_rng(seed), n, run.rate / dp, run.burstiness)
            played = play(engine, at, prompt, generated)
            tpot, ttft = 1000 * played.tpot_s, 1000 * (played.ttft_s + request)
            seen.append(
                (
                    dp * played.tok_s,
                    np.median(tpot),
                    np.median(ttft),
                    np.quantile(tpot, 0.9),
                    np.quantile(ttft, 0.9),
                    dp * played.running,
                    dp * played.generated.sum() / played.busy_s,
                )
            )
        means: Array = np.log(np.array(seen)).mean(axis=0)
        return means

    def watts(self, figures: Array, measured: float | None) -> float:
        """Watts of one device while its engine works, from `figures`; `measured` as in `Known.power`."""
        running = np.exp(figures[5:6])
        share = products_share(self.candidate, running, running / np.exp(figures[6:7]))
        if measured is None:
            return float(unmeasured_busy_w(self.accelerator, self.device, share)[0])
        return min(float(busy_w(self.device, share)[0] * np.exp(measured)), OVER_LIMIT * float(self.device.limit_w[0]))

    def predict(self, runs: Sequence[Run], known: Known, widths: Widths) -> list[Prediction]:
        """Return the prediction of each run, from its load alone."""
        engine = self.engine(known)
        request = request_s() * float(np.exp(known.request))
        away = float(np.exp(widths.time)), float(np.exp(widths.request))
        predictions = []
        for run in runs:
            likely = self.figures(run, engine, request)
            slow = self.figures(run, engine.slower(away[0]), request * away[1])
            fast = self.figures(run, engine.slower(1 / away[0]), request / away[1])
            ends = np.stack([likely[:3], slow[:3], fast[:3]])
            below = np.hypot(likely[:3] - ends.min(axis=0), widths.own)
            above = np.hypot(ends.max(axis=0) - likely[:3], widths.own)
            alone_ms = 1000 * (engine.prompt_step_s(0, run.prompt) + request)
            wait = widths.wait * max(0.0, 1 - alone_ms / float(np.exp(likely[TTFT])))
            below[TTFT], above[TTFT] = np.hypot(below[TTFT], wait), np.hypot(above[TTFT], wait)
            # Nobody finishes more than arrives.
            above[0] = min(above[0], max(0.0, np.log(run.rate * run.generated * (1 + widths.own)) - likely[0]))
            watts = self.watts(likely, known.power)
            spread = float(np.exp(widths.power))
            most = OVER_LIMIT * float(self.device.limit_w[0])
            predictions.append(
                Prediction(
                    (*map(float, np.exp(likely[:3] - below)), watts / spread),
                    (*map(float, np.exp(likely[:3])), watts),
                    (*map(float, np.exp(likely[:3] + above)), max(watts, min(watts * spread, most))),
                )
            )
        return predictions
