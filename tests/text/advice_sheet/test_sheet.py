"""The details of advice, as a page shows them."""

import re
from dataclasses import replace

from pertoken.advisor.plan.compose import compose
from pertoken.plugins.market.use_spot import use_spot
from pertoken.text.summary import sheet_text
from tests.advisor.gathered import advised, gathered
from tests.savings.fleets import replicas
from tests.tui.reports import FixedSource
from tests.tui.screens import running, text_of, until_shown

DETAILS = (
    "$1,640 likely, $1,200 to $1,818",
    "bf16 → fp8",
    "vllm serve meta-llama/Llama-3.1-70B-Instruct --quantization fp8 --tensor-parallel-size 1",
    "mean 14.2, p50 14, p95 63.5 requests  (n=360, reported)",
    "not measured: needs GPM",
    "Quality at FP8 is acceptable",
    "Compute-bound at peak hours",
    "Serve INT4 weights: bankable $900 to $1,700",
    "outputs may differ",
    "clients of chat; hours of work",
    "1.4× faster: 812 ms (410 to 1204) → 561 ms",
    "tp 2 → 1: it would not start",
)


async def test_the_detail_of_advice_shows_its_saving_change_commands_evidence_and_alternatives() -> None:
    async with running(FixedSource(), (120, 80)) as pilot:
        await pilot.press("2", "down", "enter")
        for text in DETAILS:
            await until_shown(pilot, text)


async def test_a_failed_rule_shows_its_traceback_as_text() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("2", "tab", "enter")
        await until_shown(pilot, "ZeroDivisionError: [b]division[/b]")
        await until_shown(pilot, "Ask the author of the rule.")


async def test_the_range_of_the_plan_is_beside_its_least_certain_assumption_on_a_small_terminal() -> None:
    present = gathered(replicas(5))
    advice = advised(present, use_spot)
    plan = compose(present, advice, sensitivity=True)
    async with running(FixedSource(recommendations=advice, planned=plan), (80, 24)) as pilot:
        await pilot.press("2")
        await until_shown(pilot, "on_demand → spot")
        await until_shown(pilot, "Least certain")
        head = " ".join(text_of(pilot).partition("Open (1)")[0].split())
    assert re.search(r"Bankable \$[\d,]+ \(\$[\d,]+ to \$[\d,]+\) a month of a bill of \$[\d,]+ \(1 step\)", head)
    assert "Least certain: devices elsewhere cost what is likely (its low end: $" in head


def test_the_sections_answer_in_the_order_in_which_people_ask() -> None:
    (row,) = advised(gathered(replicas(2)), use_spot)
    text = sheet_text(row, 0)
    order = ("target", "Why", "How much a month", "What gets slower", "What could break", "Who is affected", "Evidence")
    places = [text.index(f"\n{name}") if name != "target" else text.index(name) for name in (*order, "How to apply")]
    assert places == sorted(places)
    assert "none found" not in text and "latency objective" in text


def test_output_of_a_rule_is_shown_without_control_of_the_terminal() -> None:
    (row,) = advised(gathered(replicas(1)), use_spot)
    text = sheet_text(replace(row, output="\x1b]0;title\x07[b]one[/b]\ntwo\n"), 0)
    shown = text[text.index("What the rule printed") :].splitlines()
    assert [line.strip() for line in shown[1:3]] == ["\\x1b]0;title\\x07[b]one[/b]", "two"]
