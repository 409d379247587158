from typing import Any

import pytest

from pertoken.plugins.model.mixture_of_experts import mixture_of_experts
from pertoken.rule import FEWEST, Model
from pertoken.testing import run
from tests.deployments import model
from tests.plugins.proposals import chat, proposals, refusal
from tests.savings.fleets import low_batch

DENSE = model("Qwen3-32B")


def names(proposed: Any) -> list[tuple[str, int]]:
    return [
        (proposal.deployments[0].model.name.rpartition("/")[2], proposal.deployments[0].tp) for proposal in proposed
    ]


def test_a_large_dense_model_may_leave_its_work_to_a_mixture_of_its_family_first() -> None:
    services = proposals(mixture_of_experts, chat(model=DENSE, tp=1), low_batch(running=30))
    assert names(services)[0] == ("Qwen3-30B-A3B", 1)
    assert all(service.replicas == FEWEST for service in services)


def test_memory_is_not_reduced_few_requests_do_not_pay_for_more_devices() -> None:
    many, few = (run(mixture_of_experts, "bandwidth-bound", few_running=limit) for limit in (0.0, 8.0))
    assert "tiny-batch" in few.codes and "tiny-batch" not in many.codes
    assert any("gpt-oss-120b needs 4 devices instead of 2" in refusal.reason for refusal in few.refusals)
    larger = [
        proposal
        for proposal in many.proposals
        if ("tp", 2, 4) in {(c.field, c.before, c.after) for c in proposal.diff.changes}
    ]
    assert larger and all("right-size-parallelism" in proposal.excludes for proposal in larger)


def test_a_model_with_images_is_replaced_only_by_one_with_images() -> None:
    for present, images in (("Qwen3-32B", False), ("Qwen2.5-VL-32B", True)):
        services = proposals(mixture_of_experts, chat(model=model(present), tp=1), low_batch(running=30))
        assert services and all(("-VL-" in name) == images for name, _ in names(services))


def test_neither_an_older_mixture_nor_one_under_a_narrower_licence_takes_over() -> None:
    services = proposals(mixture_of_experts, chat(model=model("Llama-3.3-70B"), tp=2), low_batch(running=30))
    assert services and "Mixtral-8x7B" not in dict(names(services))
    apache = proposals(mixture_of_experts, chat(model=model("Qwen2.5-32B"), tp=1), low_batch(running=30))
    assert apache and not {"DeepSeek-V3", "MiniMax-M2.5"} & set(dict(names(apache)))


def test_a_person_names_the_mixtures_that_may_take_over() -> None:
    only = run(mixture_of_experts, "kv-bound", models=["gpt-oss-120b"]).proposals
    assert [{c.after.name for c in proposal.diff.changes if c.field == "model"} for proposal in only] == [
        {"openai/gpt-oss-120b"}
    ]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"model": model("Qwen3-30B-A3B")}, "mixture-already"),
        ({"model": model("Llama-3.1-8B")}, "small"),
        ({"model": Model("secret")}, "size-unknown"),
        ({"model": model("Llama-3.1-405B"), "weight_dtype": "fp32"}, "no-mixture"),
        ({"weight_dtype": None}, "dtype-unknown"),
    ],
)
def test_it_refuses_small_moe_and_unknown_models_and_those_that_fit_no_server(
    fields: dict[str, Any], code: str
) -> None:
    assert refusal(mixture_of_experts, chat(**fields))[0] == code
