"""A recommendation as files: what a person commits, in the shapes that the tools' public pages describe."""

import re
from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pertoken.advisor.changes.commands import changed
from pertoken.errors import BadInput
from pertoken.proof.recommendation import Edit, Recommendation, Variant
from pertoken.state.deployment import Workload
from pertoken.text.export import FileFormat, ServiceCost, file_of
from pertoken.units import NANO_USD
from tests.proof.rows import NOW, row

CHAT = Workload(kind="Deployment", name="chat", namespace="prod")
PATCH, UNDO = changed(CHAT, "vllm", ["--kv-cache-dtype", "fp8"], ("0.31.0", "0.32.0"))
COST = ServiceCost(("meta/llama-3.1-8b", "a|b"), 4, 8 * NANO_USD)
FORMS = (FileFormat.KUSTOMIZE, FileFormat.HELM, FileFormat.KEDA, FileFormat.HPA)


def proposing(**values: Any) -> Recommendation:
    (best, *_) = row().variants
    return replace(row(), variants=(replace(best, **values),))


def written(form: FileFormat, cost: ServiceCost = COST, **values: Any) -> tuple[list[str], Any]:
    """Return the comments and the object of a file."""
    text = file_of(proposing(**values), form, cost, NOW)
    return [line for line in text.splitlines() if line.startswith("#")], yaml.safe_load(text)


def test_kustomize_gets_the_patch_of_the_command_and_the_number_of_replicas() -> None:
    comments, values = written(FileFormat.KUSTOMIZE, commands=(PATCH, "drain it"), undo=(UNDO,), replicas=(4, 2))
    assert values["kind"] == "Kustomization"
    (patch,) = values["patches"]
    assert patch["target"] == {"kind": "Deployment", "name": "chat", "namespace": "prod"}
    operations = yaml.safe_load(patch["patch"])
    assert [operation["value"] for operation in operations] == ["IMAGE", "--kv-cache-dtype", "fp8"]
    assert values["replicas"] == [{"name": "chat", "count": 2}]
    assert "# 4 replicas cost $5,840 a month; 2, $2,920 a month." in comments
    assert "# To do by hand: drain it" in comments and any("Fill in IMAGE" in line for line in comments)


def test_helm_gets_values_of_the_production_stack() -> None:
    _, values = written(FileFormat.HELM, commands=(PATCH,), replicas=(4, 2))
    assert values["servingEngineSpec"]["modelSpec"] == [
        {"name": "chat", "replicaCount": 2, "vllmConfig": {"extraArgs": ["--kv-cache-dtype", "fp8"]}}
    ]


def test_keda_scales_between_priced_bounds_on_waiting_requests_of_the_models() -> None:
    comments, values = written(FileFormat.KEDA, replicas=(4, 2))
    spec = values["spec"]
    assert (values["kind"], spec["minReplicaCount"], spec["maxReplicaCount"]) == ("ScaledObject", 2, 4)
    assert "# At the least 2 replicas, $2,920 a month; at the most 4, $5,840 a month." in comments
    (trigger,) = spec["triggers"]
    query = trigger["metadata"]["query"]
    assert query == 'sum(pertoken_requests_waiting{model=~"meta/llama-3\\\\.1-8b|a\\\\|b"})'


def test_an_hpa_has_the_priced_bounds_and_is_valid_kubernetes() -> None:
    comments, values = written(FileFormat.HPA, replicas=(2, 4))
    kubernetes_validate.validate(values, "1.31", strict=True)
    spec = values["spec"]
    assert (values["kind"], spec["minReplicas"], spec["maxReplicas"]) == ("HorizontalPodAutoscaler", 2, 4)
    assert "# At the least 2 replicas, $2,920 a month; at the most 4, $5,840 a month." in comments
    assert '# Query of METRIC: sum(pertoken_requests_waiting{model=~"meta/llama-3\\\\.1-8b|a\\\\|b"})' in comments
    assert any("METRIC: the name under which your metrics adapter" in line for line in comments)


