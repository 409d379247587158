import pytest

from pertoken.plugins.model.smaller_model import smaller_model
from pertoken.rule import FEWEST, Model, Skip
from pertoken.testing import run
from tests.deployments import model
from tests.plugins.proposals import chat, proposals, yielded
from tests.savings.fleets import low_batch


def test_a_70b_is_replaced_by_the_8b_of_its_family_on_one_device_each() -> None:
    refused, made, wider = yielded(smaller_model, chat(2, model=model("Llama-3.1-70B")))
    assert refused.code == "no-published-student"
    assert [deployment.tp for deployment in wider.state.deployments] == [2, 2]
    assert (made.risk, made.effort, made.excludes) == (
        "quality",
        "high",
        ("mixture-of-experts", "prune", "route-requests"),
    )
    assert [(deployment.model.name, deployment.tp) for deployment in made.state.deployments] == [
        ("meta-llama/Llama-3.1-8B", 1)
    ] * 2
    assert made.state.replicas == FEWEST


def test_the_largest_smaller_models_are_variants_and_mixtures_are_left_to_their_own_rule() -> None:
    models = [
        proposal.deployments[0].model.name for proposal in proposals(smaller_model, chat(model=model("Qwen3-32B")))
    ]
    assert models == 2 * ["Qwen/Qwen3-14B", "Qwen/Qwen3-8B", "Qwen/Qwen3-4B"], "on one rank each, then on two"


def test_a_model_whose_family_has_only_older_ones_gets_the_newer_one_with_the_best_published_score() -> None:
    yielded_values = proposals(smaller_model, chat(2, model=model("Llama-3.3-70B")))
    refused = [value for value in yielded_values if isinstance(value, Skip)]
    states = [value for value in yielded_values if not isinstance(value, Skip)]
    assert {skip.code for skip in refused} == {"no-published-student", "older-model"}
    assert "Llama-3.1-8B" in refused[1].reason
    assert {state.deployments[0].model.name for state in states} == {"Qwen/Qwen3-32B"}


def test_a_model_under_a_narrower_licence_is_left_out() -> None:
    _, *states = proposals(smaller_model, chat(model=model("Qwen2.5-7B")))
    assert {state.deployments[0].model.name for state in states} == {"Qwen/Qwen2.5-1.5B", "Qwen/Qwen2.5-0.5B"}


def test_a_person_names_the_models_that_may_take_over() -> None:
    regime_name = "bandwidth-bound"
    models = [
        proposal.diff.changes
        for proposal in run(smaller_model, regime_name, models=["Qwen3-14B", "Qwen3-235B-A22B"]).proposals
    ]
    named = {change.after.name for changes in models for change in changes if change.field == "model"}
    assert named == {"Qwen/Qwen3-14B"}
    assert run(smaller_model, regime_name, models=["unheard-of"]).codes == ("no-smaller-model",)


@pytest.mark.parametrize(
    ("served", "busy", "code"),
    [
        (model("Qwen3-0.6B"), 0.6, "no-smaller-model"),
        (Model("secret"), 0.6, "size-unknown"),
        (model("Llama-3.3-70B"), 0.01, "hardly-busy"),
        (model("Llama-3.1-8B"), 0.6, "no-smaller-model"),
    ],
)
def test_it_refuses_without_a_smaller_model_or_without_load(served: Model, busy: float, code: str) -> None:
    *_, refused = proposals(smaller_model, chat(model=served), low_batch(busy=busy))
    assert refused.code == code


def test_published_students_replace_a_teacher_of_another_family_unless_their_licence_is_narrower() -> None:
    made = proposals(smaller_model, chat(model=model("DeepSeek-R1")))
    names = {state.deployments[0].model.name for state in made}
    assert names == {f"deepseek-ai/DeepSeek-R1-Distill-Qwen-{size}B" for size in (32, 14, 7)}, "the 8B is under Llama's"
