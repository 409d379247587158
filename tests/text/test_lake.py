from datetime import date

from pertoken.lake.questions import Coverage
from pertoken.lake.reading import DayFault
from pertoken.text.lake import LakeTable, coverage_lines, lake_text, with_per_mtok

FAULTS = tuple(DayFault("eu-1", date(2026, 9, n), "costs-\x1b[31m is missing") for n in range(1, 8))


def test_days_that_are_left_out_are_named_and_act_on_no_terminal() -> None:
    lines = coverage_lines(Coverage(("eu-1",), 3, 1_789_956_000, FAULTS))
    assert lines[0] == "1 cell, 3 published days, to 2026-09-21 02:00Z"
    assert lines[1].startswith("Left out: cell eu-1, 2026-09-01: costs-\\x1b") and lines[-1].endswith(
        "2 more days of cells"
    )


def test_unknown_names_and_amounts_are_not_zero() -> None:
    row = {"provider": None, "nano_usd": None, "unpriced_device_hours": 3}
    text = lake_text("lake", [LakeTable("Dollars", [row]), LakeTable("Nothing", [])], Coverage((), 0, None, ()), None)
    assert "none" in text and "$0" not in text and "nothing of these hours is published" in text


def test_a_model_without_tokens_has_no_price() -> None:
    row = {"model": "a", "nano_usd": 5, "prompt_tokens": 0, "cached_tokens": 0, "generated_tokens": 0}
    assert with_per_mtok(row)["nano_usd_per_mtok"] is None
    assert with_per_mtok(row | {"prompt_tokens": 2})["nano_usd_per_mtok"] == 2_500_000
