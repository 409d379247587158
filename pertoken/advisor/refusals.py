"""Merge the refusals of one rule for one target: one sentence for changes refused for the same reason."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pertoken.proof.recommendation import Refusal

MAX_REASONS = 10
"""Maximum different reasons of one code for one rule and target."""
_NUMBER = re.compile(r"(?<![\w.-])[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?(?![\w-]|[.,]\w)")
"""A separate number: not one within a name, a version or an address."""
_WORD = re.compile(r"\s*(?:[^\s;,]+|[;,])")


@dataclass(frozen=True, slots=True)
class RefusedChange(Refusal):
    """A refusal of one proposed change."""

    change: str = ""
    """Title of the change."""


def folded(refusals: Iterable[Refusal]) -> list[Refusal]:
    """Return one refusal per code: different reasons are joined, changes with the same reason are named together."""
    groups: dict[str, dict[str, list[Refusal]]] = {}
    for refusal in refusals:
        shape = _NUMBER.sub("#", refusal.reason) if isinstance(refusal, RefusedChange) else f"={refusal.reason}"
        groups.setdefault(refusal.code, {}).setdefault(shape, []).append(refusal)
    return [
        Refusal(code, "; ".join([_sentence(group) for group in by_shape.values()][:MAX_REASONS]))
        for code, by_shape in sorted(groups.items())
    ]


def _sentence(group: Sequence[Refusal]) -> str:
    reason = _ranges([refusal.reason for refusal in group])
    changes = list(dict.fromkeys(refusal.change for refusal in group if isinstance(refusal, RefusedChange)))
    return f"{_together(changes)}: {reason}" if changes else reason


def _ranges(reasons: Sequence[str]) -> str:
    """Return reasons that differ only in numbers as one reason with ranges: `55 to 87 ms`."""
    numbers = [_NUMBER.findall(reason) for reason in reasons]
    ranges = []
    for column in zip(*numbers, strict=True):
        ordered = sorted(dict.fromkeys(column), key=lambda text: float(text.replace(",", "")))
        ranges.append(ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}")
    return _NUMBER.sub(lambda _: ranges.pop(0), reasons[0])


def _together(changes: Sequence[str]) -> str:
    """Return titles as one, with their common words written once: `H100 → (A10 | L4) on 2 replicas`."""
    if len(changes) == 1:
        return changes[0]
    words = [_WORD.findall(change) for change in changes]
    start = _common(words)
    end = _common([word[start:][::-1] for word in words])
    middles = ("".join(word[start : len(word) - end]).strip() for word in words)
    common_start, common_end = "".join(words[0][:start]), "".join(words[0][-end:] if end else [])
    return f"{common_start} ({' | '.join(middles)}){common_end}".strip()


def _common(lines: Sequence[Sequence[str]]) -> int:
    """Return the number of common first words of all lines, less than the words of the shortest line."""
    most = min(map(len, lines)) - 1
    return next((n for n in range(most) if len({line[n] for line in lines}) > 1), max(most, 0))
