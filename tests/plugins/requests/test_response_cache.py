from dataclasses import replace

import pytest

from pertoken.plugins.requests.response_cache import response_cache
from pertoken.rule import Proposal, to
from pertoken.testing import run
from tests.advisor.gathered import advised, gathered
from tests.plugins.proposals import chat, refusal, yielded
from tests.savings.fleets import low_batch


def shares(regime: str, **options: float) -> list[tuple[float, bool]]:
    """Return the shares that are proposed, and whether each is priced."""
    (changes,) = zip(
        *(proposal.diff.changes for proposal in run(response_cache, regime, **options).proposals), strict=True
    )
    return [(round(change.after.value, 4), change.after.confirmed) for change in changes]


def test_without_a_count_of_repeats_the_break_even_is_shown_for_exact_and_for_semantic_hits() -> None:
    assert shares("bandwidth-bound") == [(0.099, False), (0.18, False)]
    first = yielded(response_cache, chat(), low_batch())[0]
    assert isinstance(first, Proposal) and (first.risk, first.effort) == ("quality", "high")
    source = first.state.demand.response_cache_share.source  # type: ignore[union-attr]
    assert "an assumption: count them at your gateway" in source and "it pays above 0.1% of exact repeats" in source


def test_a_share_that_a_person_supplies_is_priced_less_the_cost_of_look_ups() -> None:
    assert shares("bandwidth-bound", repeat_share=0.12) == [(0.119, True)]
    assert shares("bandwidth-bound", similar_share=0.3, similar_lookup_cost=0.1) == [(0.2, True)]
    assert shares("bandwidth-bound", repeat_share=0.12, similar_share=0.3) == [(0.119, True), (0.28, True)]


def test_hits_below_the_cost_of_look_ups_are_refused_with_the_share_from_which_it_pays() -> None:
    (only,) = run(response_cache, "bandwidth-bound", similar_share=0.1, similar_lookup_cost=0.12).refusals
    assert only.code == "look-ups-cost-more"
    assert only.reason.startswith("10.0% of its requests are semantic hits: it pays above 12.0%")


def test_tenants_that_share_nothing_share_no_answers() -> None:
    result = run(response_cache, "multi-tenant")
    assert [refusal.code for refusal in result.refusals] == ["isolated"]
    assert {proposal.target.name for proposal in result.proposals if proposal.target} == {"globex"}


@pytest.mark.parametrize("busy", [0.0, 0.04])
def test_it_refuses_a_service_with_hardly_any_requests(busy: float) -> None:
    assert refusal(response_cache, chat(), low_batch(busy=busy))[0] == "hardly-busy"


def test_it_refuses_a_second_cache() -> None:
    service = chat()
    cached = service.edit(service.services[0].serving(response_cache_share=to(0.2)))
    assert refusal(response_cache, cached) == ("cached-already", "a response cache already answers 20% of its requests")


@pytest.mark.parametrize("supplied", [False, True])
def test_advice_has_money_in_it_only_where_a_person_supplied_the_share(supplied: bool) -> None:
    state = gathered(chat())
    rule = response_cache.configured({"repeat_share": 0.3})
    configured = frozenset({"response-cache"} if supplied else ())
    (row,) = advised(replace(state, configured_rules=configured), rule)
    assert row.best is not None and row.best.title == "response-cache share 0.299"
    assert (row.best.capacity is not None, row.best.break_even is None) == (supplied, supplied)
    assert (row.best.unpriced is None) == supplied
