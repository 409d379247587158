"""Every lever through the advisor: what its row proposes or why not, and how each is applied and undone."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pertoken.advisor.changes.commands import commands
from pertoken.advisor.changes.title import PricingChoices
from pertoken.proof.recommendation import Recommendation, State
from pertoken.state.diff import diff
from tests.advisor.gathered import advised, gathered, own
from tests.savings.priced_levers import CONTEXT, EXPECTED, FLEET, LEVERS

GOLDEN = Path(__file__).with_name("levers.txt")
GATHERED = gathered(FLEET, CONTEXT)


def row_of(lever: str) -> Recommendation:
    def proposes(fleet: Any) -> Iterator[Any]:
        yield LEVERS[lever]()

    (row,) = advised(GATHERED, own(proposes))
    return row


def shown(lever: str) -> str:
    """One block of the golden file: title and kind of worth, or the reason; `+` to apply it, `-` to undo it."""
    row = row_of(lever)
    step = commands(diff(FLEET, FLEET.edit(LEVERS[lever]())), FLEET, GATHERED.addresses, PricingChoices())
    lines = [f"== {lever}"]
    apply, undo = step.apply, step.undo
    if row.best is None:
        lines.append(f"refused: {row.reason}")
    else:
        best = row.best
        monies = (("bankable", best.net), ("capacity", best.capacity))
        worth = [name for name, money in monies if money is not None and money[1] > 0]
        lines += [f"{row.target_kind} {row.target}: {best.title}", " and ".join(worth) or f"unpriced: {best.uncounted}"]
        lines += [f"break-even: {best.break_even}"] if best.break_even else []
        lines.append(f"risk {best.risk}, effort {best.effort}")
        apply, undo = best.commands, best.undo
    return "\n".join([*lines, *(f"+ {line}" for line in apply), *(f"- {line}" for line in undo)]) + "\n"


def test_the_advice_on_every_lever_is_as_recorded() -> None:
    text = "\n".join(shown(lever) for lever in LEVERS)
    if os.environ.get("PERTOKEN_REWRITE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), (
        "read the difference, and if it is right, run the test with PERTOKEN_REWRITE_GOLDEN=1"
    )


@pytest.mark.parametrize("lever", LEVERS)
def test_each_lever_is_a_row_with_commands_and_undo_or_its_reason(lever: str) -> None:
    row = row_of(lever)
    assert row.state in (State.OPEN, State.REFUSED)
    if row.best is None:
        assert EXPECTED[lever] in (row.reason or "") or "the forecast shows no saving" in (row.reason or "")
        return
    assert row.best.title and row.best.changes
    assert row.best.commands and row.best.undo
    assert row.best.uncounted or (row.best.net is not None and row.best.capacity is not None)
