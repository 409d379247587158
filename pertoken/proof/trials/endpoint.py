"""Comparison of servers by blocks: arms of a trial, live servers under equal work, and their answers.

The regression and the verdict are the same as for a switchback trial. Blocks of one unchanged server, labelled in turn
as if every second one had a change, widen the interval where they show a difference.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

import numpy as np

from pertoken.errors import BadInput
from pertoken.proof.recommendation import read_record
from pertoken.proof.verification.estimate import Effect, EffectVerdict, judge
from pertoken.proof.verification.question import Covariate
from pertoken.proof.verification.windows import CALIPERS, NotEstimable
from pertoken.window.columns import Floats, Ints
from pertoken.window.like_for_like import HourlyOutcomes

BLOCK_MINUTES = 10
"""Minutes of a block of the jackknife. A judgement: batches and caches remember some minutes."""
MIN_BLOCKS = 6
"""Blocks, of either kind, from which an interval is computed."""
MIN_BASELINE_MINUTES = BLOCK_MINUTES * MIN_BLOCKS
"""Minutes before a trial from which replicas are made alike by them."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Minutes of one block of a switchback."""

    changed: bool
    """Whether the change was on."""
    minutes: HourlyOutcomes


def paired(
    canary: HourlyOutcomes, control: HourlyOutcomes, without: frozenset[Covariate] = frozenset()
) -> Effect | NotEstimable:
    """Return the log cost per token of one replica over another's in the same minutes, at equal load and mix.

    `without`: covariates that the change is meant to alter, which are not made equal.
    """
    _, of_canary, of_control = np.intersect1d(canary.ts, control.ts, return_indices=True)
    if len(of_canary) < MIN_BASELINE_MINUTES:
        return NotEstimable(
            "few-minutes", f"{len(of_canary)} minutes of both replicas, {MIN_BASELINE_MINUTES} are needed"
        )
    canary_covariates, control_covariates = _covariates(canary, without), _covariates(control, without)
    used = [name for name in canary_covariates if name in control_covariates]
    differences = {name: canary_covariates[name][of_canary] - control_covariates[name][of_control] for name in used}
    for name, values in differences.items():
        limit, _, label = CALIPERS[name]
        if abs(float(values.mean())) > limit:
            return NotEstimable(f"{name}-differs", f"the {label} of both replicas differs too much to compare them")
    cost = np.log(canary.device_s_per_token[of_canary]) - np.log(control.device_s_per_token[of_control])
    columns = [np.ones(len(cost)), *(values for values in differences.values() if values.std() > 0)]
    blocks = canary.ts[of_canary] // (60 * BLOCK_MINUTES)
    return _jackknife(cost, np.stack(columns, axis=1), blocks, lost=len(columns))


def less(after: Effect, baseline: Effect) -> Effect:
    """Return a difference without the one that was there before (difference-in-differences)."""
    variances = after.standard_error**2, baseline.standard_error**2
    parts = variances[0] ** 2 / after.degrees + variances[1] ** 2 / baseline.degrees
    degrees = sum(variances) ** 2 / parts if parts > 0 else after.degrees  # Satterthwaite, Biometrics 2, 1946
    return Effect(after.log_ratio - baseline.log_ratio, math.sqrt(sum(variances)), degrees)


def switched(blocks: Sequence[Block], without: frozenset[Covariate] = frozenset()) -> Effect | NotEstimable:
    """Return the log cost per token with a change over that without, from blocks that follow each other.

    A drift over time and differences of load, mix and cached share are taken out.
    """
    if len(blocks) < MIN_BLOCKS:
        return NotEstimable("few-blocks", f"{len(blocks)} blocks, {MIN_BLOCKS} are needed")
    made = [_covariates(block.minutes, without) for block in blocks]
    used = [name for name in made[0] if all(name in columns for columns in made)]
    number = np.concatenate([np.full(len(block.minutes), n) for n, block in enumerate(blocks)])
    changed = np.concatenate([np.full(len(block.minutes), float(block.changed)) for block in blocks])
    values = {name: np.concatenate([columns[name] for columns in made]) for name in used}
    for name, column in values.items():
        limit, _, label = CALIPERS[name]
        if abs(float(column[changed == 1].mean() - column[changed == 0].mean())) > limit:
            return NotEstimable(f"{name}-differs", f"the {label} with and without the change differs too much")
    ts = np.concatenate([block.minutes.ts for block in blocks]).astype(np.float64)
    drift = (ts - ts.mean()) / max(1.0, float(np.ptp(ts)))
    covariates = [column - column.mean() for column in values.values() if column.std() > 0]
    columns = np.stack([changed, np.ones(len(ts)), drift, *covariates], axis=1)
    cost = np.log(np.concatenate([block.minutes.device_s_per_token for block in blocks]))
    return _jackknife(cost, columns, number, lost=3)


