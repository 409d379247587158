"""Tables that people see of a lake, each with the question that it answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pertoken.lake import questions
from pertoken.lake.reading import Tables


@dataclass(frozen=True, slots=True)
class View:
    """One table."""

    title: str
    question: Callable[[Tables], Any]
    note: str | None = None


def _bill(by: str) -> View:
    return View(f"Dollars by {by}", partial(questions.dollars, by=[by]))


VIEWS: Mapping[str, View] = {
    "mtok": View(
        "Dollars per Mtok by model",
        partial(questions.per_mtok, by="model"),
        "Hours in which a device has no price, or tokens are not known, are left out of both.",
    ),
    "cell": View("Dollars by cell, and what of them was idle", partial(questions.unused, by=["cell"])),
    "kinds": View(
        "Dollars by model and kind of work",
        partial(questions.by_kind, by="model"),
        "Prefill and decode are upper bounds where requests ran together; unsplit: the engine counts no times.",
    ),
    "provider": _bill("provider"),
    "namespace": _bill("namespace"),
    "services": View("Services that pay most for idle devices", partial(questions.unused, by=["cell", "service"])),
    "months": View("Spend by month", questions.months),
    "savings": View(
        "Changes by verdict: measured in the hours compared, and what left the bill a month",
        questions.realised,
        "A negative amount is a change that made tokens dearer; capacity leaves no bill.",
    ),
    "advice": View(
        "Open recommendations",
        questions.advice,
        "Amounts do not add up: several may be about the same devices, and commitments of several cells about one.",
    ),
}
"""Views by name, in the order of a report."""
