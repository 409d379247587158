from dataclasses import replace
from typing import Any

import pytest

from pertoken.catalog.knobs import flag_commands
from pertoken.plugins.engine.speculative_decoding import METHODS, speculative_decoding
from pertoken.testing import regimes, run
from tests.deployments import model
from tests.plugins.proposals import chat, proposals, refusal
from tests.savings.fleets import low_batch


def test_tokens_are_drafted_where_few_requests_leave_flops_idle() -> None:
    (after,) = proposals(speculative_decoding, chat(2), low_batch(tensor_active=0.05))
    assert {(deployment.speculative_method, deployment.num_speculative_tokens) for deployment in after.deployments} == {
        ("ngram", 3)
    }


def test_tgi_takes_only_the_number_of_speculative_tokens() -> None:
    (after,) = proposals(speculative_decoding, chat(engine="tgi"))
    assert (after.deployments[0].speculative_method, after.deployments[0].num_speculative_tokens) == (None, 3)


@pytest.mark.parametrize(
    "seen",
    [{"running": 90, "spec_acceptance_length": 2.9}, {"running": 2, "spec_acceptance_length": 1.2}],
    ids=["saturated", "refused"],
)
def test_drafting_is_turned_off_where_many_requests_run_or_drafts_are_refused(seen: dict[str, float]) -> None:
    (after,) = proposals(speculative_decoding, chat(num_speculative_tokens=3), low_batch(**seen))
    assert after.deployments[0].num_speculative_tokens == 0


@pytest.mark.parametrize(
    ("fields", "seen", "code"),
    [
        ({}, {"running": 90}, "saturated"),
        ({}, {"waiting": 3}, "saturated"),
        ({}, {"mfu": 0.4}, "no-spare-flops"),
        ({}, {"mfu": 0.02, "tensor_active": 0.4}, None),
        ({}, {"busy": 0.01}, "hardly-busy"),
        ({}, {"spec_acceptance_length": 2.0}, "drafts-already"),
        ({"num_speculative_tokens": 3}, {"spec_acceptance_length": 2.5}, "drafts-accepted"),
        ({"engine": "lmdeploy"}, {}, "no-flag"),
    ],
)
def test_it_refuses_where_drafts_cost_more_than_they_save(
    fields: dict[str, Any], seen: dict[str, float], code: str | None
) -> None:
    if code is None:
        assert len(proposals(speculative_decoding, chat(**fields), low_batch(**seen))) == 1
    else:
        assert refusal(speculative_decoding, chat(**fields), low_batch(**seen))[0] == code


def test_a_mixture_of_experts_drafts_for_one_or_two_requests_alone() -> None:
    moe = regimes()["moe"]
    assert run(speculative_decoding, moe).codes == ("mixture",)
    (service,) = moe.fleet.services
    seen = {key: evidence for key, evidence in moe.measured.items() if key[0] != "service"}
    seen["service", service.name] = low_batch(running=1.5, tensor_active=0.05)
    assert run(speculative_decoding, replace(moe, measured=seen)).proposals


@pytest.mark.parametrize("engine", METHODS)
def test_every_engine_it_proposes_for_has_flags_and_their_undo(engine: str) -> None:
    changes: dict[str, tuple[object, object]] = {"num_speculative_tokens": (None, 3)}
    if METHODS[engine] is not None:
        changes["speculative_method"] = None, METHODS[engine]
    written = flag_commands(engine, changes)
    assert len(written.apply) == len(written.undo) == len(changes) and not written.manual


def test_a_mixture_with_a_head_for_several_tokens_drafts_up_to_the_batch_with_a_published_gain() -> None:
    deepseek: dict[str, Any] = {"model": model("DeepSeek-V3"), "engine": "sglang", "weight_dtype": "fp8", "tp": 8}
    (after,) = proposals(speculative_decoding, chat(**deepseek), low_batch(running=32))
    drafted = after.deployments[0]
    assert (drafted.speculative_method, drafted.num_speculative_tokens) == ("eagle", 4)
    for seen in ({"running": 49}, {"running": 20, "waiting": 3}):
        assert refusal(speculative_decoding, chat(**deepseek), low_batch(**seen))[0] in ("large-batch", "saturated")
    alone: dict[str, Any] = {**deepseek, "engine": "trtllm", "model": model("DeepSeek-R1")}
    (after,) = proposals(speculative_decoding, chat(**alone), low_batch(running=1))
    assert (after.deployments[0].speculative_method, after.deployments[0].num_speculative_tokens) == ("mtp", 3)
    assert refusal(speculative_decoding, chat(**alone), low_batch(running=3))[0] == "mixture", "published at one alone"
    other: dict[str, Any] = {**deepseek, "engine": "vllm"}
    assert refusal(speculative_decoding, chat(**other), low_batch(running=32))[0] == "mixture", "no gain is published"


def test_a_batch_above_the_published_one_is_refused_whatever_its_devices() -> None:
    large: dict[str, Any] = {"model": model("Llama-3.1-405B"), "weight_dtype": "fp8", "tp": 8}
    assert proposals(speculative_decoding, chat(**large), low_batch(running=30))
    code, reason = refusal(speculative_decoding, chat(**large), low_batch(running=36))
    assert code == "large-batch" and "36 requests run at once" in reason and "above 32" in reason
    assert proposals(speculative_decoding, chat(2, **large), low_batch(running=36))
