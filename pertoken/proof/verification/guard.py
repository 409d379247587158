"""Output guard: whether outputs after a change differ from outputs before it, by counters of engines.

Each signal is an hourly value. A regression on prompt length, load and the hour of the week, fitted before the change,
predicts it after the change. The mean difference is an alarm beyond a limit that the history itself sets: the largest
difference that the same comparison shows on placebo splits, in which nothing changed, and how far single hours lie
apart. A smallest change that matters bounds it below.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from pertoken.proof.verification.question import Question, Signal
from pertoken.proof.verification.windows import MAX_BASELINE_DAYS, MIN_AFTER_DAYS, MIN_ALIKE, washout_s
from pertoken.window.columns import Floats, Mask
from pertoken.window.epochs import ENDED_COUNTS, OutputCounts

MAX_PROMPT_RATIO = 1.25
"""Maximum ratio of the mean prompts of like hours. This and the next constants are judgements."""
MIN_BASELINE_DAYS = 14
"""Minimum measured days before the change."""
MIN_SPLITS = 8
"""Minimum number of placebo splits."""
PLACEBO_MARGIN = 1.5
"""Factor on the largest difference of the placebo splits."""
HOURS_APART = 1.5
"""Standard deviations of single hours that a change of outputs exceeds: traffic alone moves the mean less."""
PER_PROMPT_TOKEN = "output tokens per prompt token"
"""Label of the length where an engine counts no requests."""
NEARLY_EMPTY = 0.2
"""Part of the expected length below which outputs are nearly empty."""
MIN_REQUESTS = 20
"""Requests of an hour from which shares of them count."""


@dataclass(frozen=True, slots=True)
class Spec:
    """Computation, comparison and name of a signal."""

    label: str
    value: Callable[[OutputCounts], Floats | None]
    """Hourly values, NaN where an hour has none; None where the engine does not count it."""
    matters: float
    """Smallest change that matters."""
    like_prompts: bool = True
    """Whether it depends on prompts: only hours with like prompts are compared."""
    rise_only: bool = True
    """Whether only a rise is an alarm."""
    is_log: bool = False
    """Whether values are logarithms: changes are then shown as ratios."""


@dataclass(frozen=True, slots=True)
class SignalChange:
    """One signal before and after a change."""

    signal: Signal
    label: str
    before: float
    """Mean expected after the change, by the hours before."""
    after: float
    limit: float
    """Change from which it is an alarm: a difference, of lengths a fraction."""
    alarm: bool

    @property
    def figures(self) -> tuple[str, str]:
        """Both values for people."""
        digits = ".3g" if self.signal in (Signal.LENGTH, Signal.SPREAD) else ".1%"
        return f"{self.before:{digits}}", f"{self.after:{digits}}"


@dataclass(frozen=True, slots=True)
class Guard:
    """Result of the output guard."""

    signals: tuple[SignalChange, ...] = ()
    not_compared: tuple[tuple[Signal, str], ...] = ()
    """Signals that could not be compared, each with the reason."""
    checked: bool = False
    """Whether a quality check passed with this change: changed outputs then withhold no saving."""

    @property
    def alarms(self) -> tuple[SignalChange, ...]:
        """The signals that changed."""
        return tuple(change for change in self.signals if change.alarm)

    @property
    def changed(self) -> bool:
        """Whether outputs changed and nobody checked their quality."""
        return bool(self.alarms) and not self.checked

    @property
    def sentence(self) -> str:
        """Changed signals as text: `outputs are terser: mean length of outputs 212 → 96.1`."""
        figures = ", ".join(f"{change.label} {' → '.join(change.figures)}" for change in self.alarms)
        return f"{self.name}: {figures}" + ("; their quality was checked" if self.checked else "")

    @property
    def name(self) -> str | None:
        """The kind of change for people; None where outputs did not change."""
        alarms = {change.signal: change for change in self.alarms}
        if not alarms:
            return None
        if alarms.keys() & {Signal.FAILED, Signal.ABORTED}:
            return "requests fail"
        length = alarms.get(Signal.LENGTH)
        if Signal.EMPTY in alarms or (length is not None and length.after < NEARLY_EMPTY * length.before):
            return "outputs are nearly empty"
        if alarms.keys() & {Signal.CUT, Signal.REPEATED}:
            return "outputs run on"
        if length is None:
            return "outputs are of another kind"
        return "outputs are longer" if length.after > length.before else "outputs are terser"


def _share(above: str, *names: str) -> Callable[[OutputCounts], Floats | None]:
    """Return a function that divides one count by all of `names`, where the engine counts these."""

    def value(hours: OutputCounts) -> Floats | None:
        total = hours.total(*names)
        counted = hours.total(above)
        if total is None or (counted is None and above == "empty"):
            return None
        return _divided(np.zeros(len(total)) if counted is None else counted, total, MIN_REQUESTS)

    return value


def _divided(above: Floats, below: Floats, smallest: float) -> Floats:
    quotient = np.full(len(below), np.nan)
    np.divide(above, below, out=quotient, where=below >= smallest)
    return quotient


def _length(hours: OutputCounts) -> Floats | None:
    """Return the logarithm of generated tokens per request; per prompt token where nobody counts requests."""
    generated, requests, prompt = (hours.total(name) for name in ("generated_tokens", "requests", "prompt_tokens"))
    below = requests if _counts(requests) else prompt
    if generated is None or below is None:
        return None
    per_request = _divided(np.maximum(generated, 1.0), below, MIN_REQUESTS)
    return np.asarray(np.log(per_request), np.float64)


def _spread(hours: OutputCounts) -> Floats | None:
    count, total, squares = (hours.total(name) for name in ("lengths", "log_lengths", "log_lengths_2"))
    if count is None or total is None or squares is None:
        return None
    mean = _divided(total, count, MIN_REQUESTS)
    variance: Floats = _divided(squares, count, MIN_REQUESTS) - mean**2
    return np.asarray(np.sqrt(np.maximum(0.0, variance)), np.float64)


def _counts(requests: Floats | None) -> bool:
    return requests is not None and bool((requests > 0).any())


def _failed(hours: OutputCounts) -> Floats | None:
    """Return requests that ended by an error or were refused, over all requests."""
    failed = hours.total("ended_by_error", "failed")
    ended = ENDED_COUNTS if hours.total(*ENDED_COUNTS) is not None else ("requests",)
    total = hours.total(*ended, "failed")
    return None if failed is None or total is None else _divided(failed, total, MIN_REQUESTS)


SPECS: Mapping[Signal, Spec] = {
    Signal.LENGTH: Spec("mean length of outputs", _length, math.log(1.2), rise_only=False, is_log=True),
    Signal.SPREAD: Spec("spread of lengths", _spread, 0.25, rise_only=False),
    Signal.CUT: Spec("stopped by the length limit", _share("ended_by_length", *ENDED_COUNTS), 0.05),
    Signal.EMPTY: Spec("empty outputs", _share("empty", "lengths"), 0.02),
    Signal.REPEATED: Spec("stopped for repetition", _share("ended_by_repetition", *ENDED_COUNTS), 0.01),
    Signal.ABORTED: Spec("aborted requests", _share("ended_by_abort", *ENDED_COUNTS), 0.05, like_prompts=False),
    Signal.FAILED: Spec("failed requests", _failed, 0.02, like_prompts=False),
    Signal.ACCEPTED: Spec("accepted draft tokens", _share("accepted", "drafted"), 0.1, rise_only=False),
}
"""Every signal of the guard. The smallest changes that matter are judgements."""


def guard(question: Question) -> Guard | None:
    """Return each signal before and after the change of a question; None where no outputs were counted."""
    outputs = question.outputs
    if outputs is None:
        return None
    split = _Split(question, outputs.counts)
    changes: list[SignalChange] = []
    not_compared: list[tuple[Signal, str]] = []
    for signal, spec in SPECS.items():
        values = spec.value(outputs.counts)
        if signal in outputs.meant:
            not_compared.append((signal, "the change is meant to alter it"))
        elif values is None or np.isnan(values).all():
            not_compared.append((signal, "the pages of its engine do not show it"))
        elif isinstance(compared := split.compared(signal, spec, values), str):
            not_compared.append((signal, compared))
        else:
            changes.append(compared)
    return Guard(tuple(changes), tuple(not_compared), outputs.checked)


class _Split:
    """Hours of outputs before and after a change, and the covariates that explain their values."""

    def __init__(self, question: Question, counts: OutputCounts) -> None:
        cycle, changed, ts = question.cycle, question.changed_at, counts.ts
        splitting = [event.ts for event in question.events if event.kind.splits]
        earlier = [event_ts + washout_s(cycle) for event_ts in splitting if event_ts <= changed]
        start = max([changed - MAX_BASELINE_DAYS * cycle.day_s, *earlier])
        end = min([question.until, *(event_ts for event_ts in splitting if event_ts > changed)])
        after_start = max(changed + washout_s(cycle), question.after_from or 0)
        self._cycle, self._ts = cycle, ts
        self._before: Mask = (ts >= start) & (ts + cycle.bucket_s <= changed)
        self._after: Mask = (ts >= after_start) & (ts + cycle.bucket_s <= end)
        requests, prompt = counts.total("requests"), counts.total("prompt_tokens")
        angle = 2 * np.pi * cycle.phase(ts) / cycle.buckets
        columns = [np.ones(len(ts)), *(wave(turns * angle) for turns in (1, 7, 14) for wave in (np.sin, np.cos))]
        self._prompt: Floats | None = None
        if requests is not None and prompt is not None and _counts(requests):
            self._prompt = np.log(np.maximum(prompt, 1.0) / np.maximum(requests, 1.0))
            columns += [self._prompt, np.log(np.maximum(requests, 1.0))]
        self._design = np.column_stack(columns)

    def compared(self, signal: Signal, spec: Spec, values: Floats) -> SignalChange | str:
        """Return a signal before and after the change, or why it cannot be compared."""
        measured = ~np.isnan(values)
        mask_before, mask_after = self._before & measured, self._after & measured
        needed = self._cycle.buckets_of(MIN_BASELINE_DAYS), self._cycle.buckets_of(MIN_AFTER_DAYS)
        if mask_before.sum() < needed[0]:
            return f"{mask_before.sum()} hours before the change have it, {needed[0]} are needed"
        if spec.like_prompts and self._prompt is not None:
            mask_after = mask_after & self._like_prompts(mask_before)
        if mask_after.sum() < needed[1]:
            return f"{mask_after.sum()} hours after the change have it at like prompts, {needed[1]} are needed"
        slopes = np.linalg.lstsq(self._design[mask_before], values[mask_before], rcond=1e-6)[0]
        residuals = values - self._design @ slopes
        placebos = self._placebos(residuals, mask_before, int(mask_after.sum()))
        if len(placebos) < MIN_SPLITS:
            return f"{len(placebos)} placebo splits fit into the history, {MIN_SPLITS} are needed"
        difference = float(residuals[mask_after].mean())
        apart = HOURS_APART * float(residuals[mask_before].std())
        limit = max(spec.matters, apart, PLACEBO_MARGIN * float(np.abs(placebos).max()))
        is_alarm = difference > limit or (not spec.rise_only and difference < -limit)
        mean = float(values[mask_after].mean())
        shown = math.exp if spec.is_log else float
        label = PER_PROMPT_TOKEN if signal is Signal.LENGTH and self._prompt is None else spec.label
        return SignalChange(signal, label, shown(mean - difference), shown(mean), limit, is_alarm)

    def _like_prompts(self, mask_before: Mask) -> Mask:
        """Return the hours with a mean prompt as long as in enough hours before the change."""
        assert self._prompt is not None
        earlier = np.sort(self._prompt[mask_before])
        low, high = (np.searchsorted(earlier, self._prompt + step) for step in _PROMPT_STEPS)
        like: Mask = high - low >= MIN_ALIKE
        return like

    def _placebos(self, residuals: Floats, mask_before: Mask, length: int) -> Floats:
        """Return the difference of each interval of the baseline from the rest of it, one interval a day.

        An interval is as long as the hours after the change, at most a third of the baseline.
        """
        values = residuals[mask_before]
        length = min(length, len(values) // 3)
        step = self._cycle.buckets_of(1)
        sums = np.concatenate([[0.0], np.cumsum(values)])
        begins = np.arange(0, len(values) - length + 1, step)
        inside = sums[begins + length] - sums[begins]
        return np.asarray(inside / length - (sums[-1] - inside) / (len(values) - length), np.float64)


_PROMPT_STEPS = (-math.log(MAX_PROMPT_RATIO), math.log(MAX_PROMPT_RATIO))
