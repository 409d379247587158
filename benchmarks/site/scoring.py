"""Errors of predictions against what was measured, and the targets they are held to."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchmarks.report import Row, Target
from benchmarks.site.closed_loop import FIGURES, Measured, Prediction

LIMITS = {
    "load": {"median": 0.08, "p90": 0.25},
    "format": {"median": 0.20, "p90": 0.50},
    "format_probed": {"median": 0.10, "p90": 0.30},
}
CONTROL = "control"
"""The probed configurations themselves: no target is held to them."""
RATES_ALONE = "rates"
"""Configurations predicted from the rates of the CPUs, without a probe of their model: no target is held to them."""
AGAIN = ("format_probed", RATES_ALONE)
"""Kinds whose rounds are those of another kind too."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One configuration: what was predicted, and what each round measured."""

    label: str
    kind: str
    """`load`, `format`, `format_probed` (predicted after a probe of its own format), `CONTROL` or `RATES_ALONE`."""
    prediction: Prediction
    rounds: tuple[Measured, ...]

    def errors(self) -> list[float]:
        """Return |predicted / measured - 1| of each figure; measured is the median over the rounds."""
        return [abs(getattr(self.prediction, name)[1] / self.median(name) - 1) for name in FIGURES]

    def median(self, figure: str) -> float:
        """Return what was measured of a figure."""
        return float(statistics.median(getattr(measured, figure) for measured in self.rounds))

    def noise(self) -> list[float]:
        """Return by how much each round differs from the one after it, of each figure; of one round nothing is known.

        Differences from the median of the rounds would be too small: it is one of them, or close to it where they are
        two.
        """
        return [
            abs(getattr(one, name) / getattr(other, name) - 1)
            for name in FIGURES
            for one, other in pairwise(self.rounds)
        ]

    def round_errors(self) -> list[float]:
        """Return |round / median of the other rounds - 1| of each figure and round, with at least three rounds.

        A forecast is compared with the median of all rounds, which varies less.
        """
        if len(self.rounds) < 3:
            return []
        return [
            abs(getattr(one, name) / statistics.median(getattr(other, name) for other in others) - 1)
            for name in FIGURES
            for one, others in ((one, [other for other in self.rounds if other is not one]) for one in self.rounds)
        ]

    def covered(self) -> list[bool]:
        """Return whether the interval holds what was measured, of each figure."""
        ranges = [getattr(self.prediction, name) for name in FIGURES]
        return [low <= self.median(name) <= high for name, (low, _, high) in zip(FIGURES, ranges, strict=True)]

    def compared(self) -> list[tuple[str, float, str]]:
        """Return (figure, predicted over measured, whether the interval holds it) of each figure."""
        ratios = [getattr(self.prediction, name)[1] / self.median(name) for name in FIGURES]
        words = ["inside" if held else "outside" for held in self.covered()]
        return list(zip(FIGURES, ratios, words, strict=True))

    def widths(self) -> list[float]:
        """Return high over likely, of each figure."""
        return [high / likely for _, likely, high in (getattr(self.prediction, name) for name in FIGURES)]


def score(outcomes: Sequence[Outcome], repeats: Mapping[str, float]) -> tuple[list[Row], list[Target]]:
    """Return the rows and targets of a run; `repeats` are figures of the run itself, in `count`."""
    rows = [Row("pertoken", name, value, "count", "of this run") for name, value in repeats.items()]
    noise = [value for outcome in outcomes if outcome.kind not in AGAIN for value in outcome.noise()]
    middle = statistics.median(noise) if noise else None
    rows.append(Row("machine", "repeat noise", middle, "share", "median |round / next round - 1|"))
    targets = []
    for kind, limits in LIMITS.items():
        errors = [error for outcome in outcomes if outcome.kind == kind for error in outcome.errors()]
        quantiles = _quantiles(errors)
        for name, limit in limits.items():
            value = quantiles.get(name)
            targets.append(Target(f"site.{kind}_{name}", value, limit, "<="))
            times = value / middle if value is not None and middle else None
            rows.append(Row("pertoken", f"{kind} {name} over repeat noise", times, "ratio", "error / repeat noise"))
        of_rounds = [error for outcome in outcomes if outcome.kind == kind for error in outcome.round_errors()]
        if kind != "format_probed":  # its rounds are those of `format`
            rows += [
                Row("machine", f"{kind}: a round beside the others, {name}", value, "share", "each round in turn")
                for name, value in _quantiles(of_rounds).items()
            ]
        for figure, of_figure in zip(FIGURES, zip(*_of(outcomes, kind), strict=True), strict=False):
            value = statistics.median(of_figure)
            rows.append(
                Row("pertoken", f"{kind} {figure} median error", value, "share", f"{len(of_figure)} configurations")
            )
    for kind, method in ((CONTROL, "probed configurations"), (RATES_ALONE, "tokens/s, no probe of the model")):
        asked = [outcome for outcome in outcomes if outcome.kind == kind]
        errors = [error for one in asked for error in (one.errors() if kind == CONTROL else one.errors()[:1])]
        rows += [
            Row("pertoken", f"{kind} {name}", value, "share", method) for name, value in _quantiles(errors).items()
        ]
    rows += [
        Row("pertoken", f"{outcome.label}: {name}", predicted, "predicted / measured", f"{outcome.kind}, {held}")
        for outcome in outcomes
        for name, predicted, held in outcome.compared()
    ]
    # A configuration counts once, as it would be predicted by then: after a probe of its format where there was one.
    others = [outcome for outcome in outcomes if outcome.kind not in (CONTROL, RATES_ALONE)]
    last = [outcome for outcome in others if outcome.kind != "format"] or others
    covered = [covered for outcome in last for covered in outcome.covered()]
    widths = [width for outcome in last for width in outcome.widths()]
    targets.append(Target("site.coverage", statistics.fmean(covered) if covered else None, 0.8, ">="))
    targets.append(Target("site.width", statistics.median(widths) if widths else None, 1.4, "<="))
    return rows, targets


def _quantiles(errors: Sequence[float]) -> dict[str, float]:
    """Return the median and the 90th percentile of errors, by name; neither where there are none."""
    quantiles = {"median": 0.5, "p90": 0.9}
    return {name: float(np.quantile(errors, share)) for name, share in quantiles.items()} if errors else {}


def _of(outcomes: Sequence[Outcome], kind: str) -> list[list[float]]:
    return [outcome.errors() for outcome in outcomes if outcome.kind == kind]
