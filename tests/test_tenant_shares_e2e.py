"""Two tenants of real engines: shares by kind of token agree with the device time that each takes alone.

`PERTOKEN_E2E_SHARES=1` runs it, on a machine that does little else: the servers' own times are compared. llama.cpp runs
in any environment of the tests. Behind LiteLLM the engines need `litellm[proxy]` (see `tests.test_litellm_e2e`), and
vLLM needs `python -m tests.vllm`, too; they are skipped without them.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Protocol
from urllib.request import Request, urlopen

import pytest
from sqlalchemy import func, select

from pertoken.costs.hours import ModelHour, ModelHours
from pertoken.costs.ledger import NO_TIMES, TokenWeights, split, token_weights
from pertoken.costs.spend import attribute
from pertoken.store.schema import telemetry as t
from pertoken.units import NANO_USD
from pertoken.window.tenants import Tenant, TenantTokens
from tests.llama import LlamaServer, Shape, write_model
from tests.recorded import agent_reading, scalar, until
from tests.test_litellm_e2e import ALIAS, PROGRAM, READ_S, litellm, pertoken
from tests.vllm import FOLDER, VllmServer
from tests.vllm import write_model as write_vllm_model

SHAPE = Shape(width=512, heads=8, layers=4, hidden=16_384)
"""Attention to 1,650 tokens of context is 6 % of the arithmetic of a step, as in Llama 3 8B. With `hidden` 2048 it is
40 %."""
ROUNDS = 7
TOLERANCE = 0.15
CONTENT_ONLY = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""Chat template that adds no token."""
KEYS = {"agents": "sk-alpha", "writers": "sk-beta"}
ALIASES = {"agents": "alpha-prod", "writers": "beta-prod"}
"""Names of these keys in LiteLLM."""
pytestmark = pytest.mark.skipif(
    os.environ.get("PERTOKEN_E2E_SHARES") != "1", reason="PERTOKEN_E2E_SHARES=1 runs it, on a machine that is idle"
)
_numbers = count()


@dataclass(frozen=True)
class Counts:
    """Tokens of one request, as its client received them."""

    prompt: int
    generated: int


class Client(Protocol):
    """One tenant's way to a server."""

    def request(self, prompt: list[int], generated: int) -> Counts:
        """Send one request."""

    def times(self) -> tuple[float, float, float]:
        """Return the server's seconds of prefill and of decode, and its cached tokens, all so far."""


@dataclass(frozen=True)
class LlamaClient:
    """Sends to llama.cpp itself."""

    server: LlamaServer

    def request(self, prompt: list[int], generated: int) -> Counts:
        usage = self.server.complete(prompt, generated)
        return Counts(usage.prompt_tokens, usage.generated_tokens)

    def times(self) -> tuple[float, float, float]:
        names = ("prompt_seconds_total", "tokens_predicted_seconds_total", "prompt_tokens_cached_total")
        prefill_s, decode_s, cached = map(self.server.seconds, names)
        return prefill_s, decode_s, cached


@dataclass(frozen=True)
class ProxiedClient:
    """Sends to an engine by LiteLLM with a key of its own; each letter is a token."""

    server: LlamaServer | VllmServer
    url: str
    key: str

    def request(self, prompt: list[int], generated: int) -> Counts:
        content = "".join(chr(33 + token % 90) for token in prompt)
        body = {"model": "chat", "messages": [{"role": "user", "content": content}], "max_tokens": generated}
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        sent = json.dumps(body | {"min_tokens": generated, "ignore_eos": True}).encode()
        with urlopen(Request(f"{self.url}/v1/chat/completions", sent, headers), timeout=300) as reply:
            usage = json.load(reply)["usage"]
        return Counts(usage["prompt_tokens"], usage["completion_tokens"])

    def times(self) -> tuple[float, float, float]:
        if isinstance(self.server, LlamaServer):
            return LlamaClient(self.server).times()
        names = ("request_prefill_time_seconds", "request_decode_time_seconds")
        prefill_s, decode_s = map(self.server.seconds, names)
        return prefill_s, decode_s, self.server.total("prompt_tokens_cached_total")


