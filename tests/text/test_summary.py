from dataclasses import replace

from pertoken.text.summary import summary
from tests.tui.reports import ADVICE, BARE, NOW, RICH, SILENT_ADVICE, host
from tests.tui.screens import GOLDEN


def test_the_summary_has_the_facts_of_the_screens_and_nothing_acts() -> None:
    text = summary(RICH, ADVICE)
    for fact in (
        "$0.412  $/Mtok, 86% of 1h",
        "Paid $9.96 in 1h, 97% observed: busy $4.63 + idle $2.84 + other $0.25 + unallocated $2.24",
        "[/b]evil\\x1b[31m\\u202emodel[red] cannot be read",
        "upper bound",
        "Serve FP8 weights",
        "Bankable $3,018 to $3,636 a month",
        "use-spot, Qwen/Qwen3-8B on gpu-b: refused: no spot offer of this accelerator in the chosen region",
        "restarted on gpu-b",
    ):
        assert fact in text
    assert text.replace("\n", "").isprintable()


def test_the_summary_of_a_bare_host_names_what_to_start_and_invents_nothing() -> None:
    text = summary(BARE, ())
    assert "No inference server was found on this host." in text
    assert "$/Mtok: no price" in text
    assert "No rule has run yet." in text
    assert "laptop" in text
    assert "$0" not in text


def test_the_summary_gives_the_reason_for_no_advice() -> None:
    assert "Nothing to propose: Not evaluated lists 3 rule results with their reasons" in summary(RICH, SILENT_ADVICE)


def test_a_host_that_was_never_read_is_marked() -> None:
    assert "never" in summary(replace(BARE, hosts=(host(1, "laptop", age_s=None),), now_ts=NOW), ())


def test_no_golden_screen_is_wider_than_its_terminal() -> None:
    for file in GOLDEN.glob("*x*.txt"):
        width = int(file.stem.rsplit("-", 1)[1].split("x")[0])
        assert max(len(line) for line in file.read_text().splitlines()) <= width
