from pertoken.plugins.common import smaller_models
from pertoken.rule import Skip
from pertoken.state.service import Service
from tests.deployments import MARKET, model
from tests.plugins.proposals import chat
from tests.savings.fleets import low_batch

SEEN = low_batch()


def smaller(service: Service, max_size: float = 0.5, min_busy: float = 0.01) -> list[str] | str:
    result = smaller_models(SEEN, service, MARKET, max_size=max_size, min_busy=min_busy)
    return result.code if isinstance(result, Skip) else [model.name for model in result]


def test_models_of_the_family_up_to_a_size_may_take_requests() -> None:
    service = chat(2).services[0]
    assert smaller(service) == ["meta-llama/Llama-3.1-8B", "meta-llama/Meta-Llama-3-8B"]
    assert smaller(service, max_size=0.01) == "no-smaller-model"


def test_a_service_that_is_hardly_busy_or_divided_already_is_left_alone() -> None:
    fleet = chat(2)
    assert smaller(fleet.services[0], min_busy=1.0) == "hardly-busy"
    other = fleet.deployments[0].but(model=model("Llama-3.1-8B"))
    assert smaller(fleet.edit(other).services[0]) == "already-routed"
