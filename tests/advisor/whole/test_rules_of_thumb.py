"""Rules of thumb of an inference engineer, over demos and over every model of the catalog."""

import json
import time
from collections.abc import Iterator
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner

from pertoken.catalog.market import load_market
from pertoken.catalog.model_facts import common_scores, model_facts
from pertoken.cli import main
from pertoken.demo.making import make
from pertoken.plugins.model.mixture_of_experts import mixture_of_experts
from pertoken.plugins.model.prune import prune
from pertoken.plugins.model.smaller_model import smaller_model
from pertoken.rule import Rule, Service
from pertoken.store.connect.location import locate
from tests.demo.made import END
from tests.plugins.proposals import chat, proposals
from tests.savings.fleets import low_batch

MARKET = load_market()
SEEDS, HOSTS, DAYS = (11, 301), 8, 2
MAX_RUNNING = 32
"""Largest batch for which a gain of drafts is published."""
Row = dict[str, Any]


@cache
def rows(seed: int) -> tuple[Row, ...]:
    """Return the recommendations of a demo."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        make(locate(folder), seed, HOSTS, DAYS, END)
        patch.setattr(time, "time", lambda: END + 20.0)
        outcome = CliRunner().invoke(main, ["advise", "--json", "--db", folder], catch_exceptions=False)
        return tuple(json.loads(outcome.stdout)["recommendations"])


def variants() -> Iterator[tuple[Row, Row]]:
    for seed in SEEDS:
        yield from ((row, variant) for row in rows(seed) if row["state"] == "OPEN" for variant in row["variants"])


def changed(variant: Row, field: str) -> list[tuple[Any, Any]]:
    return [(edit["before"], edit["after"]) for edit in variant["edits"] if edit["field"] == field]


def assert_may_replace(present: str, proposed: str) -> None:
    before, after = model_facts()[present], model_facts()[proposed]
    assert after.released >= before.released, f"{proposed} is older than {present}"
    assert not after.licence.narrower_than(before.licence), f"{proposed} is under a narrower licence than {present}"
    sizes = [MARKET.model(name) for name in (present, proposed)]
    total, smaller = ((size.params_total or 0) if size else 0 for size in sizes)
    assert 3 * smaller >= total or common_scores(present, proposed), f"{proposed} has no score beside {present}"


def test_no_replacement_is_older_under_a_narrower_licence_or_far_smaller_without_a_published_score() -> None:
    replaced = [pair for _, variant in variants() for pair in changed(variant, "model")]
    assert replaced
    for present, proposed in replaced:
        assert_may_replace(present, proposed)


@pytest.mark.parametrize("rule", [smaller_model, mixture_of_experts, prune], ids=lambda rule: rule.rule_id)
def test_no_model_of_the_catalog_is_replaced_by_one_that_must_not_replace_it(rule: Rule) -> None:
    for present in MARKET.models:
        for state in proposals(rule, chat(model=present, tp=8), low_batch(running=30)):
            if isinstance(state, Service):
                assert_may_replace(present.name, state.deployments[0].model.name)


def test_a_replacement_and_weights_in_fewer_bits_state_the_published_evaluation_or_that_there_is_none() -> None:
    for row, variant in variants():
        if changed(variant, "model") or changed(variant, "weight_dtype"):
            assert any("published evaluation" in note for note in variant["against"]), (row["target"], variant["title"])
        if changed(variant, "model"):
            assert any(note.startswith("licence of ") for note in variant["against"]), (row["target"], variant["title"])


def test_four_bits_come_before_eight_only_where_they_save_15_percent_more() -> None:
    for seed in SEEDS:
        for row in rows(seed):
            narrow = [
                v for v in row["variants"] if {"int4", "fp4"} & {after for _, after in changed(v, "weight_dtype")}
            ]
            wide = [v for v in row["variants"] if {"fp8", "int8"} & {after for _, after in changed(v, "weight_dtype")}]
            saved = [max((saving(variant) for variant in kind), default=(0, 0)) for kind in (narrow, wide)]
            assert saved[0] == (0, 0) or saved[0] > tuple(1.15 * dollars for dollars in saved[1]), row["target"]


def saving(variant: Row) -> tuple[float, float]:
    bankable, capacity = (variant[name][1] if variant[name] else 0.0 for name in ("bankable", "capacity"))
    return bankable, capacity


def test_no_format_is_proposed_on_an_architecture_that_cannot_run_it() -> None:
    for row, variant in variants():
        for _, accelerator in changed(variant, "placement.accelerator"):
            dtype = next((after for _, after in changed(variant, "weight_dtype")), None)
            assert MARKET.not_run("vllm", dtype or "fp8", accelerator) is None, (row["target"], variant["title"])


def test_drafts_are_started_neither_above_the_published_batch_nor_on_saturated_engines() -> None:
    started = [
        row
        for row, variant in variants()
        if any(not old and new for old, new in changed(variant, "num_speculative_tokens"))
    ]
    assert started
    for row in started:
        seen = {line["series"]: line for line in row["evidence"]}
        assert seen["running"]["mean"] <= MAX_RUNNING, row["target"]
        assert "waiting" not in seen or seen["waiting"]["p95"] < 1, row["target"]
