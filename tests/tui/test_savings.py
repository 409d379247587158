import re
from dataclasses import replace

import pytest

from pertoken.advisor.recommendation import State
from pertoken.plugins.use_spot import use_spot
from pertoken.tui.text.advice_columns import bankable, best_of_each_target, not_evaluated, open_advice, total
from pertoken.tui.text.notes import totals
from tests.advisor.gathered import advised, gathered
from tests.savings.fleets import replicas
from tests.tui.reports import ADVICE, FP8, H200, MOVE, QUANTIZE, RELEASE, UNPRICED, USD, FixedSource
from tests.tui.screens import running, text_of, until_shown


def test_open_advice_is_ordered_by_bankable_then_by_capacity() -> None:
    more = replace(MOVE, recommendation_id=9, variants=(replace(H200, bankable=FP8.bankable),))
    assert open_advice((*ADVICE, more)) == [RELEASE, more, QUANTIZE, MOVE, UNPRICED]


def test_what_broke_comes_before_what_is_blocked_and_what_refused() -> None:
    assert [each.state for each in not_evaluated(ADVICE)] == [State.FAILED, State.BLOCKED, State.REFUSED]


def test_two_changes_of_one_target_are_never_added() -> None:
    assert best_of_each_target(ADVICE) == [RELEASE, QUANTIZE, UNPRICED]
    assert total((bankable(RELEASE), bankable(QUANTIZE), None)) == (3018 * USD, 3458 * USD, 3636 * USD)
    assert total((None,)) is None


def test_a_change_of_one_replica_is_not_added_to_one_of_its_service_nor_a_host_counted_twice() -> None:
    of_service = replace(QUANTIZE, recommendation_id=8, target_kind="service", target_key="chat")
    release = replace(RELEASE, recommendation_id=7, rule_id="another")
    assert best_of_each_target((MOVE, of_service, RELEASE, release)) == [RELEASE, of_service]


def test_bankable_and_capacity_stay_apart_in_the_totals() -> None:
    bankable, capacity, *_ = totals(open_advice(ADVICE)).splitlines()
    assert bankable.startswith("Bankable $3,018 to $3,636 a month")
    assert capacity.startswith("Capacity $0 to $400 a month")


async def test_expired_advice_is_not_shown() -> None:
    async with running(FixedSource(), (120, 40)) as pilot:
        await pilot.press("2")
        await until_shown(pilot, "Open (4)")
        assert "Expired and not" not in text_of(pilot)
        await pilot.press("tab")
        await until_shown(pilot, "use-spot")
        assert "Expired and not" not in text_of(pilot)


@pytest.mark.parametrize(
    "text",
    [
        "$1,640 likely, $1,200 to $1,818",
        "bf16 → fp8",
        "vllm serve meta-llama/Llama-3.1-70B-Instruct --quantization fp8 --tensor-parallel-size 1",
        "mean 14.2, p50 14, p95 63.5 requests  (n=360, reported)",
        "not measured: needs GPM",
        "Quality at FP8 is acceptable",
        "Compute-bound at peak hours",
        "Serve INT4 weights: bankable $900 to $1,700",
        "quality, medium",
        "tp 2 → 1: it would not start",
    ],
)
async def test_the_detail_of_advice_shows(text: str) -> None:
    async with running(FixedSource(), (120, 50)) as pilot:
        await pilot.press("2", "down", "enter")
        await until_shown(pilot, text)


async def test_a_failed_rule_shows_its_traceback_as_text() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("2", "tab", "enter")
        await until_shown(pilot, "ZeroDivisionError: [b]division[/b]")
        await until_shown(pilot, "Ask the author of the rule.")


async def test_a_range_of_listed_prices_stands_beside_its_assumption_on_a_small_terminal() -> None:
    found = advised(gathered(replicas(5)), use_spot)
    async with running(FixedSource(recommendations=found), (80, 24)) as pilot:
        await pilot.press("2")
        await until_shown(pilot, "on_demand → spot on 4")
        head = " ".join(text_of(pilot).partition("Open (1)")[0].split())
    assert re.search(r"Bankable \$[\d,]+ to \$[\d,]+ a month: the bill falls by this", head)
    assert "Assumed: H100 SXM5 spot costs 0.23 of H100 SXM5 on-demand, the median of 18 listed pairs" in head
    assert "(and 1 more, in the details)" in head
