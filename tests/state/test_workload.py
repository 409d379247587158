import pytest

from pertoken.state.deployment import Workload, parsed


@pytest.mark.parametrize(
    "workload", [Workload("Deployment", "prod", "llama-70b"), Workload(), Workload(None, "prod", None)]
)
def test_a_workload_is_read_back_from_its_text(workload: Workload) -> None:
    assert parsed(str(workload)) == workload


@pytest.mark.parametrize("text", [None, 7, "", "Deployment", "a b/c/d", "a b c/d"])
def test_anything_else_is_no_workload(text: object) -> None:
    assert parsed(text) is None