@dataclass(frozen=True)
class Traffic:
    """Requests of two tenants: one of long prompts of which most is cached, one of long generations."""

    prefix: int
    suffix: int
    written: int
    answered: int = 16
    """Generated tokens of a request of the long prompt."""

    def send(self, client: Client, name: str) -> Counts:
        """Send one request of a tenant."""
        number = next(_numbers)
        if name == "writers":
            return client.request([3 + (number * 53 + n * 29) % 250 for n in range(8)], self.written)
        prefix = [3 + n * 37 % 250 for n in range(self.prefix)]
        return client.request([*prefix, *(3 + (number * 91 + n * 17) % 250 for n in range(self.suffix))], self.answered)


@dataclass
class Measured:
    """Increases of the server's counters while some requests ran."""

    prefill_s: float = 0.0
    decode_s: float = 0.0
    cached: int = 0
    tokens: dict[str, Counts] = field(default_factory=dict)

    @property
    def device_s(self) -> float:
        return self.prefill_s + self.decode_s

    def measure(self, traffic: Traffic, client: Client, name: str) -> None:
        """Add one request of a tenant."""
        before = client.times()
        self.tokens[name] = traffic.send(client, name)
        until(lambda: client.times()[1] > before[1], "the server's times of the request", 30)
        prefill_s, decode_s, cached = (b - a for a, b in zip(before, client.times(), strict=True))
        self.prefill_s, self.decode_s = self.prefill_s + prefill_s, self.decode_s + decode_s
        self.cached += round(cached)


def shares(both: Measured, *, weighted: bool) -> dict[str, float]:
    """Return the shares of two tenants whose requests one server served in turn."""
    prompt = sum(own.prompt for own in both.tokens.values())
    generated = sum(own.generated for own in both.tokens.values())
    busy_ms = round(1000 * both.device_s)
    work = {"busy_ms": busy_ms, "split_ms": busy_ms, "prefill_ms": round(1000 * both.prefill_s)}
    work["decode_ms"] = round(1000 * both.decode_s)
    counts = {"prompt_tokens": prompt, "cached_tokens": both.cached, "generated_tokens": generated}
    weights: TokenWeights | str = token_weights(split(NANO_USD, 0, work), counts) if weighted else NO_TIMES
    cached = {"agents": both.cached, "writers": 0}
    rows = [
        TenantTokens(0, "m", Tenant(name), own.prompt, own.generated, cached[name]) for name, own in both.tokens.items()
    ]
    hour = ModelHour(NANO_USD, prompt + generated, cached_tokens=both.cached, generated_tokens=generated)
    attribution = attribute(ModelHours("m", 0, (hour,)), rows, NANO_USD, weights)
    return {str(share.tenant.team): share.nano_usd / NANO_USD for share in attribution.shares if share.tenant}


def warm(traffic: Traffic, clients: Mapping[str, Client]) -> None:
    """Bring the long prompt into the cache: until each tenant has a slot, one evicts the other."""
    for _ in range(3):
        for name, client in clients.items():
            traffic.send(client, name)


def compare(
    traffic: Traffic, clients: Mapping[str, Client], capsys: pytest.CaptureFixture[str], engine: str
) -> tuple[dict[str, float], Measured]:
    """Return the share of device time of each alone, and one round of both, after holding our shares against them.

    Other programs may stop the server in some rounds: medians of each of its times leave these out.
    """
    alone, together = {name: list[Measured]() for name in clients}, list[Measured]()
    for _ in range(ROUNDS):
        for name, client in clients.items():
            alone[name].append(Measured())
            alone[name][-1].measure(traffic, client, name)
        together.append(Measured())
        for name, client in clients.items():
            together[-1].measure(traffic, client, name)
    device_s = {name: median(round_.device_s for round_ in rounds) for name, rounds in alone.items()}
    both = replace(
        together[-1],
        prefill_s=median(round_.prefill_s for round_ in together),
        decode_s=median(round_.decode_s for round_ in together),
        cached=round(median(round_.cached for round_ in together)),
    )
    weighted, unweighted = shares(both, weighted=True), shares(both, weighted=False)
    fair = {name: own / sum(device_s.values()) for name, own in device_s.items()}
    with capsys.disabled():
        for name in clients:
            text = f"alone {fair[name]:.1%}, weighted {weighted[name]:.1%}, unweighted {unweighted[name]:.1%}"
            prefill_s, decode_s = (median(map(attrgetter(part), alone[name])) for part in ("prefill_s", "decode_s"))
            print(f"\n{engine}, {name}: {text}; alone {prefill_s:.2f} s of prefill and {decode_s:.2f} s of decode")
    for name in clients:
        assert abs(weighted[name] / fair[name] - 1) <= TOLERANCE
        assert abs(unweighted[name] - fair[name]) > abs(weighted[name] - fair[name])
    return fair, both


