"""A difference in words: replicas that change alike are one group, long lists are cut, hours are ranges."""

import pytest

from pertoken.advisor.changes.title import PricingChoices, groups, hours, listed, replica_words, shares, shown
from pertoken.rule import Schedule
from pertoken.state.diff import diff
from tests.advisor.builders import FLEET, after


def test_replicas_that_change_alike_are_one_group_that_counts_them() -> None:
    (every,) = groups(diff(FLEET, after("quantize weights")), FLEET)
    assert (len(every.deployments), every.replicas) == (4, " on 4 replicas")
    (group,) = groups(diff(FLEET, after("spot")), FLEET)
    assert (len(group.deployments), group.replicas) == (3, " on 3 of 4 replicas")
    assert set(group.changes) == {"placement.purchase"}


def test_a_service_of_one_deployment_has_no_replicas_to_name() -> None:
    (group,) = groups(diff(FLEET, FLEET.edit(FLEET.service("code").but(max_num_seqs=8))), FLEET)
    assert group.replicas == ""


def test_a_number_of_replicas_that_turned_out_to_stay_is_no_change() -> None:
    (fewest,) = (change for change in diff(FLEET, after("quantize weights")).changes if change.kind == "service")
    assert replica_words(fewest, FLEET, PricingChoices()) == ("4", "fewest")
    assert replica_words(fewest, FLEET, PricingChoices({str(fewest.target): (4, 2)}, priced=True)) == ("4", "2")
    assert replica_words(fewest, FLEET, PricingChoices(priced=True)) is None


def test_a_long_list_ends_with_how_many_more_there_are() -> None:
    assert listed(("a", "b", "a", "c")) == "a, b, c"
    assert listed(tuple("abcdef")) == "a, b, c, d and 2 more"


@pytest.mark.parametrize(
    ("value", "text"), [(None, "unknown"), (True, "on"), (0.5, "0.5"), ((), "none"), (("a", 1.0), "a, 1"), (7, "7")]
)
def test_values_are_shown_in_words(value: object, text: str) -> None:
    assert shown(value) == text


def test_shares_of_services_are_percentages_and_an_even_part_where_none_is_set() -> None:
    assert shares((("chat", 0.6), ("code", None))) == "60% of chat, an even part of code"
    assert shares(()) == "none"


def test_days_with_equal_hours_stand_together() -> None:
    weekdays = frozenset(24 * day + hour for day in range(5) for hour in (0, 1, 2, 5))
    text = "off in 20 hours a week (Mon Tue Wed Thu Fri 0-2, 5 h UTC)"
    assert hours(Schedule(weekdays, frozenset(), ())) == text
    assert hours(Schedule(frozenset(), frozenset({24}), ((0, 1), (1, 1)))) == (
        "asleep in 1 hours a week (Tue 0 h UTC), 1 replica in 2 hours a week (Mon 0-1 h UTC)"
    )
    assert hours(Schedule(frozenset(), frozenset(), ())) == "always on"
