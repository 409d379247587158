"""The Helm chart: rendered by a helper of the tests, of the published schemas, and equal to the manifests."""

import re
import shutil
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate
import pytest
import yaml

from pertoken import __version__
from pertoken.agent.exporter import TickTotals
from pertoken.config import load
from pertoken.reports.exporters import known_dollars
from pertoken.settings.alerts import DEFAULTS
from tests.deploy import kustomize
from tests.deploy.helm import by_helm, rendered
from tests.deploy.kustomize import Manifest
from tests.deploy.test_kubernetes import VERSIONS

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm/pertoken"
SETTINGS = '[agent]\ninterval = "10s"\n# "quoted" {{ not a template }}\n'
EVERYTHING: dict[str, Any] = {
    "settings": SETTINGS,
    "advisor": {"enabled": True},
    "agents": {"amd": {"enabled": True}, "gaudi": {"enabled": True}},
    "metrics": {"enabled": True, "labels": {"release": "prometheus"}},
}
OF_THE_OPERATOR = ("ServiceMonitor", "PrometheusRule")


def named(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    (match,) = (row for row in manifests if row["kind"] == kind and row["metadata"]["name"] == name)
    return match


def pod(manifest: Manifest) -> dict[str, Any]:
    spec: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["default", "everything"])
def test_each_manifest_is_of_the_published_schema(values: dict[str, Any], version: str) -> None:
    manifests = rendered(CHART, **values)
    for manifest in manifests:
        assert manifest["metadata"]["namespace"] == "monitoring"
        if manifest["kind"] not in OF_THE_OPERATOR:
            kubernetes_validate.validate(manifest, version, strict=True)
    kinds = {manifest["kind"] for manifest in manifests}
    assert {"DaemonSet", "ConfigMap", "ServiceAccount"} <= kinds
    assert {"Deployment", "Service", *OF_THE_OPERATOR} <= kinds if values else "Deployment" not in kinds


def test_helm_renders_the_same(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(EVERYTHING))
    manifests = by_helm(CHART, tmp_path / "values.yaml")
    if manifests is None:
        pytest.skip("needs helm")
    order = [(row["kind"], row["metadata"]["name"]) for row in rendered(CHART, **EVERYTHING)]
    assert sorted(order) == sorted((row["kind"], row["metadata"]["name"]) for row in manifests)
    for row in rendered(CHART, **EVERYTHING):
        assert named(manifests, row["kind"], row["metadata"]["name"]) == row


@pytest.mark.parametrize(("vendor", "folder"), [("nvidia", "base"), ("amd", "amd"), ("gaudi", "gaudi")])
def test_an_agent_of_the_chart_is_that_of_the_manifests(vendor: str, folder: str) -> None:
    values = {**EVERYTHING, "metrics": {"enabled": False}}
    chart = pod(named(rendered(CHART, **values), "DaemonSet", f"pertoken-agent-{vendor}"))
    (manifest,) = (row for row in kustomize.rendered(DEPLOY / "kubernetes" / folder) if row["kind"] == "DaemonSet")
    plain = pod(manifest)
    for spec in (chart, plain):
        spec.pop("serviceAccountName")
        for volume in spec["volumes"]:
            volume.get("hostPath", {}).pop("type", None)
        for mount in spec["containers"][0]["volumeMounts"]:
            mount.setdefault("readOnly", False)
    assert chart == plain


def test_the_advisor_of_the_chart_is_that_of_the_fleet(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY / "kubernetes", tmp_path / "kubernetes")
    for name in ("database-url", "advisor-url"):
        (tmp_path / "kubernetes/fleet" / name).write_text("postgresql://x@db.example.com/pertoken")
    values = {"advisor": {"enabled": True}}
    chart = pod(named(rendered(CHART, **values), "Deployment", "pertoken-advisor"))
    plain = pod(named(kustomize.rendered(tmp_path / "kubernetes/fleet"), "Deployment", "pertoken-advisor"))
    assert (chart.pop("serviceAccountName"), plain.pop("serviceAccountName")) == ("pertoken", "pertoken-agent")
    assert chart == plain


def test_settings_reach_the_config_map_as_they_are_written(tmp_path: Path) -> None:
    (text,) = named(rendered(CHART, settings=SETTINGS), "ConfigMap", "pertoken-settings")["data"].values()
    assert text == SETTINGS
    (tmp_path / "pertoken.toml").write_text(text)
    assert load(tmp_path / "pertoken.toml", {}).agent_interval == 10


