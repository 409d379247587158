"""Comparison of live servers by blocks of equal work: cheaper, dearer, or no winner beyond what noise shows.

The regression and the verdict are those of a switchback trial. Blocks of one unchanged server, labelled in turn as if
every second one had a change, widen the interval where they show a difference.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from pertoken.errors import BadInput
from pertoken.proof.trials.answers import AnswerCheck, PromptOutput
from pertoken.proof.trials.answers import compared as compared_answers
from pertoken.proof.trials.compare import Block, switched
from pertoken.proof.verification.estimate import Effect
from pertoken.proof.verification.question import Covariate
from pertoken.proof.verification.verdict import Verdict, judge
from pertoken.proof.verification.windows import Refused
from pertoken.window.like_for_like import HourlyOutcomes

FORMAT = 1
"""Of the JSON of a measurement."""
COLD = 0.05
"""Share of cached prompt tokens below which the prefix cache counts as cold: templates begin all prompts alike."""
MAX_NOISE = 0.10
"""Largest difference that noise may hide where there is no winner. A judgement."""
MIN_FASTEST_SHARE = 0.5
"""Minimum share of a difference, as logarithms, that the fastest waves show too: other work on a machine may slow one
of two servers for all of a check, and only slows. A judgement."""
BETWEEN_STARTS = 0.03
"""Standard deviation of the logarithm of speed between two starts of the same server, which no repeat within one start
shows. Public reports of engines name 3 to 6 % from one start to another."""


class Outcome(StrEnum):
    """Outcome of a check, with the exit status of the command in `EXIT_STATUS`."""

    CALIBRATED = "CALIBRATED"
    """Nothing to compare with was given: the server was measured, and its noise is small enough."""
    CHEAPER = "CHEAPER"
    DEARER = "DEARER"
    NO_WINNER = "NO_WINNER"
    NOT_CALIBRATED = "NOT_CALIBRATED"
    """Noise hides any difference that would matter."""
    OUTPUT_CHANGED = "OUTPUT_CHANGED"
    """The small check of outputs failed, whatever a token costs."""

    @property
    def label(self) -> str:
        """The outcome for people."""
        return self.value.replace("_", " ").lower()


EXIT_STATUS: Mapping[Outcome, int] = {
    Outcome.CALIBRATED: 0,
    Outcome.CHEAPER: 0,
    Outcome.NO_WINNER: 10,
    Outcome.DEARER: 11,
    Outcome.NOT_CALIBRATED: 12,
    Outcome.OUTPUT_CHANGED: 13,
}


@dataclass(frozen=True, slots=True)
class BlockCost:
    """Waves of one block of equal work."""

    wave_s: tuple[float, ...]
    started_s: tuple[float, ...]
    """Start of each wave since the first wave of its run."""
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """One server as it was measured: what a baseline file holds."""

    name: str
    """Its address and model."""
    work: str
    """Work of one wave, for people. Only equal work is compared."""
    blocks: tuple[BlockCost, ...]
    answers: tuple[PromptOutput, ...]
    answers_again: tuple[PromptOutput, ...]

    @property
    def s_per_mtok(self) -> float:
        """Seconds of the server per 10^6 tokens, prompt and generated."""
        seconds = sum(sum(block.wave_s) for block in self.blocks)
        return seconds / sum(block.prompt_tokens + block.generated_tokens for block in self.blocks) * 1e6

    @property
    def fastest_s(self) -> float:
        """Duration of the fastest wave: other work on a machine only slows waves."""
        return min(min(block.wave_s) for block in self.blocks)

    @property
    def cached_share(self) -> float:
        """Share of the prompt tokens that a cache had."""
        prompt = sum(block.prompt_tokens for block in self.blocks)
        return sum(block.cached_tokens for block in self.blocks) / max(1, prompt)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Outcome of a check and its figures."""

    outcome: Outcome
    reason: str
    effect: tuple[float, float, float] | None
    """Cost of a token against the baseline - 1, 90 % interval: low, likely, high. None without a baseline."""
    noise: float | None
    """Difference that noise may hide, without that between starts; None where too few blocks were measured."""
    answers: AnswerCheck | None


def noise_of(measurement: Measurement) -> float | None:
    """Return the difference that blocks of one unchanged server show against each other, or leave open."""
    effect = _unchanged(measurement)
    return None if effect is None else math.expm1(max(abs(effect.log_ratio), effect.half_width_90))


def check(after: Measurement, before: Measurement | None, between_starts: float = BETWEEN_STARTS) -> CheckResult:
    """Return the outcome of a check of one server, against another one or an earlier measurement.

    `between_starts`: standard deviation of the logarithm of speed between two starts of a server. Raises BadInput where
    both did not do the same work.
    """
    if before is None:
        noise = noise_of(after)
        outcome = Outcome.CALIBRATED if noise is not None and noise <= MAX_NOISE else Outcome.NOT_CALIBRATED
        return CheckResult(outcome, _noise_text(noise), None, noise, None)
    if before.work != after.work or len(before.answers) != len(after.answers):
        raise BadInput(f"the work differs: {before.work} before, {after.work} now; measure the baseline again")
    answers = compared_answers(before.answers, before.answers_again, after.answers)
    effect = _difference(before, after)
    if effect is None:
        outcome = Outcome.NOT_CALIBRATED if answers.name is None else Outcome.OUTPUT_CHANGED
        return CheckResult(outcome, _noise_text(None), None, None, answers)
    noise = math.expm1(effect.half_width_90)
    effect = Effect(effect.log_ratio, math.hypot(effect.standard_error, math.sqrt(2) * between_starts), effect.degrees)
    low, likely, high = (math.expm1(effect.log_ratio + width * effect.half_width_90) for width in (-1, 0, 1))
    outcome, reason = _outcome(effect, noise, answers), _noise_text(noise)
    fastest = after.fastest_s / before.fastest_s
    if outcome is Outcome.OUTPUT_CHANGED:
        reason = answers.sentence
    elif outcome in (Outcome.CHEAPER, Outcome.DEARER) and math.log(fastest) / effect.log_ratio < MIN_FASTEST_SHARE:
        outcome, reason = (
            Outcome.NOT_CALIBRATED,
            f"the fastest waves differ by {fastest - 1:+.1%}: other work slowed one",
        )
    return CheckResult(outcome, reason, (low, likely, high), noise, answers)


