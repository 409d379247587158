"""Dollars of a host or service as sentences."""

from dataclasses import replace

from pertoken.costs.ledger import KindDollars
from pertoken.text.course import advice_line, busy_line, dollar_lines, gap_lines, proposals_for, title_line
from tests.tui.reports import ADVICE, CHAT, COURSE, RELEASE, RESTARTED, RICH, use


def test_the_dollars_of_a_service_are_busy_or_idle_while_reserved() -> None:
    assert dollar_lines(CHAT, RICH) == (
        "Where a dollar goes: $4.98 in 1h = busy $3.63 (73%) + idle while reserved $1.35 (27%)",
    )
    bound = replace(CHAT, busy_provenance="bound")
    assert "busy ≤ $3.63 (73%) + idle while reserved ≥ $1.35" in dollar_lines(bound, RICH)[0]


def test_the_dollars_of_a_host_add_up_with_unallocated_time() -> None:
    (line,) = dollar_lines(RICH.uses[0], RICH)
    assert line == (
        "Where a dollar goes: $4.98 in 1h = busy $3.13 (63%) + idle while reserved $1.35 (27%) + "
        "other processes $0 (0%) + unallocated $0.50 (10%)"
    )


def test_busy_dollars_are_split_by_the_measured_time_of_each_kind_of_token_with_bounds() -> None:
    assert busy_line(CHAT, RICH) == (
        "Of busy, by device time: computing prompts (47% of it cached) $1.10 (30%, 25% to 36%) "
        "+ lookup of cached tokens $0.03 (1%) + generating $2.50 (69%, 63% to 74%)"
    )
    unsplit = replace(CHAT, kinds=KindDollars(unsplit=3_630_000_000, idle=1_350_000_000))
    assert busy_line(unsplit, RICH) == (
        "Of busy, by device time: not split (no time of prefill and decode) $3.63 (100%)"
    )


def test_busy_dollars_of_a_host_are_those_of_what_it_serves_and_none_without_a_price() -> None:
    assert (busy_line(RICH.uses[0], RICH) or "").startswith("Of busy, by device time: computing prompts")
    assert busy_line(replace(CHAT, kinds=None), RICH) is None
    assert busy_line(RICH.uses[0], None) is None


def test_a_host_that_serves_nothing_lacks_no_tokens_and_has_its_cost() -> None:
    missing, idle = ("Tokens", "Power", "TTFT"), replace(COURSE, deployment_ids=())
    assert gap_lines(RICH.uses[0], COURSE, missing) == ("Not measured in this window: Tokens, Power, TTFT.",)
    assert gap_lines(RICH.uses[0], idle, missing) == (
        "No engine served a model on it in this window: it costs $4.98 an hour.",
        "Not measured in this window: Power.",
    )
    unpriced = replace(RICH.uses[0], nano_usd_per_hour=None)
    assert gap_lines(unpriced, idle, ("TTFT",)) == ("No engine served a model on it in this window.",)
    assert gap_lines(CHAT, idle, ()) == ()


def test_open_proposals_for_a_host_or_service_are_counted_and_the_first_is_named() -> None:
    proposals = proposals_for(CHAT, RICH, ADVICE)
    assert advice_line(proposals) == "2 proposals, the first: Serve FP8 weights ($1,640 a month); enter opens it."
    assert proposals_for(RICH.uses[0], RICH, ADVICE) == proposals
    assert advice_line(proposals_for(RESTARTED, RICH, ADVICE)) is None
    release = replace(RELEASE, target_kind="host", target_key="1", deployment_id=None)
    assert advice_line(proposals_for(RICH.uses[0], RICH, [release])) == (
        "1 proposal: Release the idle device ($1,818 a month); enter opens it."
    )
    assert proposals_for(RICH.uses[1], RICH, [release]) == []


def test_unknown_dollars_have_a_reason() -> None:
    assert "some of its devices had no price" in dollar_lines(replace(CHAT, nano_usd=None), RICH)[0]
    unpriced = replace(use(RICH.hosts[0]), bill=None)
    assert "none of its devices had a price" in dollar_lines(unpriced, RICH)[0]


def test_a_page_begins_with_what_it_is_about() -> None:
    assert title_line(CHAT) == "meta-llama/Llama-3.1-70B-Instruct · vllm on gpu-a · $0.230 per Mtok · busy 87%"
    assert title_line(RICH.uses[0]) == "gpu-a · 2 accelerators · $0.230 per Mtok · util 83%"
