"""Order and totals of advice."""

from dataclasses import replace

from pertoken.advisor.recommendation import State
from pertoken.tui.text.advice_columns import bankable, best_of_each_target, not_evaluated, open_advice, total
from tests.tui.reports import ADVICE, FP8, H200, MOVE, QUANTIZE, RELEASE, UNPRICED, USD


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
