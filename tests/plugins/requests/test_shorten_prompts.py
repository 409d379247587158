from dataclasses import replace

import pytest

from pertoken.plugins.requests.shorten_prompts import Options, shorten_prompts
from pertoken.rule import Demand, Fleet
from pertoken.testing import run
from tests.plugins.proposals import chat, refusal, yielded
from tests.savings.fleets import low_batch
from tests.state.fleets import measured as counted

LONG = {"prompt_tok_s": 4000, "generated_tok_s": 40, "cached_share": 0.02}


def served(prompt_len: float | None = 6000) -> Fleet:
    service = chat()
    demand = Demand(prompt_len=None if prompt_len is None else counted(prompt_len))
    return replace(service, services=(replace(service.services[0], demand=demand),))


def test_long_prompts_that_no_cache_holds_are_shortened_and_the_prefix_cache_is_another_way() -> None:
    (made,) = yielded(shorten_prompts, served(), low_batch(**LONG), options=Options())
    assert (made.risk, made.effort, made.excludes) == ("quality", "high", ("prefix-cache",))
    shorter = made.state.demand.prompt_len
    assert shorter.value == pytest.approx(4200) and not shorter.confirmed
    assert "an assumption: judge a sample; editing them may lose the 2% that hit the prefix cache now" in shorter.source


def test_a_number_that_a_person_supplies_is_priced_and_keeps_its_warning() -> None:
    (change,) = run(shorten_prompts, "prefill-heavy", kept=0.5).proposals[0].diff.changes
    assert change.after.confirmed and change.after.value == pytest.approx(3500)
    assert "editing them may lose the 35% that hit the prefix cache now" in change.after.source


@pytest.mark.parametrize(
    ("prompt_len", "changed", "code"),
    [
        (6000, {"busy": 0.01}, "hardly-busy"),
        (6000, {"prompt_tok_s": 399}, "outputs-dominate"),
        (6000, {"cached_share": 0.4}, "breaks-prefix-cache"),
        (None, {}, "length-unknown"),
    ],
)
def test_it_refuses_where_prompts_take_no_time_or_are_cached(
    prompt_len: float | None, changed: dict[str, float], code: str
) -> None:
    seen = low_batch(**LONG | changed)
    assert refusal(shorten_prompts, served(prompt_len), seen, options=Options())[0] == code
