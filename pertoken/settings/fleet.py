"""Settings of services, hosts, commitments and pages of the team: tables by name, beside the plain keys of `config`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from pertoken.units import NANO_USD


def read_listen(value: object) -> tuple[str, int]:
    """Return (address, port) of `127.0.0.1:9877`, `[::1]:9877`, or of a port alone, which is of 127.0.0.1."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        raise ValueError("must be an address and a port, such as 127.0.0.1:9877")
    host, _, port = text.strip().rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    try:
        number = int(port)
        ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise ValueError("must be an address and a port, such as 127.0.0.1:9877") from None
    if not 0 <= number <= 65_535:
        raise ValueError("must have a port from 0 (any that is free) to 65535")
    return host, number


def is_loopback(host: str) -> bool:
    """Return whether only this host reaches an address."""
    return host == "localhost" or ipaddress.ip_address(host).is_loopback


_HEADER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")


@dataclass(frozen=True, slots=True)
class PageReader:
    """One login to the pages: a token in a file, or a user that a proxy names."""

    token_file: str | None = None
    user: str | None = None
    owners: tuple[str, ...] | None = None
    """Owners whose services it reads; None: everything."""


def read_readers(value: object) -> tuple[PageReader, ...]:
    """Return the readers of a setting. Raises ValueError naming the table and key that is wrong."""
    if not isinstance(value, list | tuple) or not all(isinstance(row, dict) for row in value):
        raise ValueError("must be a list of tables with token_file or user, and owners")
    return tuple(_reader(number, row) for number, row in enumerate(value, 1))


def _reader(number: int, row: dict[str, object]) -> PageReader:
    values = read_row(f"reader {number}", row, {"token_file": _text, "user": _text, "owners": _owners})
    if ("token_file" in values) == ("user" in values):
        raise ValueError(f"reader {number}: must have token_file or user, and not both")
    return PageReader(**values)


def _owners(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(owner, str) and owner.strip() for owner in value):
        raise ValueError("must be a list of owners of [services]")
    return tuple(owner.strip() for owner in value)


def read_networks(items: object) -> tuple[str, ...]:
    """Return addresses and networks. Raises ValueError for a network of all addresses, which nobody vouches for."""
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError("must be a list of addresses and networks, such as 10.0.0.7 and 10.0.1.0/28")
    for item in items:
        try:
            network = ipaddress.ip_network(item.strip())
        except ValueError:
            raise ValueError(f"{item!r} is not an address or a network, such as 10.0.0.7 and 10.0.1.0/28") from None
        if network.prefixlen == 0:
            raise ValueError(f"{item} has every address: anybody could name a user")
    return tuple(item.strip() for item in items)


def read_header_name(value: object) -> str:
    """Return the name of an HTTP header."""
    if not isinstance(value, str) or not _HEADER_NAME.fullmatch(value):
        raise ValueError("must be the name of a header, such as X-Forwarded-User")
    return value


def unsafe_pages(
    host: str, readers: Sequence[PageReader], proxies: Collection[str], cert_file: str | None
) -> str | None:
    """Return why pages are not served at an address with these settings; None if they are safe to serve."""
    if not is_loopback(host):
        if not readers:
            return f"{host} is no loopback address: set advisor.pages_readers, too"
        if cert_file is None and not proxies:
            return f"{host} is no loopback address: set advisor.pages_cert_file, or advisor.pages_proxies to end TLS"
    if proxies and not readers:
        return "advisor.pages_proxies name users: set advisor.pages_readers, too"
    if any(reader.user is not None for reader in readers) and not proxies:
        return "a user of advisor.pages_readers is named by a proxy: set advisor.pages_proxies, too"
    return None


