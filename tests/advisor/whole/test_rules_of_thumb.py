"""Rules of thumb of an inference engineer, over demos, typical situations and every model of the catalog."""

import json
import time
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner

from pertoken.catalog.market import load_market
from pertoken.catalog.model_facts import common_scores, model_facts
from pertoken.cli import main
from pertoken.cli.advise import values_of
from pertoken.demo.fleet import draw_fleet, truth
from pertoken.demo.making import make
from pertoken.plugins.model.mixture_of_experts import mixture_of_experts
from pertoken.plugins.model.prune import prune
from pertoken.plugins.model.smaller_model import smaller_model
from pertoken.rule import Rule, Service
from pertoken.store.connect.location import locate
from pertoken.testing import regimes
from pertoken.units import NANO_USD
from tests.advisor.whole.thumbs import THUMBS, Facts, Row, Thumb, changed, objections
from tests.demo.made import END
from tests.plugins.priced import rows as rows_of_regime
from tests.plugins.proposals import chat, proposals
from tests.savings.fleets import low_batch
from tests.testing.test_conformity import BUILT_IN

MARKET = load_market()
SEEDS, HOSTS, DAYS = (301, 302, 303), 10, 2
MORE = 1.4
"""Most of a found saving over that of the planted one: the advisor may find a still cheaper accelerator."""
NEED_WEEKS = ("silent-nights",)
"""Problems that a history of two days does not show."""


