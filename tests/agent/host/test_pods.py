import pytest

from pertoken.agent.host.owners import VARIABLES, workload_of
from pertoken.state.deployment import Workload

IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


def of_pod(namespace: str | None = "prod", **environment: str) -> Workload | None:
    assert set(environment) <= set(VARIABLES)
    return workload_of({**IN_A_POD, **environment}, lambda: namespace, "gpu-1")


@pytest.mark.parametrize(
    ("environment", "workload"),
    [
        ({"HOSTNAME": "llama-70b-6d4cf56db6-x7k2p"}, Workload("Deployment", "prod", "llama-70b")),
        ({"POD_NAME": "chat-5f7c9b8d4-zq8vw", "HOSTNAME": "gpu-1"}, Workload("Deployment", "prod", "chat")),
        ({"HOSTNAME": "qwen-kserve-6d4cf56db6-x7k2p"}, Workload("LLMInferenceService", "prod", "qwen")),
        (
            {"HOSTNAME": "agg-vllmworker-6d4cf56db6-x7k2p", "DYN_PARENT_DGD_K8S_NAME": "agg"},
            Workload("DynamoGraphDeployment", "prod", "agg"),
        ),
        ({"HOSTNAME": "llama-0"}, Workload(None, "prod", None)),
        ({"HOSTNAME": "gpu-1"}, Workload(None, "prod", None)),
        ({}, Workload(None, "prod", None)),
    ],
)
def test_the_object_is_that_of_the_pods_name_and_environment(environment: dict[str, str], workload: Workload) -> None:
    assert of_pod(**environment) == workload


def test_the_downward_api_goes_before_the_service_account() -> None:
    pod = of_pod(HOSTNAME="llama-70b-6d4cf56db6-x7k2p", POD_NAMESPACE="team-a")
    assert pod == Workload("Deployment", "team-a", "llama-70b")
    assert of_pod(None, HOSTNAME="llama-70b-6d4cf56db6-x7k2p") == Workload("Deployment", None, "llama-70b")


def test_a_node_with_a_name_like_a_pods_is_no_pod() -> None:
    node = "pool-6d4cf56db6-x7k2p"
    assert workload_of({**IN_A_POD, "HOSTNAME": node}, lambda: None, node) == Workload()


def test_a_process_outside_of_kubernetes_has_none() -> None:
    assert workload_of({"HOSTNAME": "llama-70b-6d4cf56db6-x7k2p"}, lambda: "prod", "gpu-1") is None
