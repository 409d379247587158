from pertoken.plugins.common import fewest_ranks, refusal, replaced
from tests.deployments import MARKET, model
from tests.plugins.proposals import chat
from tests.savings.fleets import low_batch

SMALL = model("Llama-3.1-8B")


def test_another_model_takes_the_fewest_ranks_that_hold_it_and_one_pipeline_stage() -> None:
    fewest, more = replaced(chat(pp=2).services[0], [SMALL], MARKET)
    assert [(one.deployments[0].model, one.deployments[0].tp, one.deployments[0].pp) for one in (fewest, more)] == [
        (SMALL, 1, 1),
        (SMALL, 2, 1),
    ]
    assert fewest_ranks(chat().services[0].deployments[0], model("Qwen3-235B-A22B"), MARKET) == 8


def test_where_ranks_or_the_device_are_not_known_only_the_model_changes() -> None:
    for unknown in ({"tp": None, "pp": None}, {"weight_dtype": None}):
        service = chat(**unknown).services[0]  # type: ignore[arg-type]
        assert replaced(service, [SMALL], MARKET) == [service.but(model=SMALL)]


def test_replicas_that_differ_and_models_of_unknown_size_are_not_replaced() -> None:
    assert refusal(low_batch(), chat(2).services[0], 0.05) is None
    mixed = chat(2).edit(chat(2).services[0].deployments[0].but(tp=1)).services[0]
    reason = refusal(low_batch(), mixed, 0.05)
    assert reason is not None and reason.code == "replicas-differ"


def test_every_model_is_tried_on_its_fewest_ranks_before_any_on_more() -> None:
    wide = chat(model=model("Llama-3.1-405B"), weight_dtype="fp8", tp=8).services[0]
    made = [service.deployments[0] for service in replaced(wide, [model("Llama-3.3-70B"), SMALL], MARKET)]
    tried = [("70B" if deployment.model != SMALL else "8B", deployment.tp) for deployment in made]
    assert tried == [(name, ranks) for ranks in (1, 2, 4, 8) for name in ("70B", "8B")]


def test_more_ranks_than_now_are_tried_only_where_a_model_needs_them() -> None:
    (needed,) = replaced(chat().services[0], [model("Qwen3-235B-A22B")], MARKET)
    assert needed.deployments[0].tp == 8
