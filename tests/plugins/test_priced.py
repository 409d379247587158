"""Money, offers and verdicts of each built-in rule in each typical situation, and rules of thumb that no row breaks."""

from collections import defaultdict
from functools import cache

import pytest

from pertoken.catalog.offers import ANYWHERE
from pertoken.proof.recommendation import Recommendation, State, Variant
from pertoken.testing import regimes
from pertoken.text.advice_table import HOUR_RATE, folded
from tests.plugins.priced import FILE, cells, rows
from tests.savings.test_relocation import states_all
from tests.testing.test_conformity import BUILT_IN

RULES = {rule.rule_id: rule for rule in BUILT_IN}
Cell = tuple[str, str]
"""Rule and situation."""


@cache
def table() -> tuple[tuple[Cell, tuple[Recommendation, ...]], ...]:
    return tuple(((name, regime), rows(regime, rule)) for name, rule in RULES.items() for regime in regimes())


def open_variants() -> list[tuple[Cell, Variant]]:
    proposed = [(cell, row) for cell, made in table() for row in made if row.state is State.OPEN]
    return [(cell, variant) for cell, row in proposed for variant in row.variants]


def test_money_offer_and_verdict_of_each_cell_are_as_recorded() -> None:
    assert cells() == FILE.read_text().splitlines(), "read the difference, then run `python -m tests.plugins.priced`"


QUESTIONED = {
    ("speculative-decoding", "moe"): None,
    ("speculative-decoding", "saturated"): None,
    ("speculative-decoding", "embedding"): None,
    ("use-spot", "saturated"): None,
    ("use-spot", "owned"): None,
    ("use-spot", "spot"): None,
    ("scale-replicas", "saturated"): None,
    ("scale-to-zero", "steady"): None,
    ("quantize-weights", "embedding"): None,
    ("quantize-kv", "idle"): None,
    ("quantize-kv", "prefill-heavy"): None,
    ("shorten-prompts", "embedding"): None,
    ("release-idle", "saturated"): None,
    ("consolidate", "multi-tenant"): None,
    ("change-provider", "multi-tenant"): "if confirmed | aws",
    ("change-provider", "saturated"): "if confirmed | aws",
    ("stuck-engine", "stuck"): "unpriced | restart",
    ("quantize-weights", "saturated"): "if confirmed | weights bf16 → fp8",
    ("quantize-weights", "one-at-a-time"): "+$695–1,860–2,704 | weights bf16 → int4",
    ("continuous-batching", "one-at-a-time"): "+$2,966–3,411–3,755 | batch limit 1 → 8",
    ("smaller-instance", "embedding"): "$3,143–3,235–3,328 | g5.16xlarge → g5.8xlarge",
    ("response-cache", "embedding"): "unpriced",
}
"""Cells that an engineer would question, with what each begins with; None: nothing is proposed."""


@pytest.mark.parametrize("questioned", QUESTIONED, ids=" × ".join)
def test_a_cell_that_an_engineer_would_question_is_as_expected(questioned: Cell) -> None:
    start = f"{questioned[0]} × {questioned[1]}: "
    lines = [line.removeprefix(start) for line in FILE.read_text().splitlines() if line.startswith(start)]
    expected = QUESTIONED[questioned]
    proposed = [line for line in lines if " | " in line]
    assert not proposed if expected is None else any(line.startswith(expected) for line in proposed), lines


# -- rules of thumb ------------------------------------------------------------------------------------------------


def test_a_bill_that_rises_is_in_no_saving() -> None:
    assert not [cell for cell, variant in open_variants() if variant.saving and variant.pays_more and variant.uncounted]
    dearer = [cell for cell, made in table() for row in made if row.pays_more and row.counted]
    assert not dearer


def test_another_instance_that_is_priced_is_named_with_its_provider() -> None:
    for cell, variant in open_variants():
        elsewhere = {edit.field for edit in variant.edits if edit.field.startswith("placement.")}
        api = any(edit.after == "per_token" for edit in variant.edits)
        if variant.saving is not None and elsewhere and not api:
            assert " × " in variant.title and " at " in variant.title, (cell, variant.title)


def test_each_rule_that_changes_provider_or_region_states_what_moving_costs() -> None:
    moving = {}
    for (name, regime), variant in open_variants():
        placement = {
            edit.field.removeprefix("placement."): edit for edit in variant.edits if "placement." in edit.field
        }
        if any(part in placement and placement[part].after not in (None, ANYWHERE) for part in ("provider", "region")):
            moving[name, regime] = variant
        else:
            assert not variant.moving, (name, regime)
    assert {name for name, _ in moving} >= {"change-provider"}
    for cell, variant in moving.items():
        is_api = any(edit.after == "per_token" for edit in variant.edits)
        assert states_all(variant.moving, is_api=is_api), (cell, variant.moving)


def test_a_single_replica_that_is_left_is_never_without_a_word() -> None:
    for cell, variant in open_variants():
        if variant.saving is not None and variant.replicas is not None and variant.replicas[1] == 1:
            assert any("replica" in line for line in variant.against), (cell, variant.title)


def test_fewer_bits_than_eight_never_come_first_within_15_percent() -> None:
    for cell, made in table():
        for row in made:
            bits = {
                str(edit.after): variant for variant in row.variants for edit in variant.edits if "dtype" in edit.field
            }
            if row.best is not None and "int4" in bits and "fp8" in bits and row.best is bits["int4"]:
                four, eight = (bits[name].saving for name in ("int4", "fp8"))
                assert four is not None and eight is not None
                assert sum(four.rank) > 1.15 * sum(eight.rank), cell


def test_spot_is_for_nothing_that_waits_and_speculation_for_no_saturated_mixture_or_encoder() -> None:
    for (name, regime), variant in open_variants():
        waiting = regimes()[regime].of("service", next(iter(regimes()[regime].fleet.service_of), "")).peek("waiting")
        if waiting is not None and waiting.p95 >= 1:
            assert not any(edit.after == "spot" for edit in variant.edits), regime
            assert name != "speculative-decoding" or any("0" in str(edit.after) for edit in variant.edits), regime


def test_no_two_rules_make_one_change() -> None:
    by_regime: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for (name, regime), variant in open_variants():
        by_regime[regime][variant.key].add(name)
    twice = {
        (regime, *sorted(names)) for regime, keys in by_regime.items() for names in keys.values() if len(names) > 1
    }
    assert not twice


def test_days_of_work_for_less_than_a_hundred_dollars_a_month_are_folded_away() -> None:
    for cell, made in table():
        shown = folded([row for row in made if row.state is State.OPEN], (), HOUR_RATE).shown
        for row in shown:
            assert row.best is not None
            savings = [saving for saving in (row.best.saving, row.best.if_confirmed) if saving is not None]
            monthly = max(max(saving.net[1], saving.capacity[1]) for saving in savings)
            assert row.best.effort != "high" or monthly >= 100e9, cell