def compare_behind_litellm(
    folder: Path, server: LlamaServer | VllmServer, traffic: Traffic, capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    """Hold also what `costs` reports of each key, from an agent that reads both, against clients and device time."""
    db, settings = folder / "db", folder / "pertoken.toml"
    with litellm(folder / "proxy", server.url) as url, pytest.MonkeyPatch.context() as patch:
        settings.write_text(
            f'[[gateways]]\nurl = "{url}"\nkind = "litellm"\n'
            f'[agent]\naccess = [{{url = "{url}", token_env = "METRICS_TOKEN"}}]\n'
        )
        patch.setenv("METRICS_TOKEN", "sk-metrics")
        patch.setenv("PERTOKEN_CONFIG", str(settings))
        clients = {name: ProxiedClient(server, url, key) for name, key in KEYS.items()}
        warm(traffic, clients)
        with agent_reading(server, db):
            tenant = t.counter_state.c.series.like("tenant_%")
            until(lambda: scalar(db, select(func.count()).where(tenant)), "the proxy's first page", READ_S)
            fair, both = compare(traffic, clients, capsys, engine)
            tokens = {name: (own.prompt + own.generated) * 2 * ROUNDS for name, own in both.tokens.items()}
            metric, delta = (t.engine_counter_rollup[60].c[name] for name in ("metric", "delta"))
            counted = select(func.sum(delta)).where(metric.like("tenant_%"), metric.not_like("tenant_cached%"))
            until(lambda: (scalar(db, counted) or 0) >= sum(tokens.values()), "the proxy's last page", READ_S)
        pertoken("prices", "set", "1", "--for", "cpu", "--from", "ever", "--yes", "--db", str(db))
        lines = json.loads(pertoken("costs", "--hours", "2", "--by", "tenant", "--json", "--db", str(db)))
    by_tenant = {name: next(line for line in lines if line["key"] == ALIASES[name]) for name in clients}
    usd = sum(line["usd"] for line in by_tenant.values())
    reported = {name: line["usd"] / usd for name, line in by_tenant.items()}
    with capsys.disabled():
        print(f"\n{engine}, `costs --by tenant`: {', '.join(f'{name} {reported[name]:.1%}' for name in clients)}")
    assert {name: line["tokens"] for name, line in by_tenant.items()} == tokens
    assert reported == {name: pytest.approx(share, rel=TOLERANCE) for name, share in fair.items()}


@pytest.mark.parametrize("answered", [16, 2])
def test_shares_agree_with_the_device_time_that_each_tenant_takes_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answered: int
) -> None:
    with LlamaServer(write_model(tmp_path / "model.gguf", shape=SHAPE), slots=2) as server:
        clients = {name: LlamaClient(server) for name in KEYS}
        warm(Traffic(1500, 150, 100, answered), clients)
        compare(Traffic(1500, 150, 100, answered), clients, capsys, f"llama.cpp, answers of {answered} tokens")


@pytest.mark.skipif(PROGRAM is None, reason="needs litellm[proxy]")
def test_shares_behind_litellm_agree_with_the_device_time_on_llama(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_model(tmp_path / "model.gguf", shape=SHAPE, chat_template=CONTENT_ONLY)
    with LlamaServer(model, slots=2, alias=ALIAS) as server:
        compare_behind_litellm(tmp_path, server, Traffic(1500, 150, 100), capsys, "llama.cpp behind LiteLLM")


@pytest.mark.skipif(
    PROGRAM is None or not (FOLDER / "bin" / "vllm").exists(), reason="needs litellm[proxy] and `python -m tests.vllm`"
)
def test_shares_behind_litellm_agree_with_the_device_time_on_vllm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_vllm_model(FOLDER, tmp_path / "model", hidden=768, layers=8)
    options = ("--served-model-name", ALIAS, "--chat-template", CONTENT_ONLY, "--enable-prompt-tokens-details")
    with VllmServer(*options, model=model) as server:
        compare_behind_litellm(tmp_path, server, Traffic(768, 128, 60), capsys, "vLLM behind LiteLLM")
