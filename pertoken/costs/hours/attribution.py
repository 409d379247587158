"""Dollars of models split among tenants, hour by hour, by what the tokens that gateways counted for them cost."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pertoken.costs.hours.hour import ModelHour, ModelHours
from pertoken.costs.kinds import EQUAL, NO_TIMES, TokenWeights
from pertoken.store.schema.telemetry import HOUR
from pertoken.units import apportion
from pertoken.window.tenants import Tenant, TenantTokens

MAX_CACHED = 1.1
"""Cached tokens of gateways over those of the engines, from which their counts are of something else."""


@dataclass(frozen=True, slots=True)
class TenantShare:
    """Tokens and dollars of one tenant of a model. `tenant` None: requests that no gateway saw."""

    tenant: Tenant | None
    nano_usd: int
    tokens: int
    cached_tokens: int | None = None
    """Of the prompt tokens; None where its gateway does not count them all."""
    reasoning_tokens: int = 0
    audio_tokens: int = 0
    generated_tokens: int | None = None
    images: int = 0
    video_ms: int = 0


@dataclass(frozen=True, slots=True)
class Attribution:
    """The tenants of one model."""

    model: str
    shares: Sequence[TenantShare]
    """The share that no gateway saw is always present and last."""
    overcounted_tokens: int = 0
    """Tokens that gateways counted beyond those of the engines: tenants share the dollars by what was counted."""
    unweighted: str | None = None
    """Why tokens of several kinds have one weight; None where each has the dollars of its kind."""


class _Tokens(NamedTuple):
    """Tokens of one hour by kind. Cached ones are part of the prompt."""

    prompt: int
    generated: int
    cached: int

    def weight(self, weights: TokenWeights) -> int:
        computed = max(0, self.prompt - self.cached)
        return computed * weights.computed + self.cached * weights.cached + self.generated * weights.generated


def attribute(
    model: ModelHours, counted: Iterable[TenantTokens], nano_usd: int, weights: TokenWeights | str = NO_TIMES
) -> Attribution:
    """Split the dollars of a model among its tenants, exactly.

    In each hour a tenant's share is what its tokens weigh, of the weight of all tokens of the engines; what gateways
    did not see, and hours in which no token was served, are of nobody. Gateways may count more than the engines in an
    hour (they count when a request ends): nothing is left for nobody then. `weights`: dollars of each kind of token, or
    why they are not known: all tokens weigh the same then.
    """
    rows = list(counted)
    used, unweighted = _usable(weights, model, rows)
    by_hour: dict[int, dict[Tenant, list[TenantTokens]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_hour[row.hour_ts][row.tenant].append(row)
    nano: dict[Tenant | None, int] = defaultdict(int)
    unseen = served = seen = 0
    for n, hour in enumerate(model.hours):
        tenants = by_hour.get(model.start_ts + n * HOUR, {})
        own = hour or ModelHour(None, None)
        tokens = [sum(row.tokens for row in of_tenant) for of_tenant in tenants.values()]
        weight = [sum(_of_row(row).weight(used) for row in of_tenant) for of_tenant in tenants.values()]
        rest = max(0, _of_hour(own).weight(used) - sum(weight))
        # Dollars beside tokens that are not known are nobody's; an hour with a device without a price has none at all.
        uncounted = min(own.uncounted_nano_usd, own.nano_usd or 0)
        parts = apportion((own.nano_usd or 0) - uncounted, [*weight, rest])
        for tenant, part in zip([*tenants, None], parts, strict=True):
            nano[tenant] += part
        nano[None] += uncounted
        served += own.tokens or 0
        seen += sum(tokens)
        unseen += max(0, (own.tokens or 0) - sum(tokens))
    # Hours are rounded to the nano-dollar each; the bill is exact, and so are its parts.
    ordered: list[Tenant | None] = [*sorted((tenant for tenant in nano if tenant is not None), key=repr), None]
    exact = apportion(nano_usd, [nano[tenant] for tenant in ordered])
    own_rows: dict[Tenant, list[TenantTokens]] = defaultdict(list)
    for row in rows:
        if model.start_ts <= row.hour_ts < model.start_ts + HOUR * len(model.hours):
            own_rows[row.tenant].append(row)
    shares = [
        TenantShare(None, part, unseen) if owner is None else _share(owner, part, own_rows[owner])
        for owner, part in zip(ordered, exact, strict=True)
    ]
    return Attribution(model.model, shares, max(0, seen - served), unweighted)


def _share(tenant: Tenant, nano_usd: int, rows: Sequence[TenantTokens]) -> TenantShare:
    cached = [row.cached_tokens for row in rows]
    return TenantShare(
        tenant,
        nano_usd,
        sum(row.tokens for row in rows),
        None if None in cached else sum(count or 0 for count in cached),
        sum(row.reasoning_tokens for row in rows),
        sum(row.audio_tokens for row in rows),
        sum(row.generated_tokens for row in rows),
        sum(row.images for row in rows),
        sum(row.video_ms for row in rows),
    )


def _usable(
    weights: TokenWeights | str, model: ModelHours, rows: Sequence[TenantTokens]
) -> tuple[TokenWeights, str | None]:
    """Return the weights that these counts allow, with the reason where tokens of several kinds have one weight."""
    if isinstance(weights, str):
        return EQUAL, weights
    cached = sum(hour.cached_tokens or 0 for hour in model.hours if hour is not None)
    if not rows or not cached:
        return weights, None
    counts = [row.cached_tokens for row in rows]
    if None in counts:
        return weights.of_prompts, "its gateway counts no cached tokens, so that all prompt tokens weigh the same"
    if sum(count or 0 for count in counts) > MAX_CACHED * cached:
        return weights.of_prompts, "its gateway counts more cached tokens than its engines"
    return weights, None


def _of_row(row: TenantTokens) -> _Tokens:
    return _Tokens(row.prompt_tokens, row.generated_tokens, min(row.cached_tokens or 0, row.prompt_tokens))


def _of_hour(hour: ModelHour) -> _Tokens:
    tokens, generated = hour.tokens or 0, hour.generated_tokens or 0
    prompt = max(0, tokens - generated)
    return _Tokens(prompt, min(generated, tokens), min(hour.cached_tokens or 0, prompt))


def by_model(
    models: Sequence[str], counted: Iterable[TenantTokens]
) -> tuple[Mapping[str, list[TenantTokens]], Mapping[str, int]]:
    """Return what gateways counted by served model, and the tokens of models that are not served here.

    A gateway's name of a model is the served name, or ends like it (`hosted_vllm/llama` or `meta/llama` for `llama`)
    where only one served model does.
    """
    tokens_of_model: dict[str, list[TenantTokens]] = defaultdict(list)
    elsewhere: dict[str, int] = defaultdict(int)
    last_part: dict[str, set[str]] = defaultdict(set)
    for model in models:
        last_part[model.rpartition("/")[2]].add(model)
    for row in counted:
        named = row.model or ""
        alike = {named} if named in models else last_part.get(named.rpartition("/")[2], set())
        if len(alike) == 1:
            tokens_of_model[next(iter(alike))].append(row)
        else:
            elsewhere[named] += row.tokens
    return tokens_of_model, elsewhere
