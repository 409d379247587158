"""The compose file: commands and files that are there, loopback alone, and the pages that it scrapes."""

from pathlib import Path

import yaml

from pertoken.cli import main
from pertoken.config import load

FOLDER = Path(__file__).parents[2] / "deploy/compose"


def test_its_commands_and_mounted_files_are_there() -> None:
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    for name in ("agent", "advisor"):
        command, *options = services[name]["command"]
        known = {option for parameter in main.commands[command].params for option in parameter.opts}
        assert command == name and {option for option in options if option.startswith("-")} <= known
        assert services[name]["cap_drop"] == ["ALL"] and services[name]["read_only"]
    assert "cap_add" not in services["advisor"], "the advisor has no right of the agent"
    mounted = [volume.split(":")[0] for service in services.values() for volume in service["volumes"]]
    assert all((FOLDER / path).exists() for path in mounted if path.startswith("."))


def test_prometheus_scrapes_the_addresses_of_the_settings_and_nothing_listens_elsewhere() -> None:
    settings = load(FOLDER / "pertoken.toml", {})
    listening = [settings.agent_metrics_listen, settings.advisor_metrics_listen]
    (job,) = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"{host}:{port}" for host, port in filter(None, listening)]
    assert settings.advisor_pages_listen == ("127.0.0.1", 9404)
    text = (FOLDER / "compose.yaml").read_text()
    assert "--web.listen-address=127.0.0.1:9090" in text and "GF_SERVER_HTTP_ADDR: 127.0.0.1" in text
    (source,) = yaml.safe_load((FOLDER / "grafana/datasources/prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://127.0.0.1:9090"
