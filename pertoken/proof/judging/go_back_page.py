"""Page of the rule `go-back`, which is no plugin."""

import textwrap

from pertoken.printable import paragraphs

RULE = "go-back"
"""Rule id of these recommendations; no plugin has it."""
_SECTIONS = {
    "Why it saves": """\
A change that made tokens dearer costs for as long as it runs, whether anybody recommended it or not. Its verdict is
proven against weeks before the change (docs/how-savings-are-proven.md): the 90 % interval excludes 0 and its
half-width is below half of the loss. Outputs that are not what they were are a reason of their own, however cheap a
token is: the output guard compares lengths, ends of requests and accepted drafts before and after at like prompts.
""",
    "When it is wrong": """\
The change was made for another reason: a security fix, a feature, better or shorter answers. An objective can be
missed for a cause of its own, such as more traffic since the same day: the receipt shows load and latency of both.
Hours after another change are no part of the verdict, so that a second change at the same hour cannot be
distinguished.
""",
    "How to apply": """\
Run its commands: those that undo the recommendation that was applied, else the flags that set each field back. A
version that is not known has to be looked up in your own records. pertoken executes nothing. Going back is detected
as any change is, and gets a verdict; the recommendation ends with the changed configuration.
""",
    "Sources": """\
The verdict and receipt of the change: `pertoken advise show ID` names them, `pertoken receipt ID` prints one.
""",
}
PAGE = "\n\n".join(
    [
        "go-back: Restore what ran before a change that made tokens dearer, altered outputs or misses an objective.",
        "built into pertoken, no plugin · once per deployment, in each advice run · cannot be switched off",
        *(f"{name}\n{textwrap.indent(paragraphs(text), '  ')}" for name, text in _SECTIONS.items()),
    ]
)
"""What `pertoken rules explain` and details show of it."""
