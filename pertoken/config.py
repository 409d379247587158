"""Settings: one TOML file into frozen values, each also settable by the environment.

The table of keys below is read by the loader, by `pertoken config`, and by the documentation.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pertoken import fleet_settings as fleet
from pertoken.access import Access, read_access
from pertoken.errors import BadInput
from pertoken.rule_options import RuleSettings, read_rules
from pertoken.units import format_duration, parse_duration_s

APP = "pertoken"
PROBES = ("nvidia", "amd", "gaudi")
"""Vendors whose devices the agent can read; the host and its CPUs are always read."""
TLS = ("verify-full", "verify-ca", "require", "disable")
"""How far a server's certificate is believed, in libpq's words."""
SERVICE_FOLDER = Path("/var/lib/pertoken")
"""Where the system service keeps its database."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and what Python makes of bytes that are not UTF-8; tables may hold tabs and line ends."""


class _Unrepeated(ValueError):
    """A mistake in a value that may hold a secret: the message does not show it."""


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be text")
    return value.strip()


def _secret_text(value: object) -> str:
    try:
        return _text(value)
    except ValueError as error:
        raise _Unrepeated(str(error)) from None


def without_password(url: str) -> str:
    """A database's folder or URL as it may be shown, however it is written."""
    shown = re.sub(r"^([A-Za-z0-9+.]+:/*[^:/@?]*):.*@", r"\1:***@", url)
    return re.sub(r"(password=)[^&]*", r"\1***", shown)


def _flag(value: object) -> bool:
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    raise ValueError("must be true or false")


