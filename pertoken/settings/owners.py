"""Names of owners of dollars, as people write them: `namespace=prod`, `label:team=search`, `job:account=nlp`."""

import re
from dataclasses import dataclass

LABEL = "label:"
"""What the basis of a pod label begins with; the name of the label follows."""
JOB, SLICE = "job", "slice"
JOB_FACTS = ("job:user", "job:account", "job:partition")
BASES = ("namespace", "workload", JOB, *JOB_FACTS, SLICE)
"""Bases of dollars by owner, beside `label:NAME`."""
LABEL_NAME = re.compile(r"([A-Za-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""Name of a pod label. Source: Kubernetes documents, "Labels and Selectors"."""


def is_basis(name: str) -> bool:
    """Return whether dollars can be grouped by it: one of `BASES`, or `label:` with the name of a pod label."""
    return name in BASES or (name.startswith(LABEL) and LABEL_NAME.fullmatch(name.removeprefix(LABEL)) is not None)


def read_owner(text: object) -> tuple[str, str]:
    """Return the basis and name of an owner. Raises ValueError with the accepted form."""
    basis, _, name = text.partition("=") if isinstance(text, str) else ("", "", "")
    basis, name = basis.strip(), name.strip()
    if not is_basis(basis) or not name:
        raise ValueError(f"must be BASIS=NAME with {', '.join(BASES)} or label:NAME, such as namespace=prod")
    return basis, name


def read_owner_budgets(value: object) -> tuple[tuple[str, float], ...]:
    """Return dollars a month by owner. Raises ValueError naming the key that is wrong."""
    if not isinstance(value, dict):
        raise ValueError('must be a table of dollars by owner, such as {"namespace=prod" = 5000}')
    budgets = {}
    for key, usd in value.items():
        try:
            owner = "=".join(read_owner(key))
        except ValueError as error:
            raise ValueError(f'"{key}": {error}') from None
        if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 < usd < float("inf"):
            raise ValueError(f'"{key}": must be a number above 0')
        budgets[owner] = float(usd)
    return tuple(budgets.items())


@dataclass(frozen=True, slots=True)
class SharedLine:
    """A line of a bill that the other lines share: a gateway, a router, an idle reserve."""

    line: str
    """`model=NAME`, `namespace=NAME` and other owners, or one of `UNOWNED_LINES`, of a bill by any of them."""
    by: str = "dollars"
    """One of `SHARES`."""


UNOWNED_LINES = ("unallocated", "other work", "no owner")
SHARES = ("dollars", "tokens", "equal")
"""How a shared line is divided: in proportion to dollars or tokens of the others, or into equal parts."""


def read_shared(value: object) -> tuple[SharedLine, ...]:
    """Return the shared lines of a setting. Raises ValueError naming what is wrong."""
    if not isinstance(value, list | tuple) or not all(isinstance(row, dict) for row in value):
        raise ValueError("must be a list of tables, each written [[shared]]")
    return tuple(_shared(row) for row in value)


def _shared(row: dict[str, object]) -> SharedLine:
    unknown = sorted(row.keys() - {"line", "by"})
    if unknown:
        raise ValueError(f"{unknown[0]}: no such key; there are line, by")
    line, by = row.get("line"), row.get("by", "dollars")
    basis, _, name = line.partition("=") if isinstance(line, str) else ("", "", "")
    if line not in UNOWNED_LINES and (not name or (basis != "model" and not is_basis(basis))):
        raise ValueError(f"line: must be {', '.join(UNOWNED_LINES)}, model=NAME or an owner such as namespace=gateway")
    if by not in SHARES:
        raise ValueError(f"by: must be one of {', '.join(SHARES)}")
    return SharedLine(str(line), str(by))