THEMES = ("dark", "light", "16-colour")
"""Colours of the screens; `16-colour` uses those of the terminal."""
BORDERS = ("unicode", "ascii")
"""Characters that lines, bars and plots are drawn with."""
HEADLINES = ("blended", "generated", "per_request", "good")
"""Prices that may be the headline, which `metrics.HEADLINES` explains."""
REFRESHES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Times between two readings that the settings screen offers, seconds."""
_ACTION = re.compile(r"[a-z_]+")


def one_of(names: tuple[str, ...]) -> Callable[[object], str]:
    """Return a parser of one of some names."""

    def parse(value: object) -> str:
        if value not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return str(value)

    return parse


def read_keys(table: object) -> tuple[tuple[str, str], ...]:
    """Return (action, key) of a table such as `{sort = "s"}`. Whether both exist is checked by the screens."""
    if not isinstance(table, Mapping):
        raise ValueError('must be a table of actions and keys, such as {sort = "s"}')
    for action, key in table.items():
        if not _ACTION.fullmatch(action):
            raise ValueError(f"{action}: is not an action; docs/keys.md lists them")
        if not isinstance(key, str) or not key.strip() or len(key) > 40:
            raise ValueError(f'{action}: must be a key, such as "s", "ctrl+s" or "f5"')
    return tuple((action, key.strip()) for action, key in table.items())


HOST_PURCHASES = ("on_demand", "spot", "reserved", "owned")
ISOLATIONS = ("tenant",)
KNOBS = (
    "model", "engine", "engine_version", "tp", "pp", "dp", "ep", "weight_dtype", "kv_dtype", "max_num_seqs",
    "max_num_batched_tokens", "enable_chunked_prefill", "max_model_len", "gpu_memory_utilization", "enforce_eager",
    "attention_backend", "enable_prefix_caching", "num_speculative_tokens", "speculative_method", "draft_model",
    "lora_adapters", "kv_offload_bytes", "sm_clock_mhz", "power_cap_w", "sleep", "role",
)  # fmt: skip
"""Knobs of a deployment, as in `pertoken.state.deployment`, which settings cannot import."""
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
    fields |= {"quality_gate": read_flag, "quality_passed": _passed}
    services = []
    owners: dict[str, str] = {}
    for name, row in tables_by_name(value, 'services."NAME"'):
        values = read_row(f'"{name}"', row, fields)
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
    rows = tables_by_name(value, 'hosts."NAME"')
    return tuple(HostSettings(name, **read_row(f'"{name}"', row, fields)) for name, row in rows)


def read_commitments(value: object) -> tuple[CommitmentSettings, ...]:
    """Return the commitments of a setting. Raises ValueError naming the table and key that is wrong."""
    fields: dict[str, Reader] = {
        "provider": _text,
        "region": _text,
        "instance_type": _text,
        "count": _at_least(1),
        "usd_per_instance_hour": _nano_usd,
        "end": _end_of_day,
    }
    commitments = []
    for number, row in enumerate(list_of_tables(value, "commitments"), 1):
        values = read_row(f"commitment {number}", row, fields, [name for name in fields if name != "region"])
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
        fields: dict[str, Reader] = {"url": lambda item: url(_text(item)), "kind": one_of(kinds)}
        fields |= {"models": _texts_by_name, "users": read_flag}
        rows = enumerate(list_of_tables(value, "gateways"), 1)
        return tuple(GatewaySettings(**read_row(f"gateway {n}", row, fields, ["url"])) for n, row in rows)

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


def tables_by_name(value: object, form: str) -> list[tuple[str, Mapping[str, object]]]:
    """Return tables with their names. Raises ValueError with the accepted form."""
    if not isinstance(value, dict) or not all(isinstance(row, dict) for row in value.values()):
        raise ValueError(f"must be tables by name, each written [{form}]")
    return list(value.items())


def list_of_tables(value: object, form: str) -> list[dict[str, object]]:
    """Return tables of a list. Raises ValueError with the accepted form."""
    if not isinstance(value, list | tuple) or not all(isinstance(row, dict) for row in value):
        raise ValueError(f"must be a list of tables, each written [[{form}]]")
    return list(value)


def read_row(
    where: str, row: Mapping[str, object], fields: Mapping[str, Reader], required: Collection[str] = ()
) -> dict[str, Any]:
    """Return the values of a table by key. Raises ValueError naming the key that is wrong or missing."""
    for key in row:
        if key not in fields:
            raise ValueError(f"{where}.{key}: no such key; there are {', '.join(fields)}")
    for key in required:
        if key not in row:
            raise ValueError(f"{where}: {key} is missing")
    values = {}
    for key, value in row.items():
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


def read_flag(value: object) -> bool:
    """Return a truth value. Raises ValueError for anything else."""
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
class GridCarbon:
    """Carbon intensity of the electricity that is used."""

    g_per_kwh: float
    """Grams of CO2 equivalent."""
    source: str
    as_of: str


def read_grid(value: object) -> GridCarbon:
    """Return the intensity with its source and date. Raises ValueError."""
    match = _GRID.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("must be as in: 363 g/kWh, Ember for Germany in 2024, 2025-01-23")
    date.fromisoformat(match[3])
    return GridCarbon(float(match[1]), match[2].strip(), match[3])
