"""The table of claims: every row has its source, and a figure where it can be checked."""

from pertoken.advisor.rules.discovery import installed
from pertoken.catalog.claims import CHECKS, claims, references


def test_each_claim_has_a_source_a_date_a_reason_and_a_known_check() -> None:
    for claim in claims():
        assert claim.check in CHECKS and claim.source and claim.why.endswith(".") and claim.as_of.year >= 2020, claim.id


def test_ids_of_claims_are_unique() -> None:
    assert len({claim.id for claim in claims()}) == len(claims())


def test_a_claim_has_a_figure_and_its_unit_exactly_where_it_is_checkable() -> None:
    for claim in claims():
        assert (claim.claimed is not None) == bool(claim.unit) == (claim.check != "not checkable"), claim.id


def test_a_forecast_names_known_references_and_each_reference_is_used() -> None:
    named = {name for claim in claims() for name in claim.references}
    assert named == set(references())


def test_a_claim_names_rules_that_are_installed() -> None:
    names = {plugin.name for plugin in installed()}
    assert {rule for claim in claims() for rule in claim.rules} <= names


def test_a_word_selects_by_text_topic_and_rule_whatever_its_case() -> None:
    selected = {claim.id for claim in claims() if claim.mentions("BATCH")}
    assert {"batch-32-cost", "continuous-cost", "idle-products"} <= selected
