"""Parsing of gates, and checks of their figures before anything is measured."""

from collections.abc import Iterable

from pertoken.errors import BadInput
from pertoken.metrics import FIGURES
from pertoken.settings.alerts import FLEET, Comparison, read_comparison
from pertoken.settings.owners import is_basis


def read_gates(texts: Iterable[str]) -> tuple[Comparison, ...]:
    """Return the gates of `--fail-on`. Raises BadInput."""
    return tuple(map(_read, texts))


def _read(text: str) -> Comparison:
    try:
        comparison = read_comparison(text)
    except ValueError as error:
        raise BadInput(f"--fail-on {text!r}: {error}") from None
    check_figure(comparison, f"--fail-on {text!r}")
    return comparison


def check_figure(comparison: Comparison, where: str) -> None:
    """Raise BadInput for an unknown figure, or one without values for that kind of target."""
    spec = FIGURES.get(comparison.figure)
    if spec is None:
        from difflib import get_close_matches

        near = get_close_matches(comparison.figure, FIGURES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(FIGURES)}"
        raise BadInput(f"{where}: no figure is named {comparison.figure}; {hint}")
    kind = (comparison.scope or FLEET).kind
    if kind not in spec.kinds and not (is_basis(kind) and "owner" in spec.kinds):
        raise BadInput(f"{where}: {comparison.figure} has values for {', '.join(spec.kinds)}, not for a {kind}")
