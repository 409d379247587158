"""The main figures; an unknown one shows its reason."""

from dataclasses import replace

from pertoken.proof.judging.receipts import Banked
from pertoken.text.fleet import figures, savings_line
from tests.tui.reports import BANKED, BARE, RICH
from tests.tui.studies import PLAN


def test_each_figure_has_its_unit_and_its_observed_share() -> None:
    assert [figure.sentence for figure in figures(RICH)] == [
        "$0.412/Mtok (86% of 1h)",
        "$9.96/hour",
        "853 tok/s",
        "51% idle or unallocated",
        "1,096 W",
    ]
    assert figures(RICH)[1].caption == "$/hour, 1 unpriced"


def test_an_unknown_figure_shows_the_reason() -> None:
    assert [figure.sentence for figure in figures(BARE)] == [
        "$/Mtok: no price",
        "$/hour: no price",
        "tok/s: no engine",
        "idle: no price",
        "watts: not read",
    ]


def test_hosts_that_do_not_report_have_no_present_figures() -> None:
    one, other = RICH.hosts
    part = figures(replace(RICH, hosts=(one, replace(other, age_s=9000))))
    assert part[2].caption == "tok/s, 1 host"  # it fits under its digits at 80 columns
    silent = replace(RICH, hosts=tuple(replace(host, age_s=9000) for host in RICH.hosts), generated_tok_s_now=None)
    assert figures(silent)[2].sentence == "tok/s: no reports"


def test_the_bankable_saving_is_beside_its_least_certain_assumption_and_what_was_banked() -> None:
    assert savings_line(PLAN, BANKED) == (
        "Bankable $3,318 ($3,018–$3,636)/month if the list price is paid · banked: $402"
    )
    assert len(savings_line(PLAN, BANKED)) <= 78, "all of it fits at 80 columns"
    nothing = replace(PLAN, bankable=(0, 0, 0), steps=(), sensitivity=())
    assert savings_line(nothing, Banked()) == "No step lowers the bill (2 shows why) · banked: nothing yet"
    assert savings_line(None, None) == "Bankable: the plan is being composed · banked: being read"
    due = "The advisor runs the rules in 3m: 100s of 5m of telemetry are recorded."
    assert savings_line(nothing, Banked(), f"No rule has run yet. {due}") == due