def _covariates(minutes: HourlyOutcomes, without: frozenset[Covariate]) -> dict[Covariate, Floats]:
    made = {Covariate.LOAD: np.log(minutes.tokens_per_s), Covariate.MIX: np.log(minutes.generated_share)}
    if minutes.cached_share is not None:
        made[Covariate.CACHE] = minutes.cached_share
    return {name: values for name, values in made.items() if name not in without}


def _jackknife(cost: Floats, columns: Floats, block: Ints, lost: int) -> Effect | NotEstimable:
    """Return the first coefficient of a regression, with the error that leaving out each block shows."""
    names = np.unique(block)
    degrees = len(names) - lost
    if len(names) < MIN_BLOCKS or degrees < 1:
        return NotEstimable("few-minutes", f"the minutes are of {len(names)} blocks, {MIN_BLOCKS} are needed")
    left_out = np.array([_coefficient(cost[block != name], columns[block != name]) for name in names])
    variance = (len(names) - 1) / len(names) * float(((left_out - left_out.mean()) ** 2).sum())
    return Effect(_coefficient(cost, columns), math.sqrt(variance), degrees)


def _coefficient(cost: Floats, columns: Floats) -> float:
    return float(np.linalg.lstsq(columns, cost, rcond=None)[0][0])


ANSWER_TOKENS = 48
"""Tokens of an answer at most."""
PROMPTS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "The first three prime numbers are",
    "A week has seven days:",
    "Translate to German: Good morning.",
    "def add(a, b):\n    return",
    "The opposite of hot is",
    "Once upon a time there was",
    "List three fruits:",
    "The sun rises in the",
    "2 + 2 =",
    "SELECT name FROM users WHERE",
    "The author of Hamlet is",
    "A recipe for bread needs flour,",
    "The chemical symbol of gold is",
    "To open a file in Python, use",
)
ALIKE_CHARACTERS = 4
"""Characters with which two answers begin alike; fewer where one is shorter."""
MIN_AGREEMENT = 0.5
"""Part of the agreement of a server with itself below which outputs changed. This and the next are judgements."""
MAX_DEGENERATE_RISE = 0.25
"""Rise of the share of degenerate answers from which outputs changed."""
LENGTH_RATIO = 1.5
"""Ratio of the mean lengths from which outputs changed."""
MAX_SHARE_OF_ONE = 0.5
"""Share of one character, or of a repeated piece of text, from which an answer is degenerate."""
MIN_CHARACTERS = 12
"""Characters below which a repetition is chance."""
NO_CHARACTER = "\N{REPLACEMENT CHARACTER}"
"""Stands for bytes that are no text, which parts of a character are at the end of an answer."""
_REPEATED = re.compile(r"(.{1,16}?)\1{3,}", re.S)


