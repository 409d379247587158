"""Pages of the rules that no plugin has."""

import pytest

from pertoken.proof.recommendation import GO_BACK, LEAVE_HOST, built_in_page


@pytest.mark.parametrize("rule_id", [GO_BACK, LEAVE_HOST])
def test_a_page_names_its_rule_and_has_the_sections_of_every_rule(rule_id: str) -> None:
    page = built_in_page(rule_id)
    assert page is not None
    head, runs, *sections = page.split("\n\n")
    assert head.startswith(f"{rule_id}: ") and "no plugin" in runs
    titles = [section.partition("\n")[0] for section in sections]
    assert titles == ["Why it saves", "When it is wrong", "How to apply", "Sources"]
    assert all(section.partition("\n")[2].startswith("  ") for section in sections)