def test_an_hpa_neither_reaches_zero_replicas_nor_follows_a_week() -> None:
    with pytest.raises(BadInput, match="at least one replica; --as keda"):
        written(FileFormat.HPA, replicas=(1, 0))
    edit = Edit("service", "chat", "schedule", None, {"off": [1, 2], "asleep": [], "replicas": []})
    with pytest.raises(BadInput, match="cannot express; --as keda"):
        written(FileFormat.HPA, edits=(edit,), replicas=None)


def test_an_unknown_price_is_stated_and_is_no_zero() -> None:
    comments, _ = written(FileFormat.KEDA, replace(COST, nano_usd_per_hour=None), replicas=(4, 2))
    assert any("unknown: no device has a price" in line for line in comments)
    assert not any("$0" in line for line in comments)


def test_a_schedule_is_a_cron_trigger_for_each_interval_of_the_week_that_runs() -> None:
    nights = [hour for hour in range(168) if hour % 24 < 8 or hour % 24 >= 20]
    edit = Edit("service", "chat", "schedule", None, {"off": nights, "asleep": [], "replicas": []})
    comments, values = written(FileFormat.KEDA, edits=(edit,), replicas=None)
    spec = values["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"], len(spec["triggers"])) == (0, 4, 7)
    assert spec["triggers"][0] == {
        "type": "cron",
        "metadata": {"timezone": "UTC", "start": "0 8 * * 1", "end": "0 20 * * 1", "desiredReplicas": "4"},
    }
    assert any("0 replicas, $0" in line for line in comments), "what is off costs nothing"


def test_an_interval_that_runs_over_the_end_of_the_week_is_one_trigger() -> None:
    edit = Edit("service", "chat", "schedule", None, {"off": list(range(24, 48)), "asleep": [], "replicas": []})
    _, values = written(FileFormat.KEDA, edits=(edit,), replicas=None)
    (trigger,) = values["spec"]["triggers"]
    assert (trigger["metadata"]["start"], trigger["metadata"]["end"]) == ("0 0 * * 3", "0 0 * * 2")


def test_a_service_that_sleeps_is_not_scaled() -> None:
    edit = Edit("service", "chat", "schedule", None, {"off": [], "asleep": [1, 2], "replicas": []})
    with pytest.raises(BadInput, match="keeps its replicas"):
        written(FileFormat.KEDA, edits=(edit,), replicas=None)


@pytest.mark.parametrize("form", FORMS)
def test_a_change_that_a_form_cannot_express_is_refused_with_the_one_that_can(form: FileFormat) -> None:
    with pytest.raises(BadInput, match="--as issue"):
        written(form, commands=("start two servers",), replicas=None, edits=())


def test_what_proposes_nothing_has_no_file() -> None:
    silent = replace(row(), variants=(), reason="not measured")
    with pytest.raises(BadInput, match="proposes nothing: not measured"):
        file_of(silent, FileFormat.ISSUE, COST, NOW)


def test_an_issue_has_the_worth_the_commands_and_no_name_that_formats_or_mentions() -> None:
    hostile = replace(
        proposing(commands=(PATCH,), undo=(UNDO,)), target="@all <img src=x> [x](https://evil)\n# heading"
    )
    text = file_of(hostile, FileFormat.ISSUE, COST, NOW)
    assert f"    {PATCH}" in text and f"    {UNDO}" in text and "\nWorth a month, low / likely / high" in text
    prose = [line for line in text.splitlines() if not line.startswith("    ")]
    assert not [line for line in prose if re.search(r"(?<!\\)[<\[@]", line) or line == "# heading"]


@pytest.mark.parametrize("form", FORMS)
def test_a_hostile_title_stays_a_comment(form: FileFormat) -> None:
    title = "x\nkind: Secret\r\n---\n"
    variant = Variant("k", title, commands=(PATCH,), undo=(f"no\n{title}",), replicas=(4, 2), unpriced="a\nb: c")
    text = file_of(replace(row(), variants=(variant,), target=title), form, COST, NOW)
    assert len(list(yaml.safe_load_all(text))) == 1 and yaml.safe_load(text).get("kind") != "Secret"
