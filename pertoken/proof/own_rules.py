"""Ids and pages of rules that are no plugins."""

import textwrap
from collections.abc import Mapping

from pertoken.printable import paragraphs

GO_BACK = "go-back"
LEAVE_HOST = "leave-host"


def _page(head: str, runs: str, **sections: str) -> str:
    """Return the page of a rule; the keys of sections are the words of their titles, joined by underscores."""
    texts = (f"{name.replace('_', ' ')}\n{textwrap.indent(paragraphs(text), '  ')}" for name, text in sections.items())
    return "\n\n".join((head, f"built into pertoken, no plugin · {runs} · cannot be switched off", *texts))


PAGES: Mapping[str, str] = {
    GO_BACK: _page(
        "go-back: Restore what ran before a change that made tokens dearer, altered outputs or misses an objective.",
        "once per deployment, in each advice run",
        Why_it_saves="""\
A change that made tokens dearer costs for as long as it runs, whether anybody recommended it or not. Its verdict is
proven against weeks before the change (docs/how-savings-are-proven.md): the 90 % interval excludes 0 and its
half-width is below half of the loss. Outputs that are not what they were are a reason of their own, however cheap a
token is: the output guard compares lengths, ends of requests and accepted drafts before and after at like prompts.
""",
        When_it_is_wrong="""\
The change was made for another reason: a security fix, a feature, better or shorter answers. An objective can be
missed for a cause of its own, such as more traffic since the same day: the receipt shows load and latency of both.
Hours after another change are no part of the verdict, so that a second change at the same hour cannot be
distinguished.
""",
        How_to_apply="""\
Run its commands: those that undo the recommendation that was applied, else the flags that set each field back. A
version that is not known has to be looked up in your own records. pertoken executes nothing. Going back is detected
as any change is, and gets a verdict; the recommendation ends with the changed configuration.
""",
        Sources="""\
The verdict and receipt of the change: `pertoken advise show ID` names them, `pertoken receipt ID` prints one.
""",
    ),
    LEAVE_HOST: _page(
        "leave-host: Move all services of a host to other instances, so that the host leaves the bill.",
        "once per host that several services share, in each advice run",
        Why_it_saves="""\
A cloud rents whole instances: one is paid for until its last service has left. A service that moves away alone lowers
no bill, so that each single move is refused or raises it. Each service takes the move of the other rules that saves
most, and all are priced as one change.
""",
        When_it_is_wrong="""\
Halfway through, both places are paid for. A service that has to stay, for a reason that pertoken does not know, keeps
the whole instance on the bill. What speaks against each move alone holds here too.
""",
        How_to_apply="""\
Run its commands in order: start all new servers, check each, move the traffic, then drain the host and give it back.
Leave out no service.
""",
        Sources="""\
The pages of the rules that propose the single moves, such as move-accelerator and smaller-instance, and the catalog's
offers that the recommendation names.
""",
    ),
}
"""What `pertoken rules explain` and details show of them, by rule id."""
