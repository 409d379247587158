"""Order and totals of advice."""

from dataclasses import replace

from pertoken.proof.recommendation import State, best_of_each_target, total
from pertoken.proof.track_record import PRIOR_SD, SPREAD, Record
from pertoken.reports.tables import advice_values
from pertoken.savings.saving import NOTHING, Saving
from pertoken.text.advice_table import (
    DONE_COLUMNS,
    OPEN_COLUMNS,
    bankable,
    confidence,
    declined,
    marked_title,
    mtok_words,
    not_evaluated,
    open_advice,
    paying_more,
    record_words,
)
from pertoken.text.summary import sheet_text
from tests.tui.reports import ADVICE, FP8, H200, MOVE, QUANTIZE, RELEASE, RICH, UNPRICED, USD


def test_open_advice_is_ordered_by_bankable_then_by_capacity() -> None:
    more = replace(
        MOVE,
        recommendation_id=9,
        variants=(replace(H200, saving=Saving(FP8.net or NOTHING, H200.capacity or NOTHING)),),
    )
    assert open_advice((*ADVICE, more)) == [RELEASE, more, QUANTIZE, MOVE, UNPRICED]


def test_a_row_whose_bill_may_rise_comes_after_the_sure_ones_and_is_marked_in_lists_reports_and_json() -> None:
    larger = Saving((-10_227 * USD, 11_967 * USD, 14_124 * USD))
    risen = replace(QUANTIZE, recommendation_id=9, variants=(replace(FP8, saving=larger),))
    rows = open_advice((*ADVICE, risen))
    assert rows == [RELEASE, QUANTIZE, risen, MOVE, UNPRICED]
    assert [row.may_rise for row in rows] == [advice_values(row)["may_rise"] for row in rows]
    assert [row.may_rise for row in rows][:3] == [False, False, True]
    assert marked_title(risen) == f"may rise: {QUANTIZE.title}"
    assert best_of_each_target((risen, QUANTIZE)) == (QUANTIZE,)
    assert any("may rise" in line for line in sheet_text(risen, 0).splitlines())


def test_failed_rules_come_before_blocked_and_refused_ones() -> None:
    assert [row.state for row in not_evaluated(ADVICE)] == [State.FAILED, State.BLOCKED, State.REFUSED]


def test_two_changes_of_one_target_are_never_added() -> None:
    assert best_of_each_target(ADVICE) == (RELEASE, QUANTIZE, UNPRICED)
    assert total((bankable(RELEASE), bankable(QUANTIZE), None)) == (3018 * USD, 3458 * USD, 3636 * USD)
    assert total((None,)) is None


def test_a_change_of_one_replica_is_not_added_to_one_of_its_service_nor_a_host_counted_twice() -> None:
    of_service = replace(QUANTIZE, recommendation_id=8, target_kind="service", target_key="chat")
    release = replace(RELEASE, recommendation_id=2**40, rule_id="another")
    assert best_of_each_target((MOVE, of_service, RELEASE, release)) == (RELEASE, of_service)


def test_confidence_is_by_the_least_certain_input() -> None:
    words = {name: confidence(replace(FP8, provenance=name)) for name in ("reported", "forecast", "listed", "assumed")}
    assert words == {
        "reported": "●●● high",
        "forecast": "●●○ fair",
        "listed": "●●○ fair",
        "assumed": "●○○ low",
    }
    assert confidence(None) == ""


def test_a_million_tokens_cost_less_by_what_leaves_the_bill_and_by_what_more_is_served() -> None:
    (line,) = (candidate for candidate in RICH.deployments if candidate.deployment_id == QUANTIZE.deployment_id)
    priced = replace(line, nano_usd=10 * USD, nano_usd_per_mtok=8 * USD, nano_usd_per_hour=10 * USD)
    report = replace(RICH, deployments=(priced,))
    half = 3650 * USD
    bankable = replace(QUANTIZE, variants=(replace(FP8, saving=Saving((half, half, half))),))
    assert mtok_words(report, bankable) == "$8.00 → ≈$4.00"
    capacity = replace(QUANTIZE, variants=(replace(FP8, saving=Saving(capacity=(2 * half,) * 3)),))
    assert mtok_words(report, capacity) == "$8.00 → ≈$4.00"
    unpriced = replace(report, deployments=(replace(priced, nano_usd_per_mtok=None),))
    assert mtok_words(unpriced, bankable) == ""
    more_than_all = replace(QUANTIZE, variants=(replace(FP8, saving=Saving((3 * half,) * 3)),))
    assert mtok_words(report, more_than_all) == ""


def test_the_record_of_a_rule_is_a_ratio_with_how_many_receipts() -> None:
    assert record_words(Record(4, 0.92, 0.1, 0.3)) == "0.92× of 4"
    assert record_words(None) == record_words(Record(0, 1.0, PRIOR_SD, SPREAD)) == "no receipts"


def test_a_done_row_shows_promised_capacity_where_nothing_was_bankable() -> None:
    promised = next(column for column in DONE_COLUMNS if column.name == "promised $/month")
    done = replace(
        QUANTIZE,
        state=State.REALIZED,
        estimate=replace(FP8, saving=Saving((0, 0, 0), FP8.capacity or NOTHING)),
        variant=FP8.key,
    )
    assert promised.text(done) == "$0–210–400 capacity"
    assert promised.text(replace(done, estimate=FP8)) == "$1,200–1,640–1,818"
    assert promised.order is not None and promised.order(done) == 210 * USD


def test_unconfirmed_advice_is_marked_and_last() -> None:
    first, *others = open_advice(ADVICE)
    rows = open_advice([replace(first, unconfirmed="no telemetry"), *others])
    assert [row.title for row in rows] == [*(row.title for row in others), first.title]
    titles = [OPEN_COLUMNS[0].text(row) for row in rows]
    assert titles[-1] == f"? {first.title}" and not any(title.startswith("?") for title in titles[:-1])


def test_what_a_person_has_to_confirm_has_a_column_of_its_own_and_is_in_no_total() -> None:
    held_back = replace(FP8, saving=None, if_confirmed=FP8.saving, to_confirm="compare its outputs")
    row = replace(QUANTIZE, variants=(held_back,))
    texts = {column.name: column.text(row) for column in OPEN_COLUMNS}
    assert texts["if confirmed $/month"] == "$1,200–1,640–1,818"
    assert texts["bankable $/month"] == texts["capacity $/month"] == "to confirm"
    assert total(map(bankable, best_of_each_target([row]))) is None
    frees = replace(held_back, if_confirmed=Saving(NOTHING, (1 * USD, 2 * USD, 3 * USD)))
    texts = {column.name: column.text(replace(row, variants=(frees,))) for column in OPEN_COLUMNS}
    assert texts["if confirmed $/month"] == "$1.00–2.00–3.00 capacity"


def test_a_change_that_raises_the_bill_is_apart_from_open_advice_and_in_no_total() -> None:
    dearer = replace(FP8, saving=Saving((-9 * USD, -5 * USD, -1 * USD), (20 * USD, 30 * USD, 40 * USD)))
    row = replace(QUANTIZE, recommendation_id=77, variants=(dearer,))
    assert not row.counted and paying_more((RELEASE, row)) == [row]
    assert open_advice((RELEASE, row)) == [*best_of_each_target((RELEASE, row))] == [RELEASE]
    put_off = replace(row, state=State.DISMISSED)
    assert declined([put_off]) == "Declined (1): not priced a month."
