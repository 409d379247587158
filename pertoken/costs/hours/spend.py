"""The bill of some hours by tenant, team, model, owner or device: lines that sum to it exactly."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pertoken.costs.bill import Bill, bill
from pertoken.costs.hours.attribution import Attribution, TenantShare, attribute, by_model
from pertoken.costs.hours.hour import ModelHour, ModelHours
from pertoken.costs.hours.model_hours import model_hours
from pertoken.costs.kinds import NO_TIMES, KindDollars, TokenWeights, token_weights
from pertoken.costs.money import Money
from pertoken.costs.served import Served
from pertoken.printable import natural_key
from pertoken.settings.owners import is_basis
from pertoken.state.deployment import bases_of
from pertoken.store.connect.open import Store
from pertoken.units import first_hour, format_count
from pertoken.window.columns import per_mtok
from pertoken.window.inventory import Inventory
from pertoken.window.tenants import Tenant

BY = ("tenant", "team", "model", "gpu")
"""What a bill can be by, beside the bases of `settings.owners`."""
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
    def served(self) -> Served:
        """Its dollars and tokens."""
        prompt = None if self.tokens is None or self.generated_tokens is None else self.tokens - self.generated_tokens
        return Served(self.nano_usd, prompt, self.generated_tokens, self.requests)

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
    """The dearest first, then what belongs to nobody."""
    notes: Sequence[str] = ()
    """What is contradictory or missing, as sentences."""
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


def naming(inventory: Inventory, by: str) -> Callable[[Any], str]:
    """Return a function from the row of an epoch to its owner, for a basis of owners, else to its served model.

    Worker ranks have the model of their head rank.
    """
    if not is_basis(by):
        return lambda row: str(inventory.head_rows[row.epoch_id].served_model)
    owners = inventory.owners(by)
    return lambda row: owners[row.epoch_id] or NO_OWNER


def _by_name(money: Money, name_of: Callable[[Any], str], inventory: Inventory) -> dict[str, int]:
    """Return what the epochs of each name carry of the bill."""
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
    """Return what tokens of each served model weigh, by the dollars of all its deployments."""
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
    return [_line(key, own) for key, own in shares.items()]


def _line(key: tuple[str | None, ...] | None, own: Sequence[tuple[TenantShare, bool]]) -> SpendLine:
    nano_usd, tokens = (sum(getattr(share, name) for share, _ in own) for name in ("nano_usd", "tokens"))
    if key is None:
        return SpendLine(UNATTRIBUTED, nano_usd, tokens)
    cached = [share.cached_tokens for share, _ in own]
    team, api_key, user = (*key, None, None)[:3]
    return SpendLine(
        " / ".join(filter(None, key)) or "no name",
        nano_usd,
        tokens,
        team,
        api_key,
        user,
        None if None in cached else sum(count or 0 for count in cached),
        sum(share.reasoning_tokens for share, _ in own),
        sum(share.audio_tokens for share, _ in own),
        any(unweighted for _, unweighted in own),
        sum(share.generated_tokens or 0 for share, _ in own),
        images=sum(share.images for share, _ in own),
        video_ms=sum(share.video_ms for share, _ in own),
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
