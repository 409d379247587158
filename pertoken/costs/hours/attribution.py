"""Dollars of models split among tenants, hour by hour, by the tokens that gateways counted for them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pertoken.apportion import apportion
from pertoken.costs.hours.hour import ModelHour, ModelHours
from pertoken.store.schema.rollup_tables import HOUR
from pertoken.window.tenants.tokens import Tenant, TenantTokens


@dataclass(frozen=True, slots=True)
class TenantShare:
    """Tokens and dollars of one tenant of a model. `tenant` None: requests that no gateway saw."""

    tenant: Tenant | None
    nano_usd: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Attribution:
    """The tenants of one model."""

    model: str
    shares: Sequence[TenantShare]
    """The share that no gateway saw is always present and last."""
    overcounted_tokens: int = 0
    """Tokens that gateways counted beyond those of the engines: tenants share the dollars by what was counted."""


def attribute(model: ModelHours, counted: Iterable[TenantTokens], nano_usd: int) -> Attribution:
    """Split the dollars of a model among its tenants, exactly.

    In each hour a tenant's share is its tokens of all tokens of the engines; what gateways did not see, and hours in
    which no token was served, are of nobody. Gateways may count more than the engines in an hour (they count when a
    request ends): nothing is left for nobody then.
    """
    by_hour: dict[int, dict[Tenant, int]] = defaultdict(lambda: defaultdict(int))
    for row in counted:
        by_hour[row.hour_ts][row.tenant] += row.tokens
    nano: dict[Tenant | None, int] = defaultdict(int)
    tokens: dict[Tenant | None, int] = defaultdict(int)
    served = seen = 0
    for n, hour in enumerate(model.hours):
        tenants = by_hour.get(model.start_ts + n * HOUR, {})
        own = hour or ModelHour(None, None)
        rest = max(0, (own.tokens or 0) - sum(tenants.values()))
        # Dollars beside tokens that are not known are nobody's; an hour with a device without a price has none at all.
        uncounted = min(own.uncounted_nano_usd, own.nano_usd or 0)
        parts = apportion((own.nano_usd or 0) - uncounted, [*tenants.values(), rest])
        for tenant, part, count in zip([*tenants, None], parts, [*tenants.values(), rest], strict=True):
            nano[tenant] += part
            tokens[tenant] += count
        nano[None] += uncounted
        served += own.tokens or 0
        seen += sum(tenants.values())
    # Hours are rounded to the nano-dollar each; the bill is exact, and so are its parts.
    ordered: list[Tenant | None] = [*sorted((tenant for tenant in nano if tenant is not None), key=repr), None]
    exact = apportion(nano_usd, [nano[tenant] for tenant in ordered])
    shares = [TenantShare(owner, part, tokens[owner]) for owner, part in zip(ordered, exact, strict=True)]
    return Attribution(model.model, shares, max(0, seen - served))


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
