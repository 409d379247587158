from dataclasses import replace

from pertoken.costs.report.lines import Trouble, TroubleKind
from pertoken.text.fleet_sheets import MAX_LINES, trouble_rows, trouble_sentences, trouble_table
from pertoken.text.summary import summary
from tests.tui.figures import HOSTILE
from tests.tui.reports import RICH

STUCK = Trouble(
    TroubleKind.STUCK,
    "lab on gpu-a",
    "3 requests run, but no token came",
    "pertoken advise show eaf5fc64",
    1_950_000_000,
)
ALERT = Trouble(TroubleKind.ALERT, HOSTILE, "hung: stuck is 1", "pertoken alerts list")


def test_a_trouble_is_readable_without_colour_and_has_its_dollars_and_its_command() -> None:
    stuck, alert = trouble_rows((STUCK, ALERT), 200)
    for part in ("✗ stuck", "lab on gpu-a", "$1.95/hour", "pertoken advise show eaf5fc64", "no token came"):
        assert part in stuck
    assert "! alert fires" in alert and "$0" not in alert and alert.isprintable()
    assert trouble_sentences((STUCK,))[0].startswith("✗ stuck: lab on gpu-a, 3 requests run")


def test_a_narrow_screen_keeps_what_and_where() -> None:
    (line,) = trouble_rows((STUCK,), 40)
    assert len(line) <= 40 and "stuck" in line and "lab on gpu-a" in line


def test_the_summary_begins_with_what_is_wrong_and_counts_what_it_leaves_out() -> None:
    report = replace(RICH, troubles=(STUCK,) * (MAX_LINES + 3))
    text = summary(report, ())
    assert text.index("✗ stuck") < text.index("$/Mtok")
    assert "and 3 more" in text
    assert trouble_table(replace(RICH, troubles=()), None) == []
