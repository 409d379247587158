"""Gates for CI: comparisons of figures with limits, and the resulting exit status."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pertoken.metrics import FIGURES
from pertoken.reports.gates.measure import NOTHING_SERVED, Figures
from pertoken.settings.alerts import FLEET, Comparison

KEPT, BROKEN, UNKNOWN = 0, 1, 3
"""Exit status of the worst gate; broken is worse than not measurable."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate of one target, judged."""

    gate: str
    """Text of the gate."""
    figure: str
    target: str
    """`fleet`, or `service=chat`."""
    value: float | None
    operator: str
    limit: float
    unit: str
    status: str
    """`kept`, `broken` or `not measurable`."""
    reason: str | None = None
    """Reason why it cannot be measured."""

    @property
    def line(self) -> str:
        """The gate as a sentence."""
        if self.value is None:
            return f"gate {self.gate}: not measurable for {self.target}: {self.reason}"
        return f"gate {self.gate}: {self.status}: {self.figure} of {self.target} is {self.value:g} {self.unit}"

    def values(self) -> dict[str, Any]:
        """Return the gate as values for JSON."""
        return asdict(self)


def judge(comparisons: Sequence[Comparison], figures: Figures) -> tuple[Gate, ...]:
    """Return each gate for each of its targets. A gate is broken where its comparison is true. Raises StoreError."""
    return tuple(gate for comparison in comparisons for gate in _judged(comparison, figures))


def _judged(comparison: Comparison, figures: Figures) -> Iterable[Gate]:
    scope = comparison.scope or FLEET
    by_target = figures.of(comparison.figure, scope.kind)
    values = {name: value for name, value in by_target.items() if scope.kind == "fleet" or scope.covers(name)}
    for name, figure in (values or {scope.target: NOTHING_SERVED}).items():
        broken = figure.value is not None and comparison.holds(figure.value)
        status = "not measurable" if figure.value is None else "broken" if broken else "kept"
        yield Gate(
            gate=str(comparison),
            figure=comparison.figure,
            target="the fleet" if scope.kind == "fleet" else f"{scope.kind}={name}",
            value=figure.value,
            operator=comparison.operator,
            limit=comparison.limit,
            unit=FIGURES[comparison.figure].unit,
            status=status,
            reason=figure.reason,
        )


def exit_status(gates: Iterable[Gate]) -> int:
    """Return the exit status of some gates."""
    statuses = {gate.status for gate in gates}
    return BROKEN if "broken" in statuses else UNKNOWN if "not measurable" in statuses else KEPT
