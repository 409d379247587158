"""A real LiteLLM proxy before a real llama.cpp: two keys' tokens and dollars are those that their clients counted.

`PERTOKEN_E2E_LITELLM=1` runs it, with the program `litellm` (`pip install 'litellm[proxy]' prometheus_client` in an
environment of its own) on the path or named by `PERTOKEN_LITELLM`.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.request import Request, urlopen

import pytest
from sqlalchemy import func, select

from pertoken.store.schema import telemetry as t
from tests.llama import LlamaServer, free_port, write_model
from tests.recorded import agent_reading, scalar, until
from tests.scenario import LOW_BATCH_70B, seed

PROGRAM = os.environ.get("PERTOKEN_LITELLM") or shutil.which("litellm")
pytestmark = pytest.mark.skipif(
    os.environ.get("PERTOKEN_E2E_LITELLM") != "1",
    reason="PERTOKEN_E2E_LITELLM=1 runs it, with litellm[proxy] installed",
)
AUTH = """
from litellm.proxy._types import UserAPIKeyAuth

async def user_api_key_auth(request, api_key: str) -> UserAPIKeyAuth:
    team = {"sk-alpha": "alpha", "sk-beta": "beta", "sk-metrics": "metrics"}[api_key.removeprefix("Bearer ")]
    return UserAPIKeyAuth(api_key=api_key, key_alias=f"{team}-prod", team_id=team, team_alias=team)
"""
CONFIG = """
model_list:
  - model_name: chat
    litellm_params: {{model: openai/{model}, api_base: "{url}/v1", api_key: none}}
    model_info: {prices}
litellm_settings:
  callbacks: [prometheus]
general_settings:
  custom_auth: auth.user_api_key_auth
"""
START_S, READ_S = 400.0, 90.0
ALIAS = "behind-litellm"
"""Model of no other test, since the agent finds the servers of all that run on this host."""


@contextmanager
def litellm(folder: Path, engine_url: str, prices: Mapping[str, object] = MappingProxyType({})) -> Iterator[str]:
    """URL of a proxy before an engine, with the entry of a price map for its model; ended afterwards."""
    assert PROGRAM, "install litellm[proxy], or name its program by PERTOKEN_LITELLM"
    folder.mkdir()
    (folder / "auth.py").write_text(AUTH)
    (folder / "config.yaml").write_text(CONFIG.format(model=ALIAS, url=engine_url, prices=json.dumps(dict(prices))))
    url = f"http://127.0.0.1:{(port := free_port())}"
    log = folder / "proxy.log"
    environment = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MASTER_KEY": "sk-of-this-test",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [PROGRAM, "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port), "--telemetry", "False"],
            cwd=folder,
            env={**os.environ, **environment},
            stdout=output,
            stderr=output,
        )
    try:
        until(lambda: process.poll() is not None or _answers(f"{url}/health/liveliness"), "the proxy", START_S)
        assert process.poll() is None, log.read_text()
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=1) as reply:
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def chat(url: str, key: str, words: int) -> int:
    """Return tokens of one request, as its client received them."""
    return asked(url, key, words)[0]


def asked(url: str, key: str, words: int) -> tuple[int, float]:
    """Return tokens of one request, as its client received them, and the dollars that the proxy reports for it."""
    body = {"model": "chat", "messages": [{"role": "user", "content": "x " * words}], "max_tokens": 20}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    with urlopen(Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers), timeout=60) as reply:
        usd = float(reply.headers.get("x-litellm-response-cost") or 0)
        return int(json.load(reply)["usage"]["total_tokens"]), usd


def pertoken(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "pertoken", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_keys_pay_for_what_their_clients_counted_and_the_rest_is_unattributed(tmp_path: Path) -> None:
    folder, settings = tmp_path / "db", tmp_path / "pertoken.toml"
    with (
        LlamaServer(write_model(tmp_path / "tiny.gguf"), alias=ALIAS) as server,
        litellm(tmp_path / "proxy", server.url) as url,
    ):
        settings.write_text(
            f'[[gateways]]\nurl = "{url}"\nkind = "litellm"\n[tenants]\nbeta-prod = "search"\n'
            f'[agent]\naccess = [{{url = "{url}", token_env = "METRICS_TOKEN"}}]\n'
        )
        chat(url, "sk-alpha", 3)  # before the agent looks: counted by nobody
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("METRICS_TOKEN", "sk-metrics")
            patch.setenv("PERTOKEN_CONFIG", str(settings))
            with agent_reading(server, folder):
                tenant = t.counter_state.c.series.like("tenant_%")
                until(lambda: scalar(folder, select(func.count()).where(tenant)), "the proxy's first page", READ_S)
                clients: Counter[str] = Counter()
                for n in range(6):
                    clients["alpha-prod"] += chat(url, "sk-alpha", 5 + n)
                    clients["beta-prod"] += chat(url, "sk-beta", 40 + n) if n % 2 else 0
                past = server.complete([10 + n for n in range(30)], 25)
                counted = select(func.sum(t.engine_counter_rollup[60].c.delta)).where(
                    t.engine_counter_rollup[60].c.metric.like("tenant_%")
                )
                until(lambda: (scalar(folder, counted) or 0) >= clients.total(), "the proxy's next page", READ_S)
            pertoken("prices", "set", "1", "--for", "cpu", "--from", "ever", "--yes", "--db", str(folder))
            lines: list[dict[str, Any]] = json.loads(
                pertoken("costs", "--hours", "2", "--by", "tenant", "--json", "--db", str(folder))
            )
            models = json.loads(pertoken("costs", "--hours", "2", "--by", "model", "--json", "--db", str(folder)))
    by_key = {line["key"] or line["name"]: line for line in lines}
    assert {key: by_key[key]["tokens"] for key in clients} == dict(clients)
    assert by_key["beta-prod"]["team"] == "search"
    assert by_key["unattributed"]["tokens"] == past.prompt_tokens + past.generated_tokens
    (model,) = (line for line in models if line["name"] == ALIAS)
    tenants = [*clients, "unattributed"]
    assert sum(round(by_key[tenant]["usd"] * 1e9) for tenant in tenants) == round(model["usd"] * 1e9)
    paid = [by_key[client]["usd"] / by_key[client]["tokens"] for client in clients]
    assert paid[0] == pytest.approx(paid[1], rel=1e-3)


def test_the_proxy_reports_the_dollars_of_the_exported_price_map(tmp_path: Path) -> None:
    folder, end_ts = tmp_path / "db", int(time.time()) // 60 * 60
    seed(folder, replace(LOW_BATCH_70B, model=ALIAS), gpus=2, usd_per_hour=6.88, minutes=30, end_ts=end_ts)
    prices = json.loads(pertoken("export", "litellm", "--db", str(folder)))[ALIAS]
    costs = json.loads(pertoken("costs", "--by", "model", "--hours", "2", "--json", "--db", str(folder)))
    (measured,) = (line["usd_per_mtok"] for line in costs if line["name"] == ALIAS)
    with LlamaServer(write_model(tmp_path / "tiny.gguf"), alias=ALIAS) as server:
        with litellm(tmp_path / "unpriced", server.url) as url:
            assert asked(url, "sk-alpha", 9)[1] == 0, "what a self-hosted model costs without it"
        with litellm(tmp_path / "proxy", server.url, prices) as url:
            for words in (3, 60):
                tokens, usd = asked(url, "sk-alpha", words)
                assert usd == pytest.approx(tokens * measured / 1e6, rel=1e-4) and usd > 0
