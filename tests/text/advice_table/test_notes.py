"""Sentences about advice."""

from dataclasses import replace

from pertoken.forecast.tiers import tiers
from pertoken.proof.recommendation import State, short_id
from pertoken.text.advice_sheet import advice_sheet
from pertoken.text.advice_table import accepted_note, forecast_note, open_advice, totals, unconfirmed_note
from tests.tui.reports import ADVICE


def test_bankable_and_capacity_stay_apart_in_the_totals() -> None:
    bankable, capacity, *_ = totals(open_advice(ADVICE)).splitlines()
    assert bankable.startswith("Bankable $3,018 to $3,636 a month")
    assert capacity.startswith("Capacity $0 to $400 a month")


def test_a_proposal_beside_an_accepted_change_of_its_target_is_named_as_priced_before_it() -> None:
    first, *others = open_advice(ADVICE)
    accepted = replace(first, recommendation_id=99, state=State.ACCEPTED, estimate=first.best)
    note = accepted_note([first, *others, accepted])
    assert note is not None and short_id(first) in note and "`pertoken plan` prices them after it" in note
    assert note in totals([first, *others, accepted])
    assert totals([first, *others, accepted]).splitlines()[0] == totals(others).splitlines()[0]
    assert accepted_note([first, *others]) is None
    sheets = [advice_sheet(first, 0.0, advice=rows) for rows in ([first, accepted], [first, *others])]
    assert [any("before an accepted" in section.title for section in sheet) for sheet in sheets] == [True, False]
    unpriced = replace(first, variants=())
    assert accepted_note([unpriced, *others, accepted]) is None, "there is no price that could count twice"


def test_unconfirmed_advice_is_in_no_total_and_a_note_counts_it() -> None:
    first, *others = open_advice(ADVICE)
    rows = [replace(first, unconfirmed="no telemetry"), *others]
    assert totals(rows).splitlines()[:2] == totals(others).splitlines()[:2] != totals([first, *others]).splitlines()[:2]
    note = "? 1 row is not confirmed by the last run: in no total; the next run confirms or closes it."
    assert totals(rows).splitlines()[-1] == note == unconfirmed_note(rows)
    assert unconfirmed_note(others) is None


def test_the_list_names_the_tiers_of_its_forecasts_with_their_error_and_the_command_that_lifts_them() -> None:
    first, second, *others = open_advice(ADVICE)
    rows = [
        replace(row, variants=(replace(row.variants[0], tier=tiers()[key]), *row.variants[1:]))
        for row, key in ((first, "stated"), (second, "measured"))
    ]
    note = forecast_note(rows)
    assert note is not None and note in totals([*rows, *others])
    assert (
        f"1 {tiers()['stated'].short}" in note
        and f"1 {tiers()['measured'].short}" in note
        and "`pertoken probe`" in note
    )
    assert forecast_note(others) is None
    measured = forecast_note(rows[1:])
    assert measured is not None and "pertoken probe" not in measured
