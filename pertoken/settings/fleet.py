"""Settings of services, hosts and commitments: tables by name, beside the plain keys of `pertoken.config`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from pertoken.settings.pages import one_of
from pertoken.units import NANO_USD

HOST_PURCHASES = ("on_demand", "spot", "reserved", "owned")
"""Ways a host is paid for."""
ISOLATIONS = ("tenant",)
KNOBS = (
    "model", "engine", "engine_version", "tp", "pp", "dp", "ep", "weight_dtype", "kv_dtype", "max_num_seqs",
    "max_num_batched_tokens", "enable_chunked_prefill", "max_model_len", "gpu_memory_utilization", "enforce_eager",
    "attention_backend", "enable_prefix_caching", "num_speculative_tokens", "speculative_method", "draft_model",
    "lora_adapters", "kv_offload_bytes", "sm_clock_mhz", "power_cap_w", "sleep", "role",
)  # fmt: skip
"""Knobs of a deployment, as in `pertoken.state.knobs`, which settings cannot import."""
PLACEMENTS = ("placement", "provider", "region", "instance_type", "accelerator", "purchase")
DEMANDS = ("demand", "prompt_len", "output_len", "cached_share", "response_cache_share", "requests_per_s")
FORBIDDABLE = (
    *KNOBS, *PLACEMENTS, *DEMANDS, "replicas", "schedule", "shares", "devices", "restart", "release", "partitions",
    "commitments",
)  # fmt: skip
"""What a person may forbid to change. `placement` and `demand` stand for all of their parts."""
QUALITY_FIELDS = ("model", "weight_dtype", "kv_dtype", "prompt_len", "output_len", "response_cache_share")
"""What can alter outputs, and so is subject to a quality gate."""


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Settings of a service that only a person knows: `[services."chat"]`."""

    name: str
    models: tuple[str, ...]
    """Served model names that are this service; its own name by default."""
    owner: str | None = None
    """Team or person that decides on its recommendations."""
    ttft_p50_ms: float | None = None
    ttft_p95_ms: float | None = None
    tpot_p50_ms: float | None = None
    tpot_p95_ms: float | None = None
    min_replicas: int = 1
    spare_replicas: int = 0
    isolation: str | None = None
    forbid: tuple[str, ...] = ()
    quality_gate: bool | None = None
    """None: as `advisor.quality_gate` has it."""
    quality_passed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostSettings:
    """Settings of a host that only a person knows, over what was detected: `[hosts."gpu-1"]`."""

    name: str
    provider: str | None = None
    region: str | None = None
    instance_type: str | None = None
    purchase: str | None = None
    paid_until: int | None = None
    """Epoch seconds: the end of the day that is named, UTC."""
    resource_id: str | None = None
    """What a cloud's bill calls it, where that is not its name."""


@dataclass(frozen=True, slots=True)
class CommitmentSettings:
    """Instances paid for until a date: one `[[commitments]]`."""

    provider: str
    instance_type: str
    count: int
    nano_usd_per_instance_hour: int
    end_ts: int
    """Epoch seconds: the end of the day that is named, UTC."""
    region: str | None = None


def read_services(value: object) -> tuple[ServiceSettings, ...]:
    """Return the services of a setting, by name.

    Raises ValueError naming the table and key that is wrong, or a model that two services name.
    """
    fields: dict[str, Reader] = {"models": _names, "min_replicas": _at_least(1), "spare_replicas": _at_least(0)}
    fields |= dict.fromkeys(("ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", "tpot_p95_ms"), _above_0)
    fields |= {"isolation": one_of(ISOLATIONS), "forbid": read_forbidden, "owner": _text}
    fields |= {"quality_gate": _flag, "quality_passed": _passed}
    services = []
    owners: dict[str, str] = {}
    for name, row in _tables(value, "services"):
        values = _row(f'"{name}"', row, fields)
        service = ServiceSettings(name, **{"models": (name,), **values})
        for model in service.models:
            if owners.setdefault(model, name) != name:
                raise ValueError(f'"{name}".models: {model} is a model of "{owners[model]}" already')
        services.append(service)
    return tuple(services)


