"""The bill of some hours by tenant, team, model, owner or device: lines that sum to it exactly."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pertoken.costs.bill import Bill, bill
from pertoken.costs.hours import ModelHour, ModelHours, model_hours
from pertoken.costs.ledger import EQUAL, NO_TIMES, KindDollars, ServedCost, TokenWeights, together, token_weights
from pertoken.costs.lines import Money
from pertoken.printable import natural_key
from pertoken.settings.owners import UNOWNED_LINES, SharedLine, is_basis
from pertoken.state.deployment import bases_of
from pertoken.store.connect.open import Store
from pertoken.store.schema.telemetry import HOUR
from pertoken.units import apportion, first_hour, format_count
from pertoken.window.figures import per_mtok
from pertoken.window.inventory import Inventory, KnownEpoch
from pertoken.window.tenants import Tenant, TenantTokens

MAX_CACHED = 1.1
"""Cached tokens of gateways over cached tokens of engines, from which their counts are of something else."""


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
    """Tokens that gateways counted beyond the engines' counts: tenants share the dollars by the counted tokens."""
    unweighted: str | None = None
    """Why tokens of several kinds have one weight; None where each has the dollars of its kind."""


class _TokenKinds(NamedTuple):
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
        model_hour = hour or ModelHour(None, None)
        tokens = [sum(row.tokens for row in of_tenant) for of_tenant in tenants.values()]
        weight = [sum(_of_row(row).weight(used) for row in of_tenant) for of_tenant in tenants.values()]
        rest = max(0, _of_hour(model_hour).weight(used) - sum(weight))
        # Dollars beside tokens that are not known are nobody's; an hour with a device without a price has none at all.
        uncounted = min(model_hour.uncounted_nano_usd, model_hour.nano_usd or 0)
        parts = apportion((model_hour.nano_usd or 0) - uncounted, [*weight, rest])
        for tenant, part in zip([*tenants, None], parts, strict=True):
            nano[tenant] += part
        nano[None] += uncounted
        served += model_hour.tokens or 0
        seen += sum(tokens)
        unseen += max(0, (model_hour.tokens or 0) - sum(tokens))
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
    return TenantShare(
        tenant,
        nano_usd,
        sum(row.tokens for row in rows),
        _sum_of_known([row.cached_tokens for row in rows]),
        sum(row.reasoning_tokens for row in rows),
        sum(row.audio_tokens for row in rows),
        sum(row.generated_tokens for row in rows),
        sum(row.images for row in rows),
        sum(row.video_ms for row in rows),
    )


def _sum_of_known(counts: Sequence[int | None]) -> int | None:
    """Return the sum of counts; None if one is not known."""
    return None if None in counts else sum(count or 0 for count in counts)


def _usable(
    weights: TokenWeights | str, model: ModelHours, rows: Sequence[TenantTokens]
) -> tuple[TokenWeights, str | None]:
    """Return the weights that these counts allow, with the reason where tokens of several kinds have one weight."""
    if isinstance(weights, str):
        return EQUAL, weights
    cached = sum(hour.cached_tokens or 0 for hour in model.hours if hour is not None)
    if not rows or not cached:
        return weights, None
    count = _sum_of_known([row.cached_tokens for row in rows])
    if count is None:
        return weights.of_prompts, "its gateway counts no cached tokens, so that all prompt tokens weigh the same"
    if count > MAX_CACHED * cached:
        return weights.of_prompts, "its gateway counts more cached tokens than its engines"
    return weights, None


def _of_row(row: TenantTokens) -> _TokenKinds:
    return _TokenKinds(row.prompt_tokens, row.generated_tokens, min(row.cached_tokens or 0, row.prompt_tokens))


def _of_hour(hour: ModelHour) -> _TokenKinds:
    tokens, generated = hour.tokens or 0, hour.generated_tokens or 0
    prompt = max(0, tokens - generated)
    return _TokenKinds(prompt, min(generated, tokens), min(hour.cached_tokens or 0, prompt))


