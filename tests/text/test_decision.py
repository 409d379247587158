"""Sections of the computed detail of a recommendation."""

from dataclasses import replace

from pertoken.text.decision import detail_sections, editable, history_sections, page_section, paid_section
from tests.proof.judging.test_banked import STORED
from tests.tui.reports import QUANTIZE
from tests.tui.studies import LOAD, PRICE, shown_detail

DETAIL = shown_detail(QUANTIZE, {})
FORECAST = replace(PRICE, assumption="the forecast", ends=None)


def test_the_phase_is_shown_until_the_detail_is_computed() -> None:
    (section,) = detail_sections(None, "reading inventory, 40%")
    assert section.lines == ("Computing: reading inventory, 40%…",)
    assert history_sections(None) == page_section(None) == ()


def test_bars_of_all_assumptions_have_one_scale_and_only_numbers_that_can_be_set_are_numbered() -> None:
    assert DETAIL.tested is not None
    tested = replace(DETAIL.tested, sensitivity=(FORECAST, LOAD))
    assert editable(tested) == (LOAD,)
    lines = detail_sections(replace(DETAIL, tested=tested), None)[0].lines
    assert [line[0] for line in lines if not isinstance(line, str)] == ["·", "1."]
    bars = [line[1].splitlines()[1] for line in lines if not isinstance(line, str)]
    assert bars == ["··············██████", "·················███"]


def test_a_set_value_shows_its_saving() -> None:
    lines = detail_sections(shown_detail(QUANTIZE, {LOAD.assumption: 0.5}), None)[0].lines
    assert "With the load stays as measured = 0.5: bankable $750, capacity none found a month." in lines


def test_the_waterfall_goes_from_the_bill_now_to_the_bill_after() -> None:
    section = next(candidate for candidate in detail_sections(DETAIL, None) if candidate.title.startswith("The bill"))
    assert [str(line).split()[-2] for line in section.lines] == ["$7,270", "-$1,500", "$5,770"]


def test_a_recommendation_that_cannot_be_priced_again_shows_the_reason() -> None:
    untested = replace(DETAIL, tested=None, untested="the change is already applied: there is nothing to price")
    assert detail_sections(untested, None)[0].lines == ("the change is already applied: there is nothing to price",)


def test_a_receipt_has_its_share_and_its_dollars_in_a_sentence() -> None:
    (section,) = paid_section(replace(DETAIL, receipts=(STORED,)))
    assert section.title == "What it saved, as measured"
    saved = "saved 9.6% (8.0% to 11.2%) of device time: $23.45 ($19.09 to $27.88) in 162 compared hours"
    assert section.lines == (f"verdict REALIZED, chat: {saved}",)
    assert paid_section(None) == paid_section(DETAIL) == ()


def test_the_journal_is_text() -> None:
    (journal,) = history_sections(DETAIL)
    assert journal.title == "Journal" and "\\x1b[31m" in str(journal.lines[0])
    (page,) = page_section("why\n  because\n")
    assert page.lines == ("why", "  because")
