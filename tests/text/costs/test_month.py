from dataclasses import replace

from pertoken.costs.month import EXPECTED, SPENT, Alert, MonthSpend
from pertoken.text.billing import spend_plain, spend_text

USD = 10**9
MONTH = MonthSpend(
    start_ts=1_793_491_200,
    end_ts=1_796_083_200,
    now_ts=1_794_355_200,
    nano_usd=1000 * USD,
    total=(2800 * USD, 3000 * USD, 3200 * USD),
    basis="10 whole days: their mean",
    reason=None,
    days=(),
    unpriced_share=0.0,
    unrecorded_s=0,
)


def test_a_month_is_shown_with_its_interval_its_budget_and_what_is_reached() -> None:
    text = spend_text(MONTH, 2000 * USD, [Alert(SPENT, 0.5), Alert(EXPECTED, 1.0)])
    assert text == (
        "month        2026-11, until 2026-11-11 00:00Z\n"
        "spent        $1,000\n"
        "whole month  about $3,000 ($2,800 to $3,200; by 10 whole days: their mean)\n"
        "budget       $2,000 a month, 50% spent\n"
        "alert        50% of the budget is spent\n"
        "alert        the likely spend of the whole month is above the budget\n"
    )


def test_missing_cost_is_noted_and_unknown_is_none() -> None:
    poor = replace(MONTH, nano_usd=None, total=None, basis=None, reason="few", unpriced_share=0.4, unrecorded_s=86_400)
    text = spend_text(poor, None, [])
    assert "spent        not known" in text and "whole month  not known: few" in text
    assert "40% of the recorded device time has no price" in text and "first 1d of the month" in text
    spend = spend_plain(poor, None, [])
    assert (spend["spent_usd"], spend["month_usd"], spend["budget_usd"], spend["unknown"]) == (None, None, None, "few")
