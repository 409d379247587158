"""Published facts refuse proposals of any rule."""

from dataclasses import replace

from pertoken.advisor.checks import published_notes, refusal_by_facts
from pertoken.rule import Placement
from tests.deployments import MARKET, model
from tests.savings.fleets import replicas

V100 = Placement(accelerator="V100 SXM2 32GB")


def test_a_format_that_does_not_run_on_a_device_is_refused_whichever_side_of_it_changes() -> None:
    before = replicas(1)
    (chat,) = before.services
    for service in (chat.on(V100), chat.but(weight_dtype="int4").on(V100), chat.but(engine="an-engine-of-our-own")):
        reason = refusal_by_facts(before, before.edit(service), MARKET)
        assert reason is not None and reason.code == "format-not-run"
    for service in (chat.but(weight_dtype="fp8"), chat.on(Placement(accelerator="L40S")), chat.but(tp=1)):
        assert refusal_by_facts(before, before.edit(service), MARKET) is None


def test_a_combination_that_runs_already_is_not_questioned() -> None:
    fleet = replicas(1)
    (now,) = fleet.services[0].deployments
    before = fleet.replace(now, replace(now, engine="an-engine-of-our-own", weight_dtype="int4"))
    (chat,) = before.services
    assert refusal_by_facts(before, before.edit(chat.but(max_num_seqs=64)), MARKET) is None


def test_a_model_that_published_facts_speak_against_is_refused_unless_a_person_chose_it() -> None:
    before = replicas(1)
    (chat,) = before.services
    after = before.edit(chat.but(model=model("Mixtral-8x7B")))
    reason = refusal_by_facts(before, after, MARKET)
    assert reason is not None and reason.code == "older-model"
    assert refusal_by_facts(before, after, MARKET, accepted=True) is None
    passed = replace(before, services=(replace(chat, quality_passed=("model=Mixtral-8x7B",)),))
    assert refusal_by_facts(passed, passed.edit(passed.services[0].but(model=model("Mixtral-8x7B"))), MARKET) is None


def test_an_older_model_may_take_some_requests_beside_the_present_one() -> None:
    before = replicas(1)
    (now,) = before.services[0].deployments
    small = now.but(model=model("Llama-3.1-8B"), tp=1)
    split = before.replace(now, now.serving_share(0.6), small.serving_share(0.4))
    assert refusal_by_facts(before, split, MARKET) is None
    assert any("MMLU-Pro 68.9 → 48.3" in note for note in published_notes(before, split, MARKET))


def test_notes_name_the_evaluation_of_fewer_bits_and_nothing_else() -> None:
    before = replicas(2)
    (chat,) = before.services
    assert len(published_notes(before, before.edit(chat.but(weight_dtype="int4")), MARKET)) == 1
    assert published_notes(before, before.edit(chat.but(tp=1)), MARKET) == ()


def test_notes_of_an_upgrade_state_the_releases_in_between_and_those_of_mtp_its_published_gain() -> None:
    fleet = replicas(1)
    (now,) = fleet.services[0].deployments
    before = fleet.replace(now, replace(now, engine_version="0.7.0"))
    (chat,) = before.services
    upgraded = published_notes(before, before.edit(chat.but(engine_version="0.11.0")), MARKET)
    assert [note.split(" (")[0] for note in upgraded] == ["vllm 0.8.0", "vllm 0.11.0"]
    deepseek = fleet.replace(now, replace(now, engine="sglang", model=model("DeepSeek-V3")))
    drafting = deepseek.services[0].but(speculative_method="eagle", num_speculative_tokens=4)
    assert any("multi-token prediction" in note for note in published_notes(deepseek, deepseek.edit(drafting), MARKET))
