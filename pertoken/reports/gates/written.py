"""Gates as they are written, checked before anything is measured."""

from collections.abc import Iterable

from pertoken.errors import BadInput
from pertoken.metrics import FIGURES
from pertoken.settings.expression import FLEET, Comparison, read_comparison


def read_gates(texts: Iterable[str]) -> tuple[Comparison, ...]:
    """Return the gates of `--fail-on`. Raises BadInput."""
    return tuple(map(_read, texts))


def _read(text: str) -> Comparison:
    try:
        found = read_comparison(text)
    except ValueError as error:
        raise BadInput(f"--fail-on {text!r}: {error}") from None
    check_figure(found, f"--fail-on {text!r}")
    return found


def check_figure(comparison: Comparison, where: str) -> None:
    """Raise BadInput for a figure that is not known, or not of that kind of target."""
    spec = FIGURES.get(comparison.figure)
    if spec is None:
        from difflib import get_close_matches

        near = get_close_matches(comparison.figure, FIGURES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(FIGURES)}"
        raise BadInput(f"{where}: no figure is named {comparison.figure}; {hint}")
    kind = (comparison.scope or FLEET).kind
    if kind not in spec.kinds:
        raise BadInput(f"{where}: {comparison.figure} is known of {', '.join(spec.kinds)}, not of a {kind}")