def test_the_pages_service_reaches_the_advisor_which_serves_beyond_the_pod_with_a_login_and_tls_alone(
    tmp_path: Path,
) -> None:
    manifests = rendered(CHART, **EVERYTHING)
    service = named(manifests, "Service", "pertoken-pages")
    advisor = named(manifests, "Deployment", "pertoken-advisor")
    assert service["spec"]["selector"].items() <= advisor["spec"]["template"]["metadata"]["labels"].items()
    (port,) = service["spec"]["ports"]
    (text,) = named(rendered(CHART), "ConfigMap", "pertoken-settings")["data"].values()
    (tmp_path / "default.toml").write_text(text)
    assert load(tmp_path / "default.toml", {}).advisor_pages_listen == ("127.0.0.1", port["targetPort"])
    (block,) = re.findall(
        r"```toml\n(# In Kubernetes.*?)```", (DEPLOY.parent / "docs/team-pages.md").read_text(), re.DOTALL
    )
    (tmp_path / "beyond.toml").write_text(block)
    settings = load(tmp_path / "beyond.toml", {})
    assert settings.advisor_pages_listen == ("0.0.0.0", port["targetPort"])
    (mount,) = (row for row in pod(advisor)["containers"][0]["volumeMounts"] if row["name"] == "pages")
    files = [settings.advisor_pages_cert_file, settings.advisor_pages_key_file]
    files += [reader.token_file for reader in settings.advisor_pages_readers]
    assert files and all(str(file).startswith(f"{mount['mountPath']}/") for file in files)


def test_metrics_are_scraped_with_the_token_from_where_the_programs_serve_them() -> None:
    manifests = rendered(CHART, **EVERYTHING)
    monitor = named(manifests, "ServiceMonitor", "pertoken")
    (endpoint,) = monitor["spec"]["endpoints"]
    services = [row for row in manifests if row["kind"] == "Service" and row["metadata"]["name"] != "pertoken-pages"]
    assert {port["port"] for service in services for port in service["spec"]["ports"]} == {9877, 9878}
    for service in services:
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert {port["name"] for port in service["spec"]["ports"]} == {endpoint["port"]}
        pods = [row["spec"]["template"]["metadata"]["labels"] for row in manifests if "template" in row.get("spec", {})]
        assert any(service["spec"]["selector"].items() <= labels.items() for labels in pods)
    assert endpoint["authorization"]["credentials"] == {"name": "pertoken-metrics", "key": "token"}
    for row in manifests:
        if row["kind"] in ("DaemonSet", "Deployment"):
            mounts = {mount["name"]: mount["mountPath"] for mount in pod(row)["containers"][0]["volumeMounts"]}
            assert mounts["metrics"] == "/run/credentials/metrics"


def test_each_rule_is_over_metrics_that_are_exposed_and_there_is_one_for_each_default_alert() -> None:
    (group,) = named(rendered(CHART, **EVERYTHING), "PrometheusRule", "pertoken")["spec"]["groups"]
    known = {family.name for family in (*TickTotals.known(), *known_dollars())}
    used = [set(re.findall(r"pertoken_\w+", rule["expr"])) for rule in group["rules"]]
    assert all(names and names <= known for names in used)
    severities = [rule["labels"]["severity"] for rule in group["rules"]]
    assert sorted(severities) == sorted(alert.severity for alert in DEFAULTS.values())
    assert "{{ $labels.service }}" in group["rules"][0]["annotations"]["summary"]


@pytest.mark.parametrize(
    "values",
    [
        {"imagee": "x"},
        {"image": ""},
        {"advisor": {"enabled": "yes"}},
        {"agents": {"nvidia": {"enable": True}}},
        {"agents": {"amd": {"hostPaths": [{"name": "dev", "path": "dev", "readOnly": True}]}}},
        {"metrics": {"interval": "often"}},
        {"database": {"agentSecret": "No Name"}},
    ],
)
def test_values_that_are_wrong_are_refused_by_the_schema(values: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        rendered(CHART, **values)


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    assert yaml.safe_load((CHART / "values.yaml").read_text())["image"] == f"pertoken:{__version__}"