def by_model(
    models: Sequence[str], counted: Iterable[TenantTokens]
) -> tuple[Mapping[str, list[TenantTokens]], Mapping[str, int]]:
    """Return the counts of gateways by served model, and the tokens of models that are not served here.

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


BY = ("tenant", "team", "model", "gpu")
"""Groupings of a bill, beside the bases of `settings.owners`."""
_KINDS = ("prompt_tokens", "cached_tokens", "generated_tokens")
UNATTRIBUTED, NO_OWNER, OTHER, UNALLOCATED = "unattributed", "no owner", "other work", "unallocated"
"""Lines of what no gateway saw, of deployments in no known pod, of foreign processes, and of time without a
process on a device."""


@dataclass(frozen=True, slots=True)
class SpendLine:
    """One line of a bill."""

    name: str
    nano_usd: int
    tokens: int | None = None
    """Prompt (cached included) and generated; None where a line has none of its own."""
    team: str | None = None
    key: str | None = None
    user: str | None = None
    cached_tokens: int | None = None
    """Of the prompt tokens; None where not all of its gateways count them."""
    reasoning_tokens: int | None = None
    audio_tokens: int | None = None
    unweighted: bool = False
    """Whether tokens of several kinds weigh the same in its share."""
    generated_tokens: int | None = None
    requests: int | None = None
    """Requests that ended; gateways do not count them."""
    images: int | None = None
    """Images that were generated."""
    video_ms: int | None = None
    """Length of the videos that were generated."""

    shared_nano_usd: int | None = None
    """Its dollars with its part of the shared lines, 0 for a shared line; None where none was declared."""

    @property
    def served(self) -> ServedCost:
        """Its dollars and tokens."""
        prompt = None if self.tokens is None or self.generated_tokens is None else self.tokens - self.generated_tokens
        return ServedCost(self.nano_usd, prompt, self.generated_tokens, self.requests)

    @property
    def nano_usd_per_mtok(self) -> int | None:
        """Nano-USD for a million tokens; None without tokens."""
        return per_mtok(self.nano_usd, self.tokens)


@dataclass(frozen=True, slots=True)
class Spend:
    """The bill of some hours of the clock, by one of `BY`."""

    by: str
    start_ts: int
    end_ts: int
    nano_usd: int | None
    """Of all devices with a price; None without any."""
    lines: Sequence[SpendLine]
    """The dearest first, then the lines of nobody."""
    notes: Sequence[str] = ()
    """Contradictions and gaps, as sentences."""
    bases: Sequence[str] = ()
    """Bases of `settings.owners` by which a deployment of this time has an owner."""


def spend(store: Store, by: str, hours: int, now_ts: int, teams: Mapping[str, str], *, dated: bool = False) -> Spend:
    """Return the bill of the last `hours` hours of the clock, the one under way included.

    `teams`: team of each key, namespace or team of a gateway. Raises StoreError.
    """
    with bill(store, first_hour(hours, now_ts), now_ts, dated=dated) as priced:
        served = {} if by == "gpu" else model_hours(priced, naming(priced.inventory, by))
        return spend_of(priced, served, by, teams)


def spend_of(
    priced: Bill,
    served: Mapping[str, Sequence[ModelHour | None]],
    by: str,
    teams: Mapping[str, str],
) -> Spend:
    """Return a bill that starts with an hour, by one of `BY`. `served`: `model_hours` of it under `naming` of `by`."""
    window, money, inventory, start = priced.window, priced.money, priced.inventory, priced.window.start
    lines: list[SpendLine] = []
    notes = _unpriced(money, inventory)
    if by == "gpu":
        lines = _by_device(money, inventory)
    else:
        dollars = _by_name(money, naming(inventory, by), inventory)
        models = [ModelHours(model, start, tuple(served.get(model, ()))) for model in sorted({*served, *dollars})]
        if by == "model" or is_basis(by):
            lines = [
                SpendLine(
                    model.model,
                    dollars.get(model.model, 0),
                    model.tokens,
                    cached_tokens=model.total("cached_tokens"),
                    generated_tokens=model.total("generated_tokens"),
                    requests=model.total("requests"),
                )
                for model in models
            ]
            if is_basis(by) and dollars.keys() | served.keys() == {NO_OWNER}:
                notes.append(f"No deployment of this time has a {by} that the agent could read (docs/gateways.md).")
        else:
            counts = window.tenant_tokens()
            counted, elsewhere = by_model([model.model for model in models], counts.rows)
            weights = _weights(priced)
            parts = [
                attribute(
                    model, counted.get(model.model, ()), dollars.get(model.model, 0), weights.get(model.model, NO_TIMES)
                )
                for model in models
            ]
            lines = _by_tenant(parts, by, teams)
            notes += _contradictions(parts, elsewhere, gateways=bool(counted or elsewhere))
            notes += [
                f"{' and '.join(names)} are one gateway: one process answers. Its tokens are counted once. "
                "Name it once in [[gateways]]."
                for names in counts.several_names
            ]
    lines.sort(key=lambda line: (line.name in (UNATTRIBUTED, NO_OWNER), -line.nano_usd, natural_key(line.name)))
    if by != "gpu":
        rest = (SpendLine(OTHER, money.other), SpendLine(UNALLOCATED, money.unallocated))
        lines += [line for line in rest if line.nano_usd]
    bases = bases_of([json.loads(row.knobs) for row in inventory.epochs])
    return Spend(by, start, window.end, money.paid if money.priced_devices else None, lines, notes, bases)


def naming(inventory: Inventory, by: str) -> Callable[[KnownEpoch], str]:
    """Return a function from the row of an epoch to its owner, for a basis of owners, else to its served model.

    Worker ranks have the model of their head rank.
    """
    if not is_basis(by):
        return lambda row: str(inventory.head_rows[row.epoch_id].served_model)
    owners = inventory.owners(by)
    return lambda row: owners[row.epoch_id] or NO_OWNER


def _by_name(money: Money, name_of: Callable[[KnownEpoch], str], inventory: Inventory) -> dict[str, int]:
    """Return the part of the bill that the epochs of each name carry."""
    row_of = {row.epoch_id: row for row in inventory.epochs}
    nano_usd: dict[str, int] = defaultdict(int)
    for epoch_id, nano in money.by_epoch.items():
        nano_usd[name_of(row_of[epoch_id])] += nano
    return nano_usd


def _by_device(money: Money, inventory: Inventory) -> list[SpendLine]:
    nano_usd: dict[str, int] = defaultdict(int)
    for device_id, nano in money.by_device.items():
        row = inventory.devices[device_id]
        host = inventory.host[row.host_id].name if row.host_id in inventory.host else "?"
        nano_usd[f"{host}: {inventory.device_names[device_id]}"] += nano
    return [SpendLine(name, nano) for name, nano in nano_usd.items()]


def _weights(priced: Bill) -> dict[str, TokenWeights | str]:
    """Return the weights of tokens by served model, by the dollars of all its deployments."""
    dollars: dict[str, KindDollars] = {}
    tokens: dict[str, Counter[str]] = defaultdict(Counter)
    for deployment_id, row in priced.inventory.newest.items():
        model, totals = row.served_model, priced.totals.of(deployment_id)
        if deployment_id in priced.kinds:
            dollars[model] = dollars.get(model, KindDollars()) + priced.kinds[deployment_id]
            tokens[model].update({name: totals.get(name) or 0 for name in _KINDS})
    return {model: token_weights(of_model, tokens[model]) for model, of_model in dollars.items()}


def _by_tenant(parts: Sequence[Attribution], by: str, teams: Mapping[str, str]) -> list[SpendLine]:
    shares: dict[tuple[str | None, ...] | None, list[tuple[TenantShare, bool]]] = defaultdict(list)
    for part in parts:
        for share in part.shares:
            key: tuple[str | None, ...] | None = None
            if share.tenant is not None:
                team = team_of(share.tenant, teams)
                key = (team,) if by == "team" else (team, share.tenant.key or share.tenant.namespace, share.tenant.user)
            shares[key].append((share, part.unweighted is not None))
    return [_line(key, tenant_shares) for key, tenant_shares in shares.items()]


def _line(key: tuple[str | None, ...] | None, tenant_shares: Sequence[tuple[TenantShare, bool]]) -> SpendLine:
    nano_usd, tokens = (sum(getattr(share, name) for share, _ in tenant_shares) for name in ("nano_usd", "tokens"))
    if key is None:
        return SpendLine(UNATTRIBUTED, nano_usd, tokens)
    team, api_key, user = (*key, None, None)[:3]
    return SpendLine(
        " / ".join(filter(None, key)) or "no name",
        nano_usd,
        tokens,
        team,
        api_key,
        user,
        _sum_of_known([share.cached_tokens for share, _ in tenant_shares]),
        sum(share.reasoning_tokens for share, _ in tenant_shares),
        sum(share.audio_tokens for share, _ in tenant_shares),
        any(unweighted for _, unweighted in tenant_shares),
        sum(share.generated_tokens or 0 for share, _ in tenant_shares),
        images=sum(share.images for share, _ in tenant_shares),
        video_ms=sum(share.video_ms for share, _ in tenant_shares),
    )


def team_of(tenant: Tenant, teams: Mapping[str, str]) -> str | None:
    """Return the team of a tenant: as set for its key, its namespace or its team, else as its gateway names it."""
    set_for = (
        teams[name] for name in (tenant.key, tenant.namespace, tenant.team) if name is not None and name in teams
    )
    return next(set_for, tenant.team)


def _unpriced(money: Money, inventory: Inventory) -> list[str]:
    accelerators = [device_id for device_id in money.unpriced_devices if inventory.devices[device_id].kind != "cpu"]
    if not accelerators:
        return []
    return [f"{len(accelerators)} devices had no price in a part of that time: `pertoken prices set` gives them one."]


def _contradictions(parts: Sequence[Attribution], elsewhere: Mapping[str, int], *, gateways: bool) -> list[str]:
    if not gateways:
        return ["No gateway was read, so that all is unattributed: set [[gateways]] (docs/gateways.md)."]
    alike = [part for part in parts if part.unweighted is not None and any(share.tenant for share in part.shares)]
    over = (attribution for attribution in parts if attribution.overcounted_tokens)
    notes = [
        f"{of_model.model}: gateways counted {format_count(of_model.overcounted_tokens)} tokens more than its engines. "
        "An engine is not read, two gateways count the same requests, or a gateway answers from a cache."
        for of_model in over
    ]
    notes += [f"{part.model}: shares are unweighted, by tokens of one price: {part.unweighted}." for part in alike]
    return notes + [
        f"{model or 'A model without a name'}: gateways counted {format_count(count)} tokens, and no engine here "
        "serves it. Name the served model in `models` of [[gateways]] if one does."
        for model, count in sorted(elsewhere.items())
    ]


_NO_PAYER = (UNATTRIBUTED, *UNOWNED_LINES)


def with_shared(spend: Spend, shared: Sequence[SharedLine]) -> Spend:
    """Return a bill whose lines have their dollars with their part of each shared line.

    Each shared line is divided among the lines that somebody pays for. One that nobody else can pay for stays as it is,
    and so does one divided by tokens where those of a payer are not known: a note names that payer.
    """
    by_name = {name: row.by for row in shared for name in [_name(row, spend.by)] if name is not None}
    given = [n for n, line in enumerate(spend.lines) if line.name in by_name]
    if not given:
        return spend
    payers = [n for n, line in enumerate(spend.lines) if line.name not in by_name and line.name not in _NO_PAYER]
    dollars = [line.nano_usd for line in spend.lines]
    notes = list(spend.notes)
    for n in given:
        line = spend.lines[n]
        by = by_name[line.name]
        uncounted = [spend.lines[payer].name for payer in payers if spend.lines[payer].tokens is None]
        if by == "tokens" and uncounted:
            notes.append(f"{line.name} is not divided: the tokens of {uncounted[0]} are not known.")
            continue
        weights = [_weight(spend.lines[payer], by) for payer in payers]
        if sum(weights):
            dollars[n] = 0
            for payer, part in zip(payers, apportion(line.nano_usd, weights), strict=True):
                dollars[payer] += part
    lines = zip(spend.lines, dollars, strict=True)
    shared_lines = [replace(line, shared_nano_usd=nano_usd) for line, nano_usd in lines]
    return replace(spend, lines=shared_lines, notes=notes)


def _name(row: SharedLine, by: str) -> str | None:
    """Return the name of the shared line in a bill by `by`; None where that has no such line."""
    if row.line in UNOWNED_LINES:
        return row.line
    basis, _, name = row.line.partition("=")
    return name if basis == by else None


def _weight(line: SpendLine, by: str) -> int:
    return {"dollars": line.nano_usd, "tokens": line.tokens or 0, "equal": 1}[by]


@dataclass(frozen=True, slots=True)
class OwnerUse:
    """Dollars and tokens of an owner's deployments; None: not known."""

    nano_usd: int | None
    idle_nano_usd: int | None
    served: ServedCost
    """Of deployments with known dollars and tokens."""

    @property
    def tokens(self) -> int | None:
        """Prompt and generated tokens."""
        prompt, generated = self.served.prompt_tokens, self.served.generated_tokens
        return None if prompt is None or generated is None else prompt + generated