@dataclass(frozen=True, slots=True)
class PromptOutput:
    """Answer of one server to one of `PROMPTS`."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class AnswerCheck:
    """Comparison of the answers of two servers."""

    agreement: float
    """Share of the prompts with answers that begin alike."""
    self_agreement: float
    """The same of a server asked twice: below 1 where it is not deterministic."""
    degenerate_before: float
    """Share of degenerate answers."""
    degenerate_after: float
    length_ratio: float
    """Mean tokens after over before."""

    @property
    def name(self) -> str | None:
        """How outputs changed; None where they did not."""
        if self.degenerate_after - self.degenerate_before > MAX_DEGENERATE_RISE:
            return "outputs are degenerate"
        if self.agreement < MIN_AGREEMENT * self.self_agreement:
            return "outputs are other ones"
        if self.length_ratio * LENGTH_RATIO < 1:
            return "outputs are terser"
        return "outputs are longer" if self.length_ratio > LENGTH_RATIO else None

    @property
    def sentence(self) -> str:
        """The figures for people."""
        figures = (
            f"{self.agreement:.0%} of answers begin alike ({self.self_agreement:.0%} of one server asked twice), "
            f"degenerate {self.degenerate_before:.0%} → {self.degenerate_after:.0%}, lengths × {self.length_ratio:.2f}"
        )
        return figures if self.name is None else f"{self.name}: {figures}"


def compared(
    answers_before: Sequence[PromptOutput], answers_again: Sequence[PromptOutput], answers_after: Sequence[PromptOutput]
) -> AnswerCheck:
    """Return the comparison of answers to the same prompts.

    `answers_again`: a second run on the server of `answers_before`.
    """
    lengths = [sum(answer.tokens for answer in answers) / len(answers) for answers in (answers_before, answers_after)]
    return AnswerCheck(
        _agreement(answers_before, answers_after),
        _agreement(answers_before, answers_again),
        _degenerate_share(answers_before),
        _degenerate_share(answers_after),
        lengths[1] / max(lengths[0], 1.0),
    )


def is_degenerate(text: str) -> bool:
    """Return whether a text is empty, mostly one character, or mostly a short piece that repeats."""
    if not text.strip():
        return True
    characters = "".join(text.replace(NO_CHARACTER, "").split())
    if len(characters) < MIN_CHARACTERS:
        return False
    if max(Counter(characters).values()) > MAX_SHARE_OF_ONE * len(characters):
        return True
    longest = max((len(match[0]) for match in _REPEATED.finditer(characters)), default=0)
    return longest > MAX_SHARE_OF_ONE * len(characters)


def _degenerate_share(answers: Sequence[PromptOutput]) -> float:
    return sum(is_degenerate(answer.text) for answer in answers) / len(answers)


def _agreement(first: Sequence[PromptOutput], second: Sequence[PromptOutput]) -> float:
    return sum(_alike(*pair) for pair in zip(first, second, strict=True)) / len(first)


def _alike(first: PromptOutput, second: PromptOutput) -> bool:
    texts = first.text.strip(), second.text.strip()
    length = min(ALIKE_CHARACTERS, max(1, min(map(len, texts))))
    return texts[0][:length] == texts[1][:length]


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


class CheckOutcome(StrEnum):
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


EXIT_STATUS: Mapping[CheckOutcome, int] = {
    CheckOutcome.CALIBRATED: 0,
    CheckOutcome.CHEAPER: 0,
    CheckOutcome.NO_WINNER: 10,
    CheckOutcome.DEARER: 11,
    CheckOutcome.NOT_CALIBRATED: 12,
    CheckOutcome.OUTPUT_CHANGED: 13,
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
    """Measurement of one server, as a baseline file holds it."""

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
    """CheckOutcome of a check and its figures."""

    outcome: CheckOutcome
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


def check(after: Measurement, baseline: Measurement | None, between_starts: float = BETWEEN_STARTS) -> CheckResult:
    """Return the outcome of a check of one server, against another one or an earlier measurement.

    `between_starts`: standard deviation of the logarithm of speed between two starts of a server. Raises BadInput where
    both did not do the same work.
    """
    if baseline is None:
        noise = noise_of(after)
        outcome = CheckOutcome.CALIBRATED if noise is not None and noise <= MAX_NOISE else CheckOutcome.NOT_CALIBRATED
        return CheckResult(outcome, _noise_text(noise), None, noise, None)
    if baseline.work != after.work or len(baseline.answers) != len(after.answers):
        raise BadInput(f"the work differs: {baseline.work} before, {after.work} now; measure the baseline again")
    answers = compared(baseline.answers, baseline.answers_again, after.answers)
    effect = _difference(baseline, after)
    if effect is None:
        outcome = CheckOutcome.NOT_CALIBRATED if answers.name is None else CheckOutcome.OUTPUT_CHANGED
        return CheckResult(outcome, _noise_text(None), None, None, answers)
    noise = math.expm1(effect.half_width_90)
    effect = Effect(effect.log_ratio, math.hypot(effect.standard_error, math.sqrt(2) * between_starts), effect.degrees)
    low, likely, high = (math.expm1(effect.log_ratio + width * effect.half_width_90) for width in (-1, 0, 1))
    outcome, reason = _winner(effect, noise, answers), _noise_text(noise)
    fastest = after.fastest_s / baseline.fastest_s
    is_won = outcome in (CheckOutcome.CHEAPER, CheckOutcome.DEARER)
    if outcome is CheckOutcome.OUTPUT_CHANGED:
        reason = answers.sentence
    elif is_won and math.log(fastest) / effect.log_ratio < MIN_FASTEST_SHARE:
        outcome = CheckOutcome.NOT_CALIBRATED
        reason = f"the fastest waves differ by {fastest - 1:+.1%}: other work slowed one"
    return CheckResult(outcome, reason, (low, likely, high), noise, answers)


def _difference(baseline: Measurement, after: Measurement) -> Effect | None:
    """Return the log cost of one server over another, widened until unchanged blocks of neither show a difference."""
    unchanged, changed = (_blocks(run, [label] * len(run.blocks)) for run, label in ((baseline, False), (after, True)))
    effect = switched([*unchanged, *changed], _EQUAL)
    repeats = [_unchanged(measurement) for measurement in (baseline, after)]
    known_repeats = [repeat for repeat in repeats if repeat is not None]
    if isinstance(effect, NotEstimable) or len(known_repeats) < len(repeats):
        return None
    ratios = (abs(repeat.log_ratio) / max(repeat.half_width_90, 1e-9) for repeat in known_repeats)
    return effect.widened(max(1.0, *ratios))


def _unchanged(measurement: Measurement) -> Effect | None:
    """Return every second block of an unchanged server over the others; None where it has too few."""
    effect = switched(_blocks(measurement, [number % 2 == 1 for number in range(len(measurement.blocks))]), _EQUAL)
    return None if isinstance(effect, NotEstimable) else effect


def _winner(effect: Effect, noise: float, answers: AnswerCheck) -> CheckOutcome:
    if answers.name is not None:
        return CheckOutcome.OUTPUT_CHANGED
    winner = {EffectVerdict.REALIZED: CheckOutcome.CHEAPER, EffectVerdict.REGRESSED: CheckOutcome.DEARER}.get(
        judge(effect, None)
    )
    return winner or (CheckOutcome.NO_WINNER if noise <= MAX_NOISE else CheckOutcome.NOT_CALIBRATED)


def _noise_text(noise: float | None) -> str:
    return "too few blocks show the noise" if noise is None else f"noise hides differences up to {noise:.1%}"


_EQUAL = frozenset(Covariate)
"""Covariates that equal work has in common by design."""


def _blocks(measurement: Measurement, changed: Sequence[bool]) -> list[Block]:
    return [Block(label, _as_minute(block)) for block, label in zip(measurement.blocks, changed, strict=True)]


def _as_minute(block: BlockCost) -> HourlyOutcomes:
    """Return the median wave of a block, which one disturbed wave does not move; times are in milliseconds."""
    total = block.prompt_tokens + block.generated_tokens
    tokens, seconds = total / len(block.wave_s), np.array([statistics.median(block.wave_s)])
    ts = np.array([round(1000 * block.started_s[0])], np.int64)
    return HourlyOutcomes(ts, seconds / tokens, tokens / seconds, np.array([block.generated_tokens / total]), None)


def to_values(measurement: Measurement) -> dict[str, object]:
    """Return a measurement as plain values, for a baseline file."""
    return {"format": FORMAT, **asdict(measurement)}


def from_values(values: object, where: str) -> Measurement:
    """Return the measurement that `to_values` wrote. Raises BadInput for other values."""
    try:
        if not isinstance(values, dict):
            raise TypeError("no object")
        if values["format"] != FORMAT:
            raise BadInput(f"{where}: is of another format; measure the baseline again")
        read = read_record(Measurement, {name: value for name, value in values.items() if name != "format"})
        if not all(block.wave_s for block in read.blocks) or not read.answers:
            raise ValueError("nothing was measured")
        if len(read.answers) != len(read.answers_again):
            raise ValueError("a prompt was asked once")
        return read
    except (KeyError, TypeError, AttributeError, ValueError):
        raise BadInput(f"{where}: is no measurement of `pertoken check --json`") from None


def to_markdown(after: Measurement, baseline: Measurement | None, result: CheckResult) -> str:
    """Return a check as a few lines of Markdown."""
    lines = [f"**{result.outcome.label}** {after.name}", ""]
    if result.effect is not None and baseline is not None:
        low, likely, high = result.effect
        lines += [f"- cost of a token: {likely:+.1%} ({low:+.1%} to {high:+.1%}) against {baseline.name}"]
    lines += [f"- {after.s_per_mtok:.1f} device-seconds per Mtok; {after.work}; {_cache(after)}"]
    lines += [f"- {_noise_text(result.noise)} (90 %)"]
    lines += [f"- outputs: {result.answers.sentence}"] if result.answers is not None else []
    return "\n".join(lines) + "\n"


def _cache(measurement: Measurement) -> str:
    share = measurement.cached_share
    return "cold prefix cache" if share < COLD else f"{share:.0%} of prompt tokens from a prefix cache"
