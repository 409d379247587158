"""Two tenants of a real llama.cpp: shares by kind of token agree with the device time that each takes alone.

`PERTOKEN_E2E_SHARES=1` runs it, on a machine that does little else: the server's own times are compared.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median

import pytest

from pertoken.costs.hours.attribution import attribute
from pertoken.costs.hours.hour import ModelHour, ModelHours
from pertoken.costs.kinds import NO_TIMES, TokenWeights, split, token_weights
from pertoken.units import NANO_USD
from pertoken.window.tenants.tokens import Tenant, TenantTokens
from tests.llama import LlamaServer, Shape, write_model

SHAPE = Shape(width=512, heads=8, layers=4, hidden=2048)
PREFIX = [3 + n * 37 % 250 for n in range(1_500)]
"""Prompt tokens that all requests of the first tenant begin with."""
ROUNDS = 9
TOLERANCE = 0.15
pytestmark = pytest.mark.skipif(
    os.environ.get("PERTOKEN_E2E_SHARES") != "1", reason="PERTOKEN_E2E_SHARES=1 runs it, on a machine that is idle"
)
_numbers = count()


def agents(server: LlamaServer) -> tuple[int, int]:
    """Send one request with a long cached prompt; return its prompt and generated tokens."""
    usage = server.complete([*PREFIX, *(3 + (next(_numbers) * 91 + n * 17) % 250 for n in range(150))], 2)
    return usage.prompt_tokens, usage.generated_tokens


def writers(server: LlamaServer) -> tuple[int, int]:
    """Send one request of a short prompt and a long generation."""
    usage = server.complete([3 + (next(_numbers) * 53 + n * 29) % 250 for n in range(8)], 100)
    return usage.prompt_tokens, usage.generated_tokens


TENANTS = {"agents": agents, "writers": writers}


@dataclass
class Measured:
    """Increases of the server's counters while some requests ran."""

    prefill_s: float = 0.0
    decode_s: float = 0.0
    cached: int = 0
    tokens: dict[str, list[int]] = field(default_factory=dict)

    @property
    def device_s(self) -> float:
        return self.prefill_s + self.decode_s

    def measure(self, server: LlamaServer, name: str) -> None:
        """Add one request of a tenant."""
        before = list(_counters(server))
        prompt, generated = TENANTS[name](server)
        own = self.tokens.setdefault(name, [0, 0])
        own[0], own[1] = own[0] + prompt, own[1] + generated
        prefill_s, decode_s, cached = (b - a for a, b in zip(before, _counters(server), strict=True))
        self.prefill_s, self.decode_s = self.prefill_s + prefill_s, self.decode_s + decode_s
        self.cached += round(cached)


def _counters(server: LlamaServer) -> Iterator[float]:
    names = ("prompt_seconds_total", "tokens_predicted_seconds_total", "prompt_tokens_cached_total")
    return map(server.seconds, names)


def shares(both: Measured, *, weighted: bool) -> dict[str, float]:
    """Return the shares of two tenants whose requests one server served in turn."""
    prompt, generated = (sum(own[n] for own in both.tokens.values()) for n in range(2))
    busy_ms = round(1000 * both.device_s)
    work = {"busy_ms": busy_ms, "split_ms": busy_ms, "prefill_ms": round(1000 * both.prefill_s)}
    work["decode_ms"] = round(1000 * both.decode_s)
    counts = {"prompt_tokens": prompt, "cached_tokens": both.cached, "generated_tokens": generated}
    weights: TokenWeights | str = token_weights(split(NANO_USD, 0, work), counts) if weighted else NO_TIMES
    cached = {"agents": both.cached, "writers": 0}
    rows = [TenantTokens(0, "m", Tenant(name), own[0], own[1], cached[name]) for name, own in both.tokens.items()]
    hour = ModelHour(NANO_USD, prompt + generated, cached_tokens=both.cached, generated_tokens=generated)
    attribution = attribute(ModelHours("m", 0, (hour,)), rows, NANO_USD, weights)
    return {str(share.tenant.team): share.nano_usd / NANO_USD for share in attribution.shares if share.tenant}


def test_shares_agree_with_the_device_time_that_each_tenant_takes_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fair, weighted, by_tokens = (defaultdict[str, list[float]](list) for _ in range(3))
    with LlamaServer(write_model(tmp_path / "model.gguf", shape=SHAPE), slots=2) as server:
        for name in TENANTS:
            TENANTS[name](server)  # the long prompt is in the cache afterwards
        for _ in range(ROUNDS):  # other programs may stop the server in some of them: medians leave these out
            alone, both = {name: Measured() for name in TENANTS}, Measured()
            for name in TENANTS:
                alone[name].measure(server, name)
            for name in TENANTS:
                both.measure(server, name)
            for name, measured in alone.items():
                fair[name].append(measured.device_s / sum(other.device_s for other in alone.values()))
                weighted[name].append(shares(both, weighted=True)[name])
                by_tokens[name].append(shares(both, weighted=False)[name])
    for name in TENANTS:
        own, by_kind, flat = (median(values[name]) for values in (fair, weighted, by_tokens))
        with capsys.disabled():
            print(f"\n{name}: alone {own:.1%}, weighted {by_kind:.1%}, unweighted {flat:.1%}")
        assert abs(by_kind / own - 1) <= TOLERANCE
        assert abs(flat - own) > abs(by_kind - own)
