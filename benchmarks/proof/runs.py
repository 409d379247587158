"""Verifications of many histories of one condition, on several processes; the result does not depend on how many."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.proof.histories import SHAPE, Condition, histories
from benchmarks.proof.naive import naive_claims_saving
from pertoken.proof.verification.estimate import EffectVerdict
from pertoken.proof.verification.question import Promise, Question
from pertoken.proof.verification.verify import verify
from pertoken.proof.verification.windows import NOT_SEPARABLE

BATCH = 20
"""Histories made at a time: 100 MB."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Verdicts and intervals of the runs of one condition."""

    verdicts: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    """Of the inconclusive ones."""
    covered: int = 0
    """80 % intervals with the true effect in them."""
    widths: tuple[float, ...] = ()
    """Of the 90 % interval of the saving."""
    widened: int = 0
    """Runs whose interval the placebo dates widened."""
    naive: int = 0
    """Savings that the naive comparison claims."""

    @property
    def runs(self) -> int:
        return self.verdicts.total()

    @property
    def coverage(self) -> float:
        """Part of the intervals that hold the true effect."""
        return self.covered / max(1, len(self.widths))

    def share(self, *verdicts: EffectVerdict) -> float:
        """Part of the runs with one of these verdicts."""
        return sum(self.verdicts[verdict] for verdict in verdicts) / self.runs


def added(several: Iterable[Outcomes]) -> Outcomes:
    verdicts: Counter[str] = Counter()
    codes: Counter[str] = Counter()
    covered, widened, naive = 0, 0, 0
    widths: tuple[float, ...] = ()
    for batch in several:
        verdicts += batch.verdicts
        codes += batch.codes
        covered, widened, naive = covered + batch.covered, widened + batch.widened, naive + batch.naive
        widths = (*widths, *batch.widths)
    return Outcomes(verdicts, codes, covered, widths, widened, naive)


Batch = tuple[int, int, int, Condition]
"""Seed, number, runs and condition."""


def run(
    seed: int, runs: int, conditions: Sequence[Condition], processes: int, parts: Path | None = None
) -> dict[Condition, Outcomes]:
    """Return the outcomes of `runs` runs of each condition.

    `parts`: a file that keeps the outcomes of each batch, so that a run which was ended goes on where it stood.
    """
    batches = [
        (seed, number, min(BATCH, runs - first), condition)
        for number, first in enumerate(range(0, runs, BATCH))
        for condition in conditions
    ]
    outcomes_of = _kept(parts) if parts is not None and parts.exists() else {}
    missing = [batch for batch in batches if _name(batch) not in outcomes_of]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for batch, outcomes in zip(missing, pool.map(_batch, missing), strict=True):
            outcomes_of[_name(batch)] = outcomes
            if parts is not None:
                with parts.open("a") as file:
                    file.write(json.dumps([_name(batch), _values(outcomes)]) + "\n")
    return {
        condition: added(outcomes_of[_name(batch)] for batch in batches if batch[3] == condition)
        for condition in conditions
    }


def _name(batch: Batch) -> str:
    seed, number, runs, of = batch
    return f"seed {seed}, batch {number} of {runs} runs, {of.sd}, {of.siblings}, {of.effect}, {of.kind.name}"


def _values(outcomes: Outcomes) -> dict[str, Any]:
    values = {part.name: getattr(outcomes, part.name) for part in fields(outcomes)}
    return {name: dict(value) if isinstance(value, Counter) else value for name, value in values.items()}


def _kept(parts: Path) -> dict[str, Outcomes]:
    lines = (json.loads(line) for line in parts.read_text().splitlines())
    return {
        name: Outcomes(
            Counter(values.pop("verdicts")), Counter(values.pop("codes")), widths=tuple(values.pop("widths")), **values
        )
        for name, values in lines
    }


def _batch(batch: Batch) -> Outcomes:
    seed, number, runs, condition = batch
    verdicts: Counter[str] = Counter()
    codes: Counter[str] = Counter()
    covered, widened, naive, widths = 0, 0, 0, []
    for history in histories(np.random.default_rng([seed, number, *condition.key]), runs, condition):
        question = Question(
            history.deployment,
            history.changed_at,
            history.until,
            siblings=history.siblings,
            promise=Promise(*SHAPE["effects"]["promised"]),
        )
        finding = verify(question)
        verdicts[finding.verdict] += 1
        naive += naive_claims_saving(history)
        if finding.code is not None:
            codes[finding.code] += 1
        if finding.code == NOT_SEPARABLE:  # its interval is that of the change and its restart
            continue
        if finding.saving_80 is not None and finding.saving_90 is not None and finding.placebo is not None:
            covered += finding.saving_80.low <= -condition.effect <= finding.saving_80.high
            widths.append(2 * finding.saving_90.half_width)
            widened += finding.placebo.factor > 1
    return Outcomes(verdicts, codes, covered, tuple(widths), widened, naive)
