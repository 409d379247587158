"""A small check of outputs: fixed prompts, greedy answers, compared by agreement and by degenerate text.

It finds a broken model, not a worse one: a quantized model answers some prompts in other words, a broken one all.
Nothing of it leaves the host but the prompts, which go to the servers that are compared.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

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
    """PromptOutput of one server to one of `PROMPTS`."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class AnswerCheck:
    """Comparison of the answers of two servers."""

    agreement: float
    """Share of the prompts whose answers begin alike."""
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
    before: Sequence[PromptOutput], again: Sequence[PromptOutput], after: Sequence[PromptOutput]
) -> AnswerCheck:
    """Return the comparison of answers to the same prompts. `again`: of the server of `before`, asked once more."""
    lengths = [sum(answer.tokens for answer in answers) / len(answers) for answers in (before, after)]
    return AnswerCheck(
        _agreement(before, after),
        _agreement(before, again),
        _degenerate_share(before),
        _degenerate_share(after),
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