def _difference(before: Measurement, after: Measurement) -> Effect | None:
    """Return the log cost of one server over another, widened until unchanged blocks of neither show a difference."""
    unchanged, changed = (_blocks(run, [label] * len(run.blocks)) for run, label in ((before, False), (after, True)))
    effect = switched([*unchanged, *changed], _EQUAL)
    repeats = [_unchanged(measurement) for measurement in (before, after)]
    known = [repeat for repeat in repeats if repeat is not None]
    if isinstance(effect, Refused) or len(known) < len(repeats):
        return None
    ratios = (abs(repeat.log_ratio) / max(repeat.half_width_90, 1e-9) for repeat in known)
    return effect.widened(max(1.0, *ratios))


def _unchanged(measurement: Measurement) -> Effect | None:
    """Return every second block of an unchanged server over the others; None where it has too few."""
    effect = switched(_blocks(measurement, [number % 2 == 1 for number in range(len(measurement.blocks))]), _EQUAL)
    return None if isinstance(effect, Refused) else effect


def _outcome(effect: Effect, noise: float, answers: AnswerCheck) -> Outcome:
    if answers.name is not None:
        return Outcome.OUTPUT_CHANGED
    winner = {Verdict.REALIZED: Outcome.CHEAPER, Verdict.REGRESSED: Outcome.DEARER}.get(judge(effect, None))
    return winner or (Outcome.NO_WINNER if noise <= MAX_NOISE else Outcome.NOT_CALIBRATED)


def _noise_text(noise: float | None) -> str:
    return "too few blocks show the noise" if noise is None else f"noise hides differences up to {noise:.1%}"


_EQUAL = frozenset(Covariate)
"""Covariates that equal work has in common by design."""


def _blocks(measurement: Measurement, changed: Sequence[bool]) -> list[Block]:
    return [Block(label, _outcomes(block)) for block, label in zip(measurement.blocks, changed, strict=True)]


def _outcomes(block: BlockCost) -> HourlyOutcomes:
    """Return the median wave of a block, which one disturbed wave does not move; times are in milliseconds."""
    total = block.prompt_tokens + block.generated_tokens
    tokens, seconds = total / len(block.wave_s), np.array([statistics.median(block.wave_s)])
    ts = np.array([round(1000 * block.started_s[0])], np.int64)
    return HourlyOutcomes(ts, seconds / tokens, tokens / seconds, np.array([block.generated_tokens / total]), None)


def to_values(measurement: Measurement) -> dict[str, Any]:
    """Return a measurement as plain values, for a baseline file."""
    return {"format": FORMAT, **asdict(measurement)}


def from_values(values: Any, where: str) -> Measurement:
    """Return the measurement that `to_values` wrote. Raises BadInput for other values."""
    try:
        if values["format"] != FORMAT:
            raise BadInput(f"{where}: is of another format; measure the baseline again")
        blocks = tuple(
            BlockCost(**{**block, "wave_s": tuple(block["wave_s"]), "started_s": tuple(block["started_s"])})
            for block in values["blocks"]
        )
        answers, again = (
            tuple(PromptOutput(**answer) for answer in values[name]) for name in ("answers", "answers_again")
        )
        if not all(block.wave_s for block in blocks) or not answers or len(answers) != len(again):
            raise ValueError(f"{len(blocks)} blocks, {len(answers)} and {len(again)} answers")
        return Measurement(str(values["name"]), str(values["work"]), blocks, answers, again)
    except (KeyError, TypeError, AttributeError, ValueError):
        raise BadInput(f"{where}: is no measurement of `pertoken check --json`") from None


def to_markdown(after: Measurement, before: Measurement | None, result: CheckResult) -> str:
    """Return a check as a few lines of Markdown."""
    lines = [f"**{result.outcome.label}** {after.name}", ""]
    if result.effect is not None and before is not None:
        low, likely, high = result.effect
        lines += [f"- cost of a token: {likely:+.1%} ({low:+.1%} to {high:+.1%}) against {before.name}"]
    lines += [f"- {after.s_per_mtok:.1f} device-seconds per Mtok; {after.work}; {_cache(after)}"]
    lines += [f"- {_noise_text(result.noise)} (90 %)"]
    lines += [f"- outputs: {result.answers.sentence}"] if result.answers is not None else []
    return "\n".join(lines) + "\n"


def _cache(measurement: Measurement) -> str:
    share = measurement.cached_share
    return "cold prefix cache" if share < COLD else f"{share:.0%} of prompt tokens from a prefix cache"