def _seconds(value: object, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a duration such as 10s, 5m or 24h")
    seconds = parse_duration_s(value) if isinstance(value, str) else float(value)
    if seconds < least:
        raise ValueError(f"must be at least {format_duration(least) if least >= 1 else f'{1000 * least:g}ms'}")
    return seconds


def _interval(value: object) -> int:
    seconds = _seconds(value, 1)
    if seconds != int(seconds) or 60 % int(seconds):
        raise ValueError("must be whole seconds that divide a minute: 1s, 2s, 5s, 10s, 15s, 20s, 30s or 60s")
    return int(seconds)


def _window(value: object) -> float:
    return _seconds(value, 60)


def _age(value: object) -> float:
    return _seconds(value, 3600)


def _check_pause(value: object) -> float:
    return _seconds(value, 1)


def _at_least(value: object, low: int) -> float:
    number = _positive(value)
    if number < low:
        raise ValueError(f"must be at least {low}")
    return number


def _items(value: object) -> object:
    """Return the items of a text, as in TOML (`["a", "b"]`, `[]`) or with commas between; anything else as it is."""
    if not isinstance(value, str):
        return value
    if not value.strip().startswith("["):
        return [part.strip() for part in value.split(",") if part.strip()]
    try:
        return tomllib.loads(f"items = {value}")["items"]
    except tomllib.TOMLDecodeError:
        return None


def _urls(value: object) -> tuple[str, ...]:
    items = _items(value)
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError("must be a list of base URLs")
    return tuple(base_url(item) for item in items)


def _texts(what: str) -> Any:
    def parse(value: object) -> tuple[str, ...]:
        items = _items(value)
        if not isinstance(items, list | tuple) or not all(isinstance(item, str) and item.strip() for item in items):
            raise ValueError(f"must be a list of {what}")
        return tuple(item.strip() for item in items)

    return parse


def _forbidden(value: object) -> tuple[str, ...]:
    return fleet.read_forbidden(_items(value))


def _access(value: object) -> tuple[Access, ...]:
    try:
        rows = tomllib.loads(f"rows = {value}")["rows"] if isinstance(value, str) else value
        return tuple(replace(each, url=base_url(each.url)) for each in read_access(rows))
    except tomllib.TOMLDecodeError:
        raise _Unrepeated("must be a list of tables as in TOML: [{url = ..., token_file = ...}]") from None
    except ValueError as error:
        raise _Unrepeated(str(error)) from None


def _tables(read: Any) -> Any:
    """Return a parser of tables, which an environment variable holds as inline TOML. Messages name the wrong key."""

    def parse(value: object) -> Any:
        try:
            return read(tomllib.loads(f"tables = {value}")["tables"] if isinstance(value, str) else value)
        except tomllib.TOMLDecodeError:
            raise _Unrepeated("must be tables as in TOML, on one line") from None
        except ValueError as error:
            raise _Unrepeated(str(error)) from None

    return parse


def _probes(value: object) -> tuple[str, ...]:
    items = _items(value)
    if not isinstance(items, list | tuple):
        raise ValueError(f"must be a list of probes: {', '.join(PROBES)}")
    for item in items:
        if item not in PROBES:
            raise ValueError(f"{item!r} is not a probe: there are {', '.join(PROBES)}")
    return tuple(items)


def _tls(value: object) -> str:
    if value not in TLS:
        raise ValueError(f"must be one of {', '.join(TLS)}")
    return str(value)


def _marks(value: object) -> int:
    number = _positive(value)
    if number != int(number) or number < 1000:
        raise ValueError("must be a whole number of at least 1000")
    return int(number)


def base_url(value: str) -> str:
    """A base URL without its trailing slash, checked.

    Raises ValueError if it is not http(s)://host[:port][/path], without repeating one that holds a password.
    """
    from urllib.parse import urlsplit

    parts = urlsplit(value.strip())
    if "@" in parts.netloc:
        raise _Unrepeated("a base URL must not hold a user name or password: use agent.access")
    try:
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment:
        raise ValueError(f"{value!r} is not a base URL: write it like http://127.0.0.1:8000")
    return value.strip().rstrip("/")


def _positive(value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError("must be a number") from None
    if isinstance(value, bool) or not 0 < number < float("inf"):
        raise ValueError("must be a number above 0")
    return number


def _setting(section: str, parse: Any, default: Any, example: str, **kwargs: Any) -> Any:
    return field(default=default, metadata={"section": section, "parse": parse, "example": example, **kwargs})


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. Durations are seconds; None means *decide by what is there*."""

    db: str | None = _setting("", _secret_text, None, '"/var/lib/pertoken"')
    """Database: a folder (telemetry.db and advice.db in it) or a PostgreSQL URL. Without it: the service's folder
    if it can be read, else your own data folder."""
    advice: str | None = _setting("", _text, None, '"/home/me/pertoken-advice"')
    """Folder of advice.db where it is to live apart from the telemetry (when that is only readable)."""
    services: tuple[fleet.ServiceSettings, ...] = _setting(
        "", _tables(fleet.read_services), (), '{chat = {models = ["llama-70b"], ttft_p95_ms = 500, min_replicas = 2}}'
    )
    """What clients call by one name, as tables [services."NAME"]: `models` (served model names; by default NAME alone,
    and each other model is a service of its own), `ttft_p50_ms`, `ttft_p95_ms`, `tpot_p50_ms`, `tpot_p95_ms`,
    `min_replicas`, `spare_replicas` (beyond what the demand needs), `isolation` ("tenant": shares nothing), `forbid`
    (changes that are never proposed, as in `advisor.forbid`), `quality_gate` (as `advisor.quality_gate`),
    `quality_passed` (changes you evaluated: ["weight_dtype=fp8", "model=Qwen/Qwen3-8B"])."""
    hosts: tuple[fleet.HostSettings, ...] = _setting(
        "", _tables(fleet.read_hosts), (), '{gpu-1 = {purchase = "reserved", paid_until = "2027-01-31"}}'
    )
    """How hosts are paid for, over what was detected, as tables [hosts."NAME"]: `provider`, `region`, `instance_type`,
    `purchase` (on_demand, spot, reserved or owned), `paid_until` (a date)."""
    commitments: tuple[fleet.CommitmentSettings, ...] = _setting(
        "",
        _tables(fleet.read_commitments),
        (),
        '[{provider = "aws", instance_type = "p5.48xlarge", count = 2, usd_per_instance_hour = 30, end = 2027-01-31}]',
    )
    """Instances that are paid for until a date, used or not, as tables [[commitments]]: `provider`, `region` (if it
    matters), `instance_type`, `count`, `usd_per_instance_hour`, `end` (a date)."""
    rules: tuple[RuleSettings, ...] = _setting("", _tables(read_rules), (), "{quantize-weights = {few_running = 8}}")
    """Options of rules, as tables [rules.ID]. `pertoken rules explain ID` lists the options of a rule."""
    agent_interval: int = _setting("agent", _interval, 10, '"10s"')
    """Seconds between ticks; divides a minute."""
    agent_engines: tuple[str, ...] = _setting("agent", _urls, (), '["http://127.0.0.1:8000"]', option="--engine")
    """Base URLs of inference servers to read besides those discovered; the kind is detected."""
    agent_access: tuple[Access, ...] = _setting(
        "agent", _access, (), '[{url = "https://gpu-1:8000", token_file = "/etc/pertoken/token", ca_file = "ca.pem"}]'
    )
    """What servers ask for before they show their page, by base URL: `token_file` or `token_env` (bearer token),
    `cert_file` and `key_file` (client certificate), `ca_file` and `server_name` (whose certificate to believe)."""
    agent_discover: bool = _setting("agent", _flag, True, "true")
    """Whether to look for inference servers among this host's processes."""
    agent_probes: tuple[str, ...] = _setting("agent", _probes, PROBES, '["nvidia"]')
    """Vendors whose devices are read; [] reads the host and its CPUs alone."""
    agent_cloud_metadata: bool = _setting("agent", _flag, True, "true")
    """Whether to ask the cloud's metadata service (only of the cloud this host's firmware names, link-local) for
    instance type, region and spot or on-demand, which give a list price where you set none."""
    agent_scrape_timeout: float = _setting("agent", lambda v: _seconds(v, 0.1), 3.0, '"3s"')
    """Longest one scrape of an engine may take, connection and page together."""
    agent_page_limit_mb: float = _setting("agent", _positive, 8.0, "8")
    """Largest metrics page read, in megabytes; a larger one is refused, not cut."""
    ship_url: str | None = _setting("ship", _secret_text, None, '"postgresql://gpu_1@db.example.com/pertoken"')
    """Server that gets this host's roll-ups (`pertoken db init-fleet` prepares it). Without it: the URL in the
    credential pertoken.database-url, where the service manager hands one over; else nothing is shipped."""
    ship_password_file: str | None = _setting("ship", _text, None, '"/etc/pertoken/password"')
    """File whose first line is the server's password, read at every connection; it belongs into no URL."""
    ship_tls: str | None = _setting("ship", _tls, None, '"verify-full"')
    """verify-full | verify-ca | require | disable. Without it: verify-full, but for a socket or a loopback address."""
    ship_ca_file: str | None = _setting("ship", _text, None, '"/etc/pertoken/ca.pem"')
    """Certificates of the authorities to believe for the server, PEM. Without it: the system's."""
    ship_cert_file: str | None = _setting("ship", _text, None, '"/etc/pertoken/gpu-1.pem"')
    """Client certificate to show to the server, PEM."""
    ship_key_file: str | None = _setting("ship", _text, None, '"/etc/pertoken/gpu-1.key"')
    """Key of that certificate, PEM."""
    ship_every: float = _setting("ship", lambda v: _seconds(v, 1), 60.0, '"60s"')
    """Time between two batches; a bucket that changed several times meanwhile is sent once."""
    ship_raw: bool = _setting("ship", _flag, False, "false")
    """Whether ticks are shipped too; without it only where the server asks for some (`pertoken db request-raw`)."""
    ship_spool_marks: int = _setting("ship", _marks, 1_000_000, "1000000")
    """Most rows and buckets noted as not yet shipped (about 60 bytes each) while the server is away. Beyond it ticks
    are given up, oldest first, and roll-ups are found again by comparing with the server."""
    store_raw: float = _setting("store", _age, 172_800.0, '"48h"')
    """How long ticks are kept. Roll-ups hold the sums of what is deleted."""
    store_minutes: float = _setting("store", _age, 2_592_000.0, '"30d"')
    """How long 1-min roll-ups are kept."""
    store_hours: float = _setting("store", _age, 63_072_000.0, '"730d"')
    """How long 1-h roll-ups are kept."""
    store_events: float = _setting("store", _age, 63_072_000.0, '"730d"')
    """How long events are kept; of a host never more than the newest 10,000."""
    store_max_mb: float | None = _setting("store", lambda v: _at_least(v, 4), None, "2000")
    """Most megabytes the telemetry file may take; beyond it the oldest ticks go before their age, then the oldest
    1-min roll-ups. Without it only a full disk is the limit, where the same is done."""
    store_check_every: float = _setting("store", _check_pause, 3600.0, '"1h"')
    """Pause between two passes that read all that is stored again and hold it against its checksums; one takes
    ten minutes or less."""
    advisor_since: float = _setting("advisor", _window, 604_800.0, '"7d"')
    """Window of telemetry that rules look at, but for those that name one of their own."""
    advisor_every: float = _setting("advisor", _window, 3600.0, '"1h"')
    """Time between the starts of two advice runs of `pertoken advise --every` and `pertoken up`, which runs first once
    5 minutes are recorded."""
    advisor_rule_timeout: float = _setting("advisor", lambda v: _seconds(v, 0.1), 10.0, '"10s"')
    """Longest one rule may take for one deployment or service, or for the fleet, and a plugin to load. For all of them
    a rule may take six times as long."""
    advisor_rules: tuple[str, ...] = _setting(
        "advisor", _texts("files and folders"), (), '["/home/me/lower_clocks.py"]'
    )
    """Files with rules, and folders of such files, that every run loads besides installed packages and the folder
    rules.d beside this file. A relative path starts in the folder of this file."""
    advisor_allow: tuple[str, ...] | None = _setting("advisor", _texts("distributions"), None, '["acme-rules"]')
    """Installed distributions whose rules may be loaded, besides pertoken. Without it all may; [] allows none."""
    advisor_deny: tuple[str, ...] = _setting("advisor", _texts("distributions"), (), '["acme-rules"]')
    """Installed distributions whose rules are never loaded, allowed or not."""
    advisor_forbid: tuple[str, ...] = _setting("advisor", _forbidden, (), '["model", "purchase", "commitments"]')
    """Changes that no rule may propose, for all services: a knob (docs/rules.md), `placement` or a part of it
    (`provider`, `region`, `instance_type`, `accelerator`, `purchase`), `demand` or a part of it, `replicas`,
    `schedule`, `shares`, `devices`, `restart`, `release`, `partitions`, `commitments`."""
    advisor_quality_gate: bool = _setting("advisor", _flag, False, "true")
    """Whether what can alter outputs (another model, fewer bits, shorter prompts or outputs, a response cache) is
    refused for all services until it is in `quality_passed` of [services."NAME"]."""
    advisor_kernel_tables: str | None = _setting("advisor", _text, None, '"/opt/kernels/bin/python"')
    """Python of an environment that has aiconfigurator (`pip install aiconfigurator`): NVIDIA's kernel tables are then
    a second opinion, blended into each forecast they cover. Without it the forecast speaks alone."""
    market_provider: str | None = _setting("market", _text, None, '"aws"')
    """Only offers of this provider are considered; without it, all in the catalog."""
    market_region: str | None = _setting("market", _text, None, '"us-east-1"')
    """Only offers of this region are considered."""
    market_token_apis: tuple[str, ...] = _setting("market", _texts("serverless APIs"), (), '["bedrock"]')
    """Serverless APIs whose answers you compared with your own, and that your prompts may be sent to. Of others only
    the break-even is shown."""
    slo_ttft_ms: float | None = _setting("slo", _positive, None, "500")
    """Objective for p95 time to first token, milliseconds."""
    slo_tpot_ms: float | None = _setting("slo", _positive, None, "50")
    """Objective for p95 time per output token, milliseconds."""
    slo_ttft_p50_ms: float | None = _setting("slo", _positive, None, "200")
    """Objective for the median time to first token, milliseconds."""
    slo_tpot_p50_ms: float | None = _setting("slo", _positive, None, "30")
    """Objective for the median time per output token, milliseconds."""
    energy_usd_per_kwh: float | None = _setting("energy", _positive, None, "0.12")
    """What a kilowatt-hour costs you, where the hardware is your own. Without it energy saves no dollars."""
    energy_pue: float = _setting("energy", lambda v: _at_least(v, 1), 1.0, "1.3")
    """Power usage effectiveness: energy of the whole facility over that of the devices."""
    source: Path | None = field(default=None, metadata={"section": None})
    set_by: Mapping[str, str] = field(default_factory=dict, metadata={"section": None})
    """Where each attribute that is not at its default was set, as messages name it: `FILE: rules`, `PERTOKEN_RULES`."""

    @property
    def folder(self) -> Path:
        """The folder of the settings file, or where that file would be."""
        return (self.source or default_file()).parent

    @classmethod
    def table(cls) -> "list[Setting]":
        """Every setting with its names, in the order of the file."""
        return [Setting.of(each) for each in fields(cls) if each.metadata["section"] is not None]


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: its attribute of `Settings`, its place in the file, its environment variable."""

    attribute: str
    section: str
    key: str
    environment: str
    default: Any
    example: str
    parse: Any
    option: str
    """As typed on the command line, by the commands that have it: `--interval`."""

    @classmethod
    def of(cls, spec: "Field[Any]") -> "Setting":
        """The key a field of `Settings` stands for."""
        section = spec.metadata["section"]
        key = spec.name.removeprefix(f"{section}_") if section else spec.name
        return cls(
            attribute=spec.name,
            section=section,
            key=key,
            environment=f"{APP}_{spec.name}".upper(),
            default=spec.default,
            example=spec.metadata["example"],
            parse=spec.metadata["parse"],
            option=spec.metadata.get("option", f"--{key.replace('_', '-')}"),
        )

    @property
    def name(self) -> str:
        """As written in messages: `agent.interval`."""
        return f"{self.section}.{self.key}" if self.section else self.key


def default_file() -> Path:
    """The settings file in the platform's folder for this person or service."""
    import platformdirs

    return Path(platformdirs.user_config_dir(APP)) / "pertoken.toml"


def load(path: str | Path | None = None, environment: Mapping[str, str] = os.environ, **options: Any) -> Settings:
    """Settings from, in rising precedence: defaults, the file, the environment, command-line options.

    The file is `path`, else `PERTOKEN_CONFIG`, else the platform's; only a named one has to exist. Options that are
    None are taken as not given. Raises BadInput naming the key and where it was set.
    """
    named = path or environment.get("PERTOKEN_CONFIG")
    file = Path(named) if named else default_file()
    table: dict[str, Any] = {}
    found = file.is_file()
    if found:
        try:
            table = tomllib.loads(file.read_text())
        except tomllib.TOMLDecodeError as error:
            raise BadInput(f"{file}: not valid TOML: {error}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{file}: cannot be read: {error}") from None
    elif named:
        raise BadInput(f"{file}: no such settings file (`pertoken config init` writes one)")

    keys = Settings.table()
    _refuse_unknown(table, keys, file)
    values: dict[str, Any] = {"source": file if found else None}
    set_by: dict[str, str] = {}
    for key in keys:
        place = table.get(key.section, {}) if key.section else table
        given: list[tuple[str, Any]] = []
        if key.key in place:
            given.append((f"{file}: {key.name}", place[key.key]))
        if key.environment in environment:
            given.append((key.environment, environment[key.environment]))
        if options.get(key.attribute) is not None:
            given.append((key.option, options[key.attribute]))
        for where, value in given:
            values[key.attribute], set_by[key.attribute] = _parsed(key, value, where), where
    return Settings(**values, set_by=set_by)


def _parsed(key: Setting, value: Any, where: str) -> Any:
    try:
        if isinstance(value, str) and _CONTROL.search(value):
            raise _Unrepeated("must be UTF-8 text without control characters")
        return key.parse(value)
    except _Unrepeated as error:
        raise BadInput(f"{where}: {error}") from None
    except ValueError as error:
        raise BadInput(f"{where}: {error} (got {value!r})") from None


def _refuse_unknown(table: Mapping[str, Any], keys: "list[Setting]", file: Path) -> None:
    sections = {key.section for key in keys if key.section}
    known = {(key.section, key.key) for key in keys}
    for name, value in table.items():
        if name in sections:
            if not isinstance(value, dict):
                raise BadInput(f"{file}: {name}: must be a section, written [{name}]")
            for key in value:
                if (name, key) not in known:
                    raise BadInput(f"{file}: {name}.{key}: no such setting{_nearest(key, name, keys)}")
        elif ("", name) not in known:
            raise BadInput(f"{file}: {name}: no such setting{_nearest(name, '', keys)}")


def _nearest(wrong: str, section: str, keys: "list[Setting]") -> str:
    from difflib import get_close_matches

    names = {key.key: key.name for key in keys if key.section == section} | {key.name: key.name for key in keys}
    close = get_close_matches(wrong, list(names), n=1)
    return f" (did you mean {names[close[0]]}?)" if close else ""