def owner_use(priced: Bill, basis: str) -> Mapping[str, OwnerUse]:
    """Return the use of each owner by a basis of `settings.owners`; of deployments without one, too."""
    inventory, name_of = priced.inventory, naming(priced.inventory, basis)
    epochs: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in inventory.epochs:
        deployment_id = inventory.heads.get(row.epoch_id, row.deployment_id)
        epochs[name_of(row)][deployment_id].append(row.epoch_id)
    return {name: _use(priced, list(by_deployment.values())) for name, by_deployment in epochs.items()}


def _use(priced: Bill, epochs_of: Sequence[Sequence[int]]) -> OwnerUse:
    """Return the use of the epochs of several deployments."""
    money = priced.money
    every = [epoch_id for epoch_ids in epochs_of for epoch_id in epoch_ids]
    held = [epoch_id for epoch_id in every if epoch_id in money.by_epoch]
    is_priced = bool(held) and money.unpriced_epochs.isdisjoint(every)
    return OwnerUse(
        sum(money.by_epoch[epoch_id] for epoch_id in held) if is_priced else None,
        sum(money.idle_by_epoch.get(epoch_id, 0) for epoch_id in held) if is_priced else None,
        together(_served(priced, epoch_ids) for epoch_ids in epochs_of),
    )


def _served(priced: Bill, epoch_ids: Sequence[int]) -> ServedCost:
    money = priced.money
    paid = [money.by_epoch[epoch_id] for epoch_id in epoch_ids if epoch_id in money.by_epoch]
    totals = priced.totals.of_epochs([epoch_id for epoch_id in epoch_ids if epoch_id not in priced.inventory.heads])
    return ServedCost(
        sum(paid) if paid and money.unpriced_epochs.isdisjoint(epoch_ids) else None,
        totals.get("prompt_tokens"),
        totals.get("generated_tokens"),
        totals.get("requests_finished"),
    )