@cache
def report(seed: int) -> Any:
    """Return what `pertoken advise --json` prints of a demo."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        make(locate(folder), seed, HOSTS, DAYS, END)
        patch.setattr(time, "time", lambda: END + 20.0)
        outcome = CliRunner().invoke(main, ["advise", "--json", "--db", folder], catch_exceptions=False)
        return json.loads(outcome.stdout)


def open_rows(seed: int) -> list[Row]:
    return [row for row in report(seed)["recommendations"] if row["state"] == "OPEN"]


@pytest.mark.parametrize("seed", SEEDS)
def test_an_engineer_objects_to_no_row_of_a_demo(seed: int) -> None:
    troubles = report(seed)["fleet"]["troubles"]
    engines = {line["model"]: line["engine"] for line in report(seed)["fleet"]["deployments"]}
    down = frozenset(trouble["target"].partition(" on ")[0] for trouble in troubles if trouble["kind"] == "stuck")
    assert open_rows(seed) and list(objections(open_rows(seed), Facts(down=down, engines=engines))) == []


@pytest.mark.parametrize("rule", BUILT_IN, ids=[rule.rule_id for rule in BUILT_IN])
def test_an_engineer_objects_to_no_row_of_a_typical_situation(rule: Rule) -> None:
    for name in regimes():
        rows = json.loads(json.dumps([values_of(row) for row in rows_of_regime(name, rule)]))
        engines = {service.name: service.deployments[0].engine for service in regimes()[name].fleet.services}
        assert list(objections(rows, Facts(engines=engines))) == [], name


@pytest.mark.parametrize("seed", SEEDS)
def test_the_three_largest_problems_of_a_demo_are_found_by_a_rule_that_they_name(seed: int) -> None:
    problems = truth(draw_fleet(seed, HOSTS, DAYS, MARKET), MARKET)["problems"]
    planted = [problem for problem in problems if problem["kind"] not in NEED_WEEKS]
    open_targets = {(row["rule_id"], row["target"].partition(" on ")[0]) for row in open_rows(seed)}
    assert len(planted) >= 3
    for problem in sorted(planted, key=lambda problem: -problem["saves_usd_per_month"])[:3]:
        names = {(rule, problem["target"].partition(" on ")[0]) for rule in problem["rules"]}
        assert names & open_targets, problem


@pytest.mark.parametrize("seed", SEEDS)
def test_the_three_largest_savings_of_a_bill_are_worth_what_the_demo_knows(seed: int) -> None:
    problems = truth(draw_fleet(seed, HOSTS, DAYS, MARKET), MARKET)["problems"]
    bankable = [problem for problem in problems if problem["bankable"] and problem["kind"] not in NEED_WEEKS]
    assert bankable
    likely = {
        (row["rule_id"], row["target"]): row["variants"][0]["saving"]["net"][1] / NANO_USD
        for row in open_rows(seed)
        if row["variants"][0]["saving"] is not None
    }
    for problem in sorted(bankable, key=lambda problem: -problem["saves_usd_per_month"])[:3]:
        (saved_usd,) = (
            likely[rule, problem["target"]] for rule in problem["rules"] if (rule, problem["target"]) in likely
        )
        assert 0.95 < saved_usd / problem["saves_usd_per_month"] < MORE, problem


FINE: dict[str, Any] = {
    "title": "a change", "key": "a", "edits": [], "changes": [], "assumptions": [], "against": [], "saving": None,
    "if_confirmed": None, "replicas": None, "touches": [], "effort": "medium",
}  # fmt: skip
SAVES = {"net": [500e9] * 3, "capacity": [0] * 3}


def edit(field: str, before: Any, after: Any) -> dict[str, Any]:
    return {"field": field, "before": before, "after": after}


ABSURD: dict[str, tuple[dict[str, Any], dict[str, float]]] = {
    "older_model": ({"edits": [edit("model", "Qwen/Qwen3-32B", "meta-llama/Llama-3.1-8B")]}, {}),
    "narrower_licence": ({"edits": [edit("model", "Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-3B")]}, {}),
    "unscored_model": ({"edits": [edit("model", "meta-llama/Llama-3.3-70B", "HuggingFaceTB/SmolLM2-1.7B")]}, {}),
    "dearer_bill": ({"saving": {"net": [-9e9] * 3, "capacity": [0] * 3}}, {}),
    "no_offer": ({"edits": [edit("placement.accelerator", "L4", "H100 SXM5")], "saving": SAVES}, {}),
    "lone_replica": ({"replicas": [3, 1]}, {}),
    "down_service": ({"edits": [edit("kv_dtype", "bf16", "fp8")]}, {}),
    "drafts": ({"edits": [edit("num_speculative_tokens", 0, 3)]}, {"running": 40}),
    "format_on_architecture": (
        {"edits": [edit("weight_dtype", "bf16", "int4"), edit("placement.accelerator", "L4", "V100 SXM2 32GB")]}, {}
    ),
    "spot_while_waiting": ({"edits": [edit("placement.purchase", "on_demand", "spot")]}, {"waiting": 4}),
    "isolated_move": ({"touches": ["service:acme", "service:globex"]}, {}),
    "sleep_with_requests": ({"edits": [edit("schedule", {}, {"asleep": [], "off": [3]})]}, {}),
    "cache_with_room": ({"edits": [edit("kv_dtype", "bf16", "fp8")]}, {"kv_use": 0.2}),
    "unmarked_price": ({"assumptions": ["an H100 at $2/h, listed 60 days ago"]}, {}),
    "effort_for_little": ({"effort": "high", "saving": {"net": [40e9] * 3, "capacity": [0] * 3}}, {}),
    "silent_host": ({"touches": ["host:gpu-9"]}, {}),
}  # fmt: skip
"""A variant, and figures of its row, that each rule of thumb objects to."""


@pytest.mark.parametrize("thumb", THUMBS, ids=lambda thumb: thumb.__name__)
def test_each_rule_of_thumb_objects_to_what_it_is_about(thumb: Thumb) -> None:
    changes, figures = ABSURD.get(thumb.__name__, ({}, {}))
    variant: dict[str, Any] = {**FINE, **changes}
    evidence = [{"series": series, **dict.fromkeys(("mean", "p50", "p95"), size)} for series, size in figures.items()]
    row: dict[str, Any] = {
        "rule_id": "any", "target": "acme", "unconfirmed": None, "evidence": evidence, "prices": [],
        "variants": [variant],
    }  # fmt: skip
    if thumb.__name__ == "four_bits_first":
        variant = {**variant, "edits": [edit("weight_dtype", "bf16", "int4")], "saving": SAVES}
        row["variants"] = [variant, {**FINE, "edits": [edit("weight_dtype", "bf16", "fp8")], "saving": SAVES}]
    facts = Facts(
        down=frozenset({"acme"}), isolated=frozenset({"acme"}), silent_hosts=frozenset({"gpu-9"}),
        hours={"acme": [1.0] * 168},
    )  # fmt: skip
    assert thumb(row, variant, facts) is not None
    assert thumb({**row, "variants": [FINE], "target": "other"}, FINE, Facts()) is None


def test_two_rows_that_make_one_change_are_objected_to() -> None:
    row: dict[str, Any] = {
        "state": "OPEN",
        "rule_id": "a",
        "target": "acme",
        "unconfirmed": None,
        "evidence": [],
        "prices": [],
    }
    (objection,) = objections([{**row, "variants": [FINE]}, {**row, "rule_id": "b", "variants": [FINE]}], Facts())
    assert objection.startswith("twice: b and a")


def assert_may_replace(present: str, proposed: str) -> None:
    before, after = model_facts()[present], model_facts()[proposed]
    assert after.released >= before.released, f"{proposed} is older than {present}"
    assert not after.licence.narrower_than(before.licence), f"{proposed} is under a narrower licence than {present}"
    sizes = [MARKET.model(name) for name in (present, proposed)]
    total, smaller = ((size.params_total or 0) if size else 0 for size in sizes)
    assert 3 * smaller >= total or common_scores(present, proposed), f"{proposed} has no score beside {present}"


@pytest.mark.parametrize("rule", [smaller_model, mixture_of_experts, prune], ids=lambda rule: rule.rule_id)
def test_no_model_of_the_catalog_is_replaced_by_one_that_must_not_replace_it(rule: Rule) -> None:
    for present in MARKET.models:
        for state in proposals(rule, chat(model=present, tp=8), low_batch(running=30)):
            if isinstance(state, Service):
                assert_may_replace(present.name, state.deployments[0].model.name)


def test_a_replacement_and_weights_in_fewer_bits_state_the_published_evaluation_or_that_there_is_none() -> None:
    replaced = 0
    variants = [(row["target"], variant) for seed in SEEDS for row in open_rows(seed) for variant in row["variants"]]
    for target, variant in variants:
        if changed(variant, "model") or changed(variant, "weight_dtype"):
            replaced += 1
            assert any("published evaluation" in note for note in variant["against"]), (target, variant["title"])
        if changed(variant, "model"):
            assert any(note.startswith("licence of ") for note in variant["against"]), (target, variant["title"])
    assert replaced
