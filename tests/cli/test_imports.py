"""`pertoken import`: what it prints, and what it refuses."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pertoken.cli import main
from tests.agent.history.api_server import labels, serving
from tests.cli.builders import NOW
from tests.cli.builders import run as pertoken
from tests.scenario import LOW_BATCH_70B, seed


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["import", *map(str, arguments)])


def test_an_import_prints_each_host_the_missing_metrics_and_the_next_command(tmp_path: Path) -> None:
    gpu = {"UUID": "GPU-1", "Hostname": "gpu-1", "modelName": "NVIDIA H100", "instance": "10.0.0.5:9400"}
    page = {"model_name": "llama", "instance": "10.0.0.5:8000"}
    with serving(
        {
            labels("DCGM_FI_DEV_POWER_USAGE", **gpu): lambda ts: 300,
            labels("vllm:prompt_tokens_total", **page): lambda ts: ts,
            labels("vllm:generation_tokens_total", **page): lambda ts: ts // 2,
        }
    ) as url:
        done = run("prometheus", url, "--last", "10m", "--db", tmp_path / "db")
        again = run("prometheus", url, "--last", "10m", "--db", tmp_path / "db")
    assert done.exit_code == 0, done.output
    assert "gpu-1: 20" in done.output
    assert ", 1 GPU, llama; " in done.output
    assert "SM active (1): have dcgm-exporter expose DCGM_FI_PROF_SM_ACTIVE, or run the agent" in done.output
    assert f"`pertoken top --db {tmp_path / 'db'}`" in done.output
    assert again.exit_code == 0, again.output  # a minute may have passed: how much is new is up to the clock


def test_a_server_without_such_series_is_reported(tmp_path: Path) -> None:
    with serving({}) as url:
        done = run("prometheus", url, "--last", "10m", "--db", tmp_path / "db")
    assert done.exit_code == 0
    assert f"{url} has no series of vLLM, SGLang, dcgm-exporter or nvidia_gpu_exporter in that time." in done.output


def test_a_server_without_engines_is_answered_with_the_names_looked_for_and_found(tmp_path: Path) -> None:
    gpu = {"UUID": "GPU-1", "Hostname": "gpu-1", "instance": "10.0.0.5:9400"}
    with serving(
        {
            labels("DCGM_FI_DEV_POWER_USAGE", **gpu): lambda ts: 300,
            labels("our_llm_tokens_total", instance="10.0.0.5:8000"): lambda ts: ts,
        }
    ) as url:
        done = run("prometheus", url, "--last", "2h", "--header", "X-Scope-OrgID: team", "--db", tmp_path / "db")
    assert done.exit_code == 0, done.output
    assert "No series of an engine was found under vllm:" in done.output and "sglang:prompt_tokens_total" in done.output
    assert "Names that count tokens there: our_llm_tokens_total." in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["http://h", "--header", "X-Scope-OrgID"], "write it as 'NAME: VALUE'"),
        (["http://h", "--header", "Authorization: Bearer secret"], "a token comes from --token-file"),
        (["http://me:secret@h:9090"], "must not hold a user name or password"),
        (["prometheus:9090"], "is not a base URL"),
        (["http://h", "--last", "soon"], "soon"),
        (["http://h", "--last", "10s"], "must be at least 2m"),
        (["http://h", "--token-file", "a", "--token-env", "B"], "not from both"),
        (["http://h", "--db", "postgresql://h/d"], "import works on a folder"),
    ],
)
def test_impossible_input_is_refused_before_anything_is_contacted(arguments: list[str], message: str) -> None:
    done = run("prometheus", *arguments)
    assert done.exit_code == 2
    assert message in done.output
    assert "secret" not in done.output


def test_a_spend_log_gives_tenants_of_hours_before_the_gateway_was_read(tmp_path: Path) -> None:
    folder, log, settings = tmp_path / "db", tmp_path / "log.json", tmp_path / "pertoken.toml"
    seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=NOW // 3600 * 3600)
    ended = datetime.fromtimestamp(NOW // 3600 * 3600 - 1800, UTC).isoformat()
    request = {"model": LOW_BATCH_70B.model, "api_key": "h", "endTime": ended, "prompt_tokens": 1800 * 200}
    log.write_text(json.dumps([{**request, "request_id": "a", "metadata": {"user_api_key_alias": "alpha"}}]))
    to = ("--db", str(folder), "--config", str(settings))
    settings.write_text("")
    refused = run("litellm", log, *to)
    assert refused.exit_code == 2 and "name the proxy with --gateway" in refused.output
    settings.write_text('[[gateways]]\nurl = "http://gw:4000"\nkind = "litellm"\n')
    done = run("litellm", log, *to)
    assert done.exit_code == 0 and "1 requests" in done.output and "360k tokens of tenants" in done.output
    assert "not newer than what was imported before" in run("litellm", log, *to).output
    bill = pertoken("costs", "--by", "tenant", "--hours", "4", *to).output
    assert ["alpha", "$6.88", "50.0%", "360k"] in [line.split()[:4] for line in bill.splitlines()]
    assert pertoken("db", "check", "--db", str(folder)).exit_code == 0
    hosts = json.loads(pertoken("costs", "--by", "host", "--hours", "4", *to, "--json").stdout)
    assert len(hosts) == 1
