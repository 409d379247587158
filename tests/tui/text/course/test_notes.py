"""Where the dollars of a host or service go."""

from dataclasses import replace

from pertoken.tui.text.course.notes import dollar_lines, title_line
from tests.tui.reports import CHAT, RICH, use


def test_the_dollars_of_a_service_are_busy_or_idle_while_reserved() -> None:
    assert dollar_lines(CHAT, RICH) == (
        "Where a dollar goes: $4.98 in 1h = busy $3.63 (73%) + idle while reserved $1.35 (27%)",
    )
    bound = replace(CHAT, busy_provenance="bound")
    assert "busy ≤ $3.63 (73%) + idle while reserved ≥ $1.35" in dollar_lines(bound, RICH)[0]


def test_the_dollars_of_a_host_add_up_with_what_nothing_held() -> None:
    (line,) = dollar_lines(RICH.uses[0], RICH)
    assert line == (
        "Where a dollar goes: $4.98 in 1h = busy $3.13 (63%) + idle while reserved $1.35 (27%) + "
        "other processes $0 (0%) + unallocated $0.50 (10%)"
    )


def test_dollars_that_are_not_known_say_why() -> None:
    assert "not all of its devices had a price" in dollar_lines(replace(CHAT, nano_usd=None), RICH)[0]
    unpriced = replace(use(RICH.hosts[0]), bill=None)
    assert "no device of it had a price" in dollar_lines(unpriced, RICH)[0]


def test_a_page_begins_with_what_it_is_about() -> None:
    assert title_line(CHAT) == "meta-llama/Llama-3.1-70B-Instruct · vllm on gpu-a · $0.230 per Mtok · busy 87%"
    assert title_line(RICH.uses[0]) == "gpu-a · 2 accelerators · $0.230 per Mtok · util 83%"
