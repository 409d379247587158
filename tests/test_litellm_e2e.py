"""A real LiteLLM proxy before a real llama.cpp: two keys' tokens and dollars are those that their clients counted.

`PERTOKEN_E2E_LITELLM=1` runs it, with the program `litellm` (`pip install 'litellm[proxy]' prometheus_client` in an
environment of its own) on the path or named by `PERTOKEN_LITELLM`.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.error
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from sqlalchemy import func, select

from pertoken.store.schema import telemetry as t
from tests.llama import ALIAS, LlamaServer, free_port, write_model
from tests.recorded import agent_reading, scalar, until

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
litellm_settings:
  callbacks: [prometheus]
general_settings:
  custom_auth: auth.user_api_key_auth
"""
START_S, READ_S = 120.0, 90.0


@contextmanager
def litellm(folder: Path, engine_url: str) -> Iterator[str]:
    """URL of a proxy before an engine; ended afterwards."""
    assert PROGRAM, "install litellm[proxy], or name its program by PERTOKEN_LITELLM"
    folder.mkdir()
    (folder / "auth.py").write_text(AUTH)
    (folder / "config.yaml").write_text(CONFIG.format(model=ALIAS, url=engine_url))
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
    body = {"model": "chat", "messages": [{"role": "user", "content": "x " * words}], "max_tokens": 20}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    with urlopen(Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers), timeout=60) as reply:
        return int(json.load(reply)["usage"]["total_tokens"])


def pertoken(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "pertoken", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_keys_pay_for_what_their_clients_counted_and_the_rest_is_unattributed(tmp_path: Path) -> None:
    folder, settings = tmp_path / "db", tmp_path / "pertoken.toml"
    with LlamaServer(write_model(tmp_path / "tiny.gguf")) as server, litellm(tmp_path / "proxy", server.url) as url:
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
