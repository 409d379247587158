"""Strict count of what tunes the forecast: `python -m tools.constants`.

Every number of a table and every literal of `pertoken/forecast` that changes a forecast counts, but for those that
`constants.toml` lists with the reason: physical facts, listed and measured rates, mathematics and units, and numerics,
which change digits only. 0 and 1 are no constants, nor is a 2 within a formula.
"""

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1] / "pertoken/forecast"
TAKEN = [PACKAGE.parent / name for name in ("advisor/probed.py", "arrivals.py", "lengths.toml")]
"""Files beside the package whose values the forecast takes: rates of CPUs that a probe measured, and lengths."""


def exempt() -> dict[str, list[str]]:
    """Return the names or `file:value` of literals, and the tables, that count not, by reason."""
    reasons: dict[str, list[str]] = tomllib.loads(
        Path(__file__).with_name("constants.toml").read_text(encoding="utf-8")
    )
    return reasons


def _files(suffix: str) -> list[Path]:
    return [file for file in (*sorted(PACKAGE.rglob("*")), *TAKEN) if file.suffix == suffix]


def table_values() -> Iterator[str]:
    """Yield the place of each number in a table of the package: `efficiency.toml: terms.weights.base`."""
    for file in _files(".toml"):
        for place in _numbers(tomllib.loads(file.read_text(encoding="utf-8"))):
            yield f"{file.name}: {place}"


def literals() -> Iterator[str]:
    """Yield each literal of the package's code: the name that it is assigned to, else `file: value`."""
    for file in _files(".py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        named: dict[int, str] = {}
        for statement in tree.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
                named |= dict.fromkeys(map(id, ast.walk(statement)), ast.unparse(target))
        for node in ast.walk(tree):
            value = getattr(node, "value", None)
            if isinstance(node, ast.Constant) and _is_number(value, named=id(node) in named):
                yield f"{file.name}: {named.get(id(node), value)}"


def counted() -> Counter[str]:
    """Return the constants that tune a forecast, with how many numbers each place holds."""
    reasons = {place for places in exempt().values() for place in places}
    places = Counter((*table_values(), *literals()))
    return Counter({place: n for place, n in places.items() if not _is_exempt(place, reasons)})


def unused() -> list[str]:
    """Return the exempt places that no file has any more."""
    places = (*table_values(), *literals())
    return [
        name for names in exempt().values() for name in names if not any(_is_exempt(place, {name}) for place in places)
    ]


def _is_exempt(place: str, reasons: set[str]) -> bool:
    return any(place == reason or place.startswith(f"{reason}.") for reason in reasons)


def _numbers(table: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, value in table.items():
        place = f"{path}.{name}" if path else name
        if isinstance(value, Mapping):
            yield from _numbers(value, place)
        elif isinstance(value, list):
            yield from (place for member in value if _is_number(member))
        elif _is_number(value):
            yield place


def _is_number(value: object, *, named: bool = True) -> bool:
    no_constants = (0, 1) if named else (0, 1, 2)
    return isinstance(value, int | float) and not isinstance(value, bool) and value not in no_constants


def main() -> None:
    """Print each constant, and their number."""
    constants = counted()
    for place, n in constants.items():
        print(f"{n:3}  {place}")
    print(f"{constants.total():3}  together")


if __name__ == "__main__":
    main()
