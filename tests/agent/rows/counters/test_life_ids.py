"""Ids of lives."""

from pertoken.agent.rows.counters import boot_life, comparable, is_page_life, page_life, process_life


def test_lives_of_this_host_are_positive_and_those_that_a_page_reveals_negative() -> None:
    host = [boot_life("b"), process_life("b", 1), process_life("b", 2), process_life("c", 1)]
    assert all(life is not None and life > 0 for life in host) and len(set(host)) == 4
    assert page_life(1) < 0 and is_page_life(page_life(1)) and not is_page_life(host[0])


def test_an_incomplete_identity_has_no_life() -> None:
    assert (boot_life(None), process_life(None, 1), process_life("b", None)) == (None, None, None)


def test_only_lives_of_one_kind_of_evidence_can_be_compared() -> None:
    process, page = process_life("b", 1), page_life(1)
    assert comparable(process, process_life("b", 2)) and comparable(page, page_life(2))
    assert not comparable(process, page) and not comparable(process, None)
