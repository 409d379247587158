from dataclasses import replace

from pertoken.text.summary import advice_summary, fleet_summary, summary
from tests.tui.reports import ADVICE, BARE, NOW, RICH, SILENT_ADVICE, host
from tests.tui.screens import GOLDEN


def test_the_summary_has_the_facts_of_the_screens_and_nothing_acts() -> None:
    text = advice_summary(RICH, ADVICE, everything=True)
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
    assert "no rule has anything to report" in text
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


def test_the_advice_is_short_and_names_how_to_list_what_it_leaves_out() -> None:
    many = tuple(replace(ADVICE[0], recommendation_id=number) for number in range(100))
    text = advice_summary(RICH, (*many, *SILENT_ADVICE))
    assert len(text.splitlines()) <= 60
    assert "and 88 more. `pertoken advise --all` lists all." in text
    assert "Not evaluated: 3 results of 3 rules." in text
    assert "Devices" not in text and "none found: the bill" not in text.lower()


def test_the_summary_of_the_fleet_has_no_advice() -> None:
    assert "Savings" not in fleet_summary(RICH) and "Devices" in fleet_summary(RICH)