def read_hosts(value: object) -> tuple[HostSettings, ...]:
    """Return the hosts of a setting, by name. Raises ValueError naming the table and key that is wrong."""
    fields: dict[str, Reader] = dict.fromkeys(("provider", "region", "instance_type", "resource_id"), _text)
    fields |= {"purchase": one_of(HOST_PURCHASES), "paid_until": _end_of_day}
    return tuple(HostSettings(name, **_row(f'"{name}"', row, fields)) for name, row in _tables(value, "hosts"))


def read_commitments(value: object) -> tuple[CommitmentSettings, ...]:
    """Return the commitments of a setting. Raises ValueError naming the table and key that is wrong."""
    if not isinstance(value, list | tuple) or not all(isinstance(row, dict) for row in value):
        raise ValueError("must be a list of tables, each written [[commitments]]")
    fields: dict[str, Reader] = {
        "provider": _text,
        "region": _text,
        "instance_type": _text,
        "count": _at_least(1),
        "usd_per_instance_hour": _nano_usd,
        "end": _end_of_day,
    }
    commitments = []
    for number, row in enumerate(value, 1):
        values = _row(f"commitment {number}", row, fields)
        missing = [name for name in fields if name not in values and name != "region"]
        if missing:
            raise ValueError(f"commitment {number}: {missing[0]} is missing")
        price, end_ts = values.pop("usd_per_instance_hour"), values.pop("end")
        commitments.append(CommitmentSettings(nano_usd_per_instance_hour=price, end_ts=end_ts, **values))
    return tuple(commitments)


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """A gateway whose page counts tokens by tenant: `[[gateways]]`."""

    url: str
    kind: str | None = None
    """Adapter to read it by; None: by its page."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Names of its models -> served model names, where they differ."""
    users: bool = False
    """Whether tokens are kept apart by end user, too."""


def read_gateways(kinds: tuple[str, ...], url: Callable[[str], str]) -> Callable[[object], tuple[GatewaySettings, ...]]:
    """Return a reader of gateways of these kinds, whose base URLs are checked by `url`."""

    def read(value: object) -> tuple[GatewaySettings, ...]:
        if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            raise ValueError("must be a list of tables, each written [[gateways]]")
        fields: dict[str, Reader] = {"url": lambda item: url(_text(item)), "kind": one_of(kinds)}
        fields |= {"models": _texts_by_name, "users": _flag}
        gateways = []
        for number, row in enumerate(value, 1):
            values = _row(f"gateway {number}", row, fields)
            if "url" not in values:
                raise ValueError(f"gateway {number}: url is missing")
            gateways.append(GatewaySettings(**values))
        return tuple(gateways)

    return read


@dataclass(frozen=True, slots=True)
class TenantTeam:
    """The team of a key, a namespace or a team as a gateway names it."""

    name: str
    team: str


def read_tenants(value: object) -> tuple[TenantTeam, ...]:
    """Return the teams of a setting. Raises ValueError."""
    return tuple(TenantTeam(name, team) for name, team in _texts_by_name(value).items())


