"""Published facts of models: licences, release dates, scores."""

from datetime import date

import pytest

from pertoken.catalog.market import load_market
from pertoken.catalog.model_facts import (
    common_scores,
    licences,
    model_facts,
    quantized_note,
    quantized_scores,
    replacement_notes,
    replacement_refusal,
)
from pertoken.state.deployment import Model
from tests.deployments import model

MARKET = load_market()
LLAMA_31_70B, LLAMA_33_70B = "meta-llama/Llama-3.1-70B", "meta-llama/Llama-3.3-70B"
QWEN_7B, QWEN_3B, QWEN_HALF_B = (f"Qwen/Qwen2.5-{size}B" for size in ("7", "3", "0.5"))


def test_every_model_has_a_licence_a_release_date_and_scores_or_the_reason_why_none() -> None:
    assert set(model_facts()) == {listed.name for listed in MARKET.models}
    for facts in model_facts().values():
        assert date(2023, 1, 1) < facts.released <= date(2026, 11, 28) and facts.scores_source
        assert facts.scores or facts.scores_source.startswith("none found")
        assert all(0 < score <= 100 for score in facts.scores.values())
        assert {facts.pruned_from, *facts.distilled_from} - {None} <= set(model_facts())


def test_every_licence_and_every_evaluation_of_quantized_weights_names_its_source() -> None:
    assert all(licence.source and licence.as_of for licence in licences().values())
    for (name, dtype), score in quantized_scores().items():
        assert name in model_facts() and dtype in ("fp8", "int8", "int4", "fp4") and score.source


@pytest.mark.parametrize(
    ("proposed", "present"),
    [("qwen-research", "apache-2.0"), ("llama-3.1", "mit"), ("qwen", "llama-3.1"), ("deepseek", "apache-2.0")],
)
def test_a_licence_that_permits_less_in_any_respect_is_narrower(proposed: str, present: str) -> None:
    narrow, wide = licences()[proposed], licences()[present]
    assert narrow.narrower_than(wide) and not narrow.narrower_than(narrow)


def test_a_wider_licence_and_one_with_the_same_limits_are_not_narrower() -> None:
    for proposed, present in (("apache-2.0", "llama-3.1"), ("mit", "apache-2.0"), ("llama-3.1", "llama-3.3")):
        assert not licences()[proposed].narrower_than(licences()[present])


@pytest.mark.parametrize(
    ("present", "proposed", "size", "code"),
    [
        (LLAMA_33_70B, "mistralai/Mixtral-8x7B", 0.66, "older-model"),
        (QWEN_7B, QWEN_3B, 0.41, "narrower-licence"),
        (QWEN_7B, "a-model-of-our-own", 0.5, "licence-unknown"),
        ("Qwen/Qwen3-VL-235B-A22B", "Qwen/Qwen3-VL-8B", 0.04, "no-published-score"),
        ("a-model-of-our-own", QWEN_HALF_B, 0.1, "no-published-score"),
    ],
)
def test_a_replacement_is_refused_for_its_age_licence_or_missing_score(
    present: str, proposed: str, size: float, code: str
) -> None:
    refused = replacement_refusal(present, proposed, size)
    assert refused is not None and refused[0] == code and proposed in refused[1]


def test_a_newer_model_with_a_published_score_may_replace_one_and_an_older_one_may_run_beside_it() -> None:
    assert replacement_refusal(LLAMA_31_70B, "meta-llama/Llama-3.1-8B", 0.11) is None
    assert replacement_refusal(LLAMA_33_70B, "meta-llama/Llama-3.1-8B", 0.11) is not None
    assert replacement_refusal(LLAMA_33_70B, "meta-llama/Llama-3.1-8B", 0.11, beside=True) is None


def test_a_model_is_compared_by_its_name_in_the_catalog_also_where_an_engine_reports_an_alias() -> None:
    served = Model("meta-llama/Llama-3.3-70B-Instruct", params_total=70_600_000_000)
    refused = MARKET.unsuitable(served, model("Mixtral-8x7B"))
    assert refused is not None and refused[0] == "older-model"


def test_notes_state_the_scores_of_both_with_their_source_and_both_licences() -> None:
    evaluation, licence = replacement_notes(LLAMA_31_70B, "meta-llama/Llama-3.1-8B")
    assert "MMLU-Pro 66.4 → 48.3, GPQA 46.7 → 30.4" in evaluation and "MODEL_CARD" in evaluation
    assert "2024-07-23: Llama 3.1 Community License (up to 700 million monthly users" in licence
    assert licence.endswith("which permits what the Llama 3.1 Community License of meta-llama/Llama-3.1-70B does")
    assert "permits less than the Apache 2.0" in replacement_notes(QWEN_7B, QWEN_3B)[1]
    evaluation, licence = replacement_notes("a-model-of-our-own", QWEN_7B)
    assert evaluation.startswith("no published evaluation of both") and licence.endswith(
        "that of a-model-of-our-own is not known"
    )


def test_a_note_on_quantized_weights_states_the_evaluation_or_that_none_was_found() -> None:
    assert "OpenLLM v1 average 84.4 → 84.29" in quantized_note(LLAMA_31_70B, "fp8")
    assert quantized_note(LLAMA_33_70B, "fp8").startswith("no published evaluation")


def test_scores_are_common_only_under_one_name_of_a_benchmark() -> None:
    assert list(common_scores(LLAMA_31_70B, LLAMA_33_70B)) == ["MMLU-Pro"], "GPQA and GPQA Diamond are two benchmarks"


def test_published_checkpoints_are_found_by_the_model_that_they_were_pruned_from() -> None:
    (pruned,) = MARKET.pruned_models(model("Llama-3.3-70B"))
    assert pruned.name == "nvidia/Llama-3_3-Nemotron-Super-49B-v1" and not MARKET.pruned_models(pruned)


def test_published_students_are_found_by_their_teacher_and_named_with_score_and_licence() -> None:
    first, *others = MARKET.students(Model("deepseek-ai/DeepSeek-R1-0528"))
    assert (first.name, len(others)) == ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", 4)
    score, licence, student = MARKET.published(model("DeepSeek-R1"), first)
    assert "GPQA Diamond 71.5 → 62.1, MATH-500 97.3 → 94.3" in score and "MIT" in licence
    assert student == f"{first.name} is a published student of deepseek-ai/DeepSeek-R1"
    assert not MARKET.students(model("Llama-3.3-70B"))
