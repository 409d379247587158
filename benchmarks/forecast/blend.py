"""Errors of predicted ratios, and the weight of a second opinion learned from measured pairs."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pertoken.forecast.second_opinion.opinion import belief

KINDS: Final = (
    "quantize_fp8",
    "quantize_int8",
    "quantize_int4",
    "quantize_fp4",
    "move_gpu",
    "tp_change",
    "raise_batch",
    "raise_batch_far",
    "smaller_model",
)
"""Kinds of change of the macro average."""
MAX_WEIGHT = 0.8
"""The second opinion never speaks alone."""
GRID = [step / 40 for step in range(int(MAX_WEIGHT * 40) + 1)]


@dataclass(frozen=True, slots=True)
class Pair:
    """One measured change and two predictions of it, as logarithms of after over before."""

    kind: str
    source: str
    model: str
    gpu_before: str
    gpu_after: str
    measured: float
    ours: float
    tables: float
    doubt: float = 0.0
    """Absolute log error of the tables' rate on the "before" side, which whoever predicts has seen."""

    @property
    def belief(self) -> float:
        """As `opinion.belief`."""
        return belief(self.doubt)

    @property
    def cluster(self) -> tuple[str, str, str]:
        """Pairs of one cluster count as one."""
        return (self.source, self.model, self.gpu_before)


FOLDS: Final[Mapping[str, Callable[[Pair], str]]] = {
    "gpu": lambda pair: pair.gpu_after,
    "model": lambda pair: pair.model,
    "source": lambda pair: pair.source,
}
"""What is left out at a time when weights are learned."""


def weights(pairs: Sequence[Pair]) -> list[float]:
    """One weight per pair, so that each cluster of a kind weighs the same; they sum to the clusters."""
    sizes: dict[tuple[object, ...], int] = defaultdict(int)
    for pair in pairs:
        sizes[pair.kind, pair.cluster] += 1
    return [1 / sizes[pair.kind, pair.cluster] for pair in pairs]


def quantile(values: Sequence[float], weight: Sequence[float], share: float) -> float:
    """Return the value below which this share of the weight lies."""
    order = sorted(range(len(values)), key=values.__getitem__)
    limit, passed = share * sum(weight), 0.0
    for index in order:
        passed += weight[index]
        if passed >= limit * (1 - 1e-12):
            return values[index]
    raise ValueError("no values")


def per_kind(pairs: Sequence[Pair], predicted: Sequence[float]) -> dict[str, tuple[int, float, float]]:
    """Of each kind: pairs, and the median and p90 of |predicted/measured - 1|, clusters weighing the same."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, pair in enumerate(pairs):
        groups[pair.kind].append(index)
    weight = weights(pairs)
    widths = {}
    for kind, indices in sorted(groups.items()):
        errors = [abs(math.expm1(predicted[index] - pairs[index].measured)) for index in indices]
        weighing = [weight[index] for index in indices]
        widths[kind] = (len(indices), quantile(errors, weighing, 0.5), quantile(errors, weighing, 0.9))
    return widths


def macro(rows: Mapping[str, tuple[int, float, float]]) -> tuple[float, float]:
    """Mean over the macro kinds that were found, of the medians and of the p90s."""
    kinds = [kind for kind in KINDS if kind in rows]
    if not kinds:
        raise ValueError("no pair of a kind of the macro average")
    return tuple(sum(rows[kind][column] for kind in kinds) / len(kinds) for column in (1, 2))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Learned:
    """The weight of the tables where they agreed with "before", and how far off they are: the p68 of their absolute
    log error, by kind of change and over all."""

    weight: float
    log_sd: Mapping[str, float]
    other_log_sd: float


def learn(pairs: Sequence[Pair]) -> Learned:
    """Return the weight that leaves the least mean absolute log error of the blend.

    One weight for all kinds: weights by kind did worse on GPUs, models and sources they were not learned on.
    """
    weight = weights(pairs)
    return Learned(
        weight=min(GRID, key=lambda share: _loss(pairs, weight, share)),
        log_sd={
            kind: _sd(own, weights(own))
            for kind in kinds_of(pairs)
            for own in [[pair for pair in pairs if pair.kind == kind]]
        },
        other_log_sd=_sd(pairs, weight),
    )


def blended(pairs: Sequence[Pair], learned: Learned) -> list[float]:
    """Return the blend's log-ratio of each pair."""
    return [pair.ours + learned.weight * pair.belief * (pair.tables - pair.ours) for pair in pairs]


def left_out(pairs: Sequence[Pair], of: Callable[[Pair], str]) -> list[float]:
    """Return the blend's log-ratio of each pair, with weights learned from the pairs that do not share `of` with it."""
    weights = [0.0] * len(pairs)
    for value in {of(pair) for pair in pairs}:
        inside = [index for index, pair in enumerate(pairs) if of(pair) == value]
        rest = [pair for pair in pairs if of(pair) != value]
        learned = learn(rest) if rest else Learned(0.0, {}, 0.0)
        for index, log in zip(inside, blended([pairs[index] for index in inside], learned), strict=True):
            weights[index] = log
    return weights


def _loss(pairs: Sequence[Pair], weight: Sequence[float], share: float) -> float:
    return sum(
        weight_of_pair * abs(pair.ours + share * pair.belief * (pair.tables - pair.ours) - pair.measured)
        for weight_of_pair, pair in zip(weight, pairs, strict=True)
    )


def _sd(pairs: Sequence[Pair], weight: Sequence[float]) -> float:
    return quantile([abs(pair.tables - pair.measured) for pair in pairs], weight, 0.68)


def kinds_of(pairs: Iterable[Pair]) -> list[str]:
    """Return the kinds there are, those of the macro average first."""
    kinds = {pair.kind for pair in pairs}
    return [*(kind for kind in KINDS if kind in kinds), *sorted(kinds - set(KINDS))]