def _texts_by_name(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError('must be a table of text, such as {"a-key" = "search"}')
    return {name: _text(item) for name, item in value.items()}


Reader = Callable[[object], object]


def _tables(value: object, setting: str) -> list[tuple[str, Mapping[str, object]]]:
    if not isinstance(value, dict) or not all(isinstance(row, dict) for row in value.values()):
        raise ValueError(f'must be tables by name, each written [{setting}."NAME"]')
    return list(value.items())


def _row(where: str, row: Mapping[str, object], fields: Mapping[str, Reader]) -> dict[str, Any]:
    values = {}
    for key, value in row.items():
        if key not in fields:
            raise ValueError(f"{where}.{key}: no such key; there are {', '.join(fields)}")
        try:
            values[key] = fields[key](value)
        except ValueError as error:
            raise ValueError(f"{where}.{key}: {error}") from None
    return values


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be text")
    return value.strip()


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("must be a list of served model names")
    return tuple(_text(item) for item in value)


def _above_0(value: object) -> float:
    if type(value) not in (int, float) or not 0 < value < float("inf"):  # type: ignore[operator]
        raise ValueError("must be a number above 0")
    return float(value)  # type: ignore[arg-type]


def _at_least(low: int) -> Reader:
    def read(value: object) -> int:
        if type(value) is not int or value < low:
            raise ValueError(f"must be a whole number of at least {low}")
        return value

    return read


def read_forbidden(value: object) -> tuple[str, ...]:
    """Return what a person forbids to change. Raises ValueError for what is no list of known words."""
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError('must be a list of what may not change, such as ["model", "placement"]')
    for word in value:
        if word not in FORBIDDABLE:
            raise ValueError(f"{word!r} is nothing that can be forbidden: there are {', '.join(FORBIDDABLE)}")
    return tuple(value)


def _passed(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError('must be a list of evaluated changes, such as ["weight_dtype=fp8"]')
    for item in value:
        if item.partition("=")[0] not in QUALITY_FIELDS:
            raise ValueError(f"{item!r}: write FIELD=VALUE or FIELD; fields are {', '.join(QUALITY_FIELDS)}")
    return tuple(value)


def _flag(value: object) -> bool:
    if type(value) is not bool:
        raise ValueError("must be true or false")
    return value


def _nano_usd(value: object) -> int:
    return round(Decimal(str(_above_0(value))) * NANO_USD)


def date_of(value: object) -> date | None:
    """Return a date of TOML, or one as text (ISO 8601); None for anything else."""
    if isinstance(value, str):
        try:
            return date.fromisoformat(value.strip())
        except ValueError:
            return None
    return value if isinstance(value, date) and not isinstance(value, datetime) else None


def _end_of_day(value: object) -> int:
    day = date_of(value)
    if day is None:
        raise ValueError("must be a date such as 2027-01-31")
    return int(datetime.combine(day + timedelta(days=1), time(), UTC).timestamp())


KINDS = ("ipmi", "redfish", "prometheus")
"""Kinds of sources, as `agent.host.plug` reads them."""
_GRID = re.compile(r"(\d+(?:\.\d+)?) g/kWh, (.+), (\d{4}-\d\d-\d\d)")


@dataclass(frozen=True, slots=True)
class PlugSource:
    """Source of the power of this host's server at its plug."""

    kind: str
    url: str = ""
    query: str = ""
    """PromQL of kind `prometheus`."""

    @property
    def shown(self) -> str:
        """Kind and URL."""
        return f"{self.kind} {self.url}".strip()


def read_plug_sources(texts: Iterable[str]) -> tuple[PlugSource, ...]:
    """Return sources in their order. Raises ValueError."""
    sources = []
    for text in texts:
        kind, _, rest = text.strip().partition(" ")
        url, _, query = rest.strip().partition(" ")
        complete = {"ipmi": not rest, "redfish": bool(url and not query), "prometheus": bool(query.strip())}
        if not complete.get(kind):
            raise ValueError(f"{kind[:20]!r} is not one of: ipmi | redfish URL | prometheus URL QUERY")
        sources.append(PlugSource(kind, url, query.strip()))
    return tuple(sources)


@dataclass(frozen=True, slots=True)
class Grid:
    """Carbon intensity of the electricity that is used."""

    g_per_kwh: float
    """Grams of CO2 equivalent."""
    source: str
    as_of: str


def read_grid(value: object) -> Grid:
    """Return the intensity with its source and date. Raises ValueError."""
    match = _GRID.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("must be as in: 363 g/kWh, Ember for Germany in 2024, 2025-01-23")
    date.fromisoformat(match[3])
    return Grid(float(match[1]), match[2].strip(), match[3])
