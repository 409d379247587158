"""What each built-in rule yields in each typical situation, kept in `matrix/RULE-ID.txt`, a line for each situation.

    bandwidth-bound: proposes !
    idle: proposes held
    kv-bound: refuses kv-cache-full, no-queue
    cpu: blocked kv_use
    stuck: silent

A proposing cell lists the codes of the refusals beside its proposals. `!` marks a cell that the facts behind the rule
fix, a trigger or a hard stop: it is written by hand before the rule and never recorded. All other cells are recorded:

    python -m tests.plugins.matrix            # writes missing and changed cells of all built-in rules
    python -m tests.plugins.matrix batch-limit
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pertoken.rule import Rule
from pertoken.testing import Result, regimes, run

FOLDER = Path(__file__).parent / "matrix"


@dataclass(frozen=True, slots=True)
class Cell:
    """What a rule yields in one situation."""

    kind: str
    """`proposes`, `refuses`, `blocked` or `silent`."""
    names: tuple[str, ...] = ()
    """Codes of its refusals, or the series without which it is blocked."""
    by_hand: bool = False

    @property
    def text(self) -> str:
        names = ", ".join(self.names)
        return " ".join(word for word in (self.kind, names, "!" if self.by_hand else "") if word)

    def agrees(self, observed: "Cell") -> bool:
        """Return whether a rule that yields `found` keeps to this cell: one by hand may leave out codes."""
        if self.by_hand and not self.names:
            return self.kind == observed.kind
        return (self.kind, set(self.names)) == (observed.kind, set(observed.names))


def cell_of(result: Result) -> Cell:
    """Return the cell of what a rule yielded for all targets of a situation: the first kind that occurs."""
    if result.proposals:
        return Cell("proposes", tuple(sorted(result.codes)))
    if result.refusals:
        return Cell("refuses", tuple(sorted(result.codes)))
    return Cell("blocked", tuple(sorted(result.blocked))) if result.blocked else Cell("silent")


def read(rule_id: str) -> dict[str, Cell]:
    """Return the cells of a rule by situation; none where its file is missing."""
    file = FOLDER / f"{rule_id}.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    pairs = (line.partition(":") for line in lines if line.strip() and not line.startswith("#"))
    return {name.strip(" !"): _parsed(text if "!" not in name else f"{text} !") for name, _, text in pairs}


def _parsed(text: str) -> Cell:
    kind, *names = text.replace("!", " ").replace(",", " ").split()
    return Cell(kind, tuple(name for name in names if name != "refuses"), "!" in text)


def recorded(rule: Rule, known: Mapping[str, Cell]) -> dict[str, Cell]:
    """Return the cells of a rule as they are now; those by hand stay."""
    now = {name: cell_of(run(rule, name)) for name in regimes()}
    return {name: known[name] if name in known and known[name].by_hand else cell for name, cell in now.items()}


def write(rule_id: str, cells: Mapping[str, Cell]) -> None:
    """Write the file of a rule."""
    (FOLDER / f"{rule_id}.txt").write_text("".join(f"{name}: {cell.text}\n" for name, cell in cells.items()))


def main(rule_ids: list[str]) -> None:
    from tests.testing.test_conformity import BUILT_IN

    for rule in BUILT_IN:
        if not rule_ids or rule.rule_id in rule_ids:
            write(rule.rule_id, recorded(rule, read(rule.rule_id)))


if __name__ == "__main__":
    main(sys.argv[1:])
