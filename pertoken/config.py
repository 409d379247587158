"""Settings: one TOML file into frozen values, each also settable by the environment.

The table of keys below is read by the loader, by `pertoken config`, and by the documentation.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, cast

from pertoken.access import Access
from pertoken.errors import BadInput
from pertoken.settings import fleet, owners, values
from pertoken.settings.alerts import AlertSettings, read_alerts
from pertoken.settings.fleet import GridCarbon, PlugSource, is_loopback, read_grid, read_listen
from pertoken.settings.values import (
    APP,
    USD,
    Currency,
    CurrencyRate,
    RuleSettings,
    Setting,
    parsed,
    read_code,
    read_rates,
    read_rules,
    refuse_unknown,
    toml,
)

T = TypeVar("T")
MAX_FILE_BYTES = 4 * 2**20
GATEWAYS = ("litellm", "sgl-router", "llm-d")
"""Gateways that the agent can read."""
SERVICE_FOLDER = Path("/var/lib/pertoken")
"""Where the system service keeps its database."""
SERVICE_ADVICE = SERVICE_FOLDER / "advice"
"""Where the advisor, as a service with a user of its own, keeps its advice."""
SERVICE_SETTINGS = Path("/etc/pertoken/pertoken.toml")
"""Settings of both services."""


def _setting(section: str, parse: Callable[[object], T], default: T, example: str, **option: str) -> T:
    return field(default=default, metadata={"section": section, "parse": parse, "example": example, **option})


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. Durations are seconds; None means *decide by what is there*."""

    db: str | None = _setting("", values.secret_text, None, '"/var/lib/pertoken"')
    """Database: a folder (telemetry.db and advice.db in it) or a PostgreSQL URL. Without it: the service's folder
    if it can be read, else your own data folder."""
    advice: str | None = _setting("", values.text, None, '"/home/me/pertoken-advice"')
    """Folder of advice.db where it is to live apart from the telemetry (when that is only readable)."""
    services: tuple[fleet.ServiceSettings, ...] = _setting(
        "",
        values.tables(fleet.read_services),
        (),
        '{chat = {models = ["llama-70b"], ttft_p95_ms = 500, min_replicas = 2}}',
    )
    """What clients call by one name, as tables [services."NAME"]: `models` (served model names; by default NAME alone,
    and each other model is a service of its own), `owner` (who decides on its recommendations), `ttft_p50_ms`,
    `ttft_p95_ms`, `tpot_p50_ms`, `tpot_p95_ms`, `min_replicas`, `spare_replicas` (beyond what the demand needs),
    `isolation` ("tenant": shares nothing, moves nowhere), `forbid` (changes that are never proposed, as in
    `advisor.forbid`), `quality_gate` (as `advisor.quality_gate`), `quality_passed` (changes you evaluated:
    ["weight_dtype=fp8", "model=Qwen/Qwen3-8B"])."""
    hosts: tuple[fleet.HostSettings, ...] = _setting(
        "", values.tables(fleet.read_hosts), (), '{gpu-1 = {purchase = "reserved", paid_until = "2027-01-31"}}'
    )
    """How hosts are paid for, over what was detected, as tables [hosts."NAME"]: `provider`, `region`, `instance_type`,
    `purchase` (on_demand, spot, reserved or owned), `paid_until` (a date), `resource_id` (what a bill calls it, such as
    "i-0abc12", for `pertoken reconcile`)."""
    commitments: tuple[fleet.CommitmentSettings, ...] = _setting(
        "",
        values.tables(fleet.read_commitments),
        (),
        '[{provider = "aws", instance_type = "p5.48xlarge", count = 2, usd_per_instance_hour = 30, end = 2027-01-31}]',
    )
    """Instances that are paid for until a date, used or not, as tables [[commitments]]: `provider`, `region` (if it
    matters), `instance_type`, `count`, `usd_per_instance_hour`, `end` (a date)."""
    gateways: tuple[fleet.GatewaySettings, ...] = _setting(
        "",
        values.tables(fleet.read_gateways(GATEWAYS, values.base_url)),
        (),
        '[{url = "http://127.0.0.1:4000", kind = "litellm"}]',
    )
    """Gateways whose pages count tokens by tenant, which the agent reads once a minute, as tables [[gateways]]: `url`,
    `kind` (litellm, sgl-router or llm-d; by its page where it is left out), `models` (names of its models -> served
    model names, where they differ), `users` (whether end users are kept apart). A token is set in agent.access."""
    tenants: tuple[fleet.TenantTeam, ...] = _setting(
        "", values.tables(fleet.read_tenants), (), '{alpha-prod = "search"}'
    )
    """Teams of keys or namespaces, as a table [tenants] from names to teams, for `pertoken costs --by team`. They
    replace the team that a gateway names."""
    shared: tuple[owners.SharedLine, ...] = _setting(
        "",
        values.tables(owners.read_shared),
        (),
        '[{line = "namespace=gateway", by = "tokens"}, {line = "unallocated"}]',
    )
    """Lines of `pertoken costs --by` that the other lines share, as tables [[shared]]: `line` (model=NAME, an owner
    such as namespace=gateway, or "unallocated", "other work", "no owner") and `by` ("dollars", the default, "tokens" or
    "equal"). Lines then have both bases: what was allocated, and the same with their part of the shared lines."""
    rules: tuple[RuleSettings, ...] = _setting(
        "", values.tables(read_rules), (), "{quantize-weights = {few_running = 8}}"
    )
    """Options of rules, as tables [rules.ID]. `pertoken rules explain ID` lists the options of a rule."""
    agent_interval: int = _setting("agent", values.interval, 10, '"10s"')
    """Seconds between ticks; divides a minute."""
    agent_engines: tuple[str, ...] = _setting("agent", values.urls, (), '["http://127.0.0.1:8000"]', option="--engine")
    """Base URLs of inference servers to read besides those discovered; the kind is detected."""
    agent_access: tuple[Access, ...] = _setting(
        "agent",
        values.access,
        (),
        '[{url = "https://gpu-1:8000", token_file = "/etc/pertoken/token", ca_file = "ca.pem"}]',
    )
    """What servers ask for before they show their page, by base URL: `token_file` or `token_env` (bearer token),
    `cert_file` and `key_file` (client certificate), `ca_file` and `server_name` (whose certificate to believe).
    Of those that cover a URL the longest base URL counts, of equal ones the first."""
    agent_discover: bool = _setting("agent", values.flag, True, "true")
    """Whether to look for inference servers among this host's processes."""
    agent_pod_labels: tuple[str, ...] = _setting(
        "agent", values.pod_labels, (), '["team", "app.kubernetes.io/part-of"]'
    )
    """Labels of engines' pods that are stored as owners for `--by label:NAME`; no other label is read. A pod shows its
    labels to the agent in a downward API volume at /etc/podinfo (docs/gateways.md)."""
    agent_hpc_job_mapping_dir: str | None = _setting("agent", values.text, None, '"/run/gpu-jobs"', option="--hpc")
    """Folder in which the prolog of a batch system writes the ids of the jobs on each GPU, to a file named by its
    number (as for dcgm-exporter's --hpc-job-mapping-dir), for `--by job`. Slurm jobs are also read from the control
    group and environment of an engine's process."""
    agent_probes: tuple[str, ...] = _setting("agent", values.probes, values.PROBES, '["nvidia"]')
    """Vendors whose devices are read; [] reads the host and its CPUs alone."""
    agent_plug: tuple[PlugSource, ...] = _setting(
        "agent",
        values.plug_sources,
        (),
        """['ipmi', 'prometheus http://prometheus:9090 sum(pdu_outlet_watts{server="$host"})']""",
    )
    """What measures this server's power at its plug, the first that answers: "ipmi" (its BMC, by ipmitool),
    "redfish URL" (of a Power or EnvironmentMetrics resource, or of a PDU's outlet), "prometheus URL QUERY" (a PDU or
    smart plug by its exporter; $host is this host's name). Credentials are those of `agent.access`."""
    agent_cloud_metadata: bool = _setting("agent", values.flag, True, "true")
    """Whether to ask the cloud's metadata service (only of the cloud this host's firmware names, link-local) for
    instance type, region and spot or on-demand, which give a list price where you set none."""
    agent_metrics_listen: tuple[str, int] | None = _setting("agent", read_listen, None, '"127.0.0.1:9877"')
    """Address at which the agent serves Prometheus metrics (tokens, energy, devices, engines) at /metrics; a port alone
    is of 127.0.0.1. Without it there is no endpoint. Any address but a loopback one needs `metrics_token_file`."""
    agent_metrics_token_file: str | None = _setting("agent", values.text, None, '"/etc/pertoken/metrics-token"')
    """File whose first line a scraper must send as bearer token."""
    agent_metrics_cert_file: str | None = _setting("agent", values.text, None, '"/etc/pertoken/metrics.pem"')
    """Certificate of the endpoint, PEM: it then speaks TLS."""
    agent_metrics_key_file: str | None = _setting("agent", values.text, None, '"/etc/pertoken/metrics.key"')
    """Key of that certificate, PEM, where the certificate's file does not hold it."""
    agent_otlp_endpoint: str | None = _setting("agent", values.text, None, '"http://127.0.0.1:4318/v1/metrics"')
    """OTLP/HTTP collector that the agent pushes the same metrics to each minute (needs pertoken[otlp])."""
    agent_scrape_timeout: float = _setting("agent", lambda v: values.seconds(v, 0.1), 3.0, '"3s"')
    """Longest one scrape of an engine may take, connection and page together."""
    agent_page_limit_mb: float = _setting("agent", values.positive, 8.0, "8")
    """Largest metrics page read, in megabytes; a larger one is refused, not cut."""
    ship_url: str | None = _setting("ship", values.secret_text, None, '"postgresql://gpu_1@db.example.com/pertoken"')
    """Server that gets this host's roll-ups (`pertoken db init-fleet` prepares it). Without it: the URL in the
    credential pertoken.database-url, where the service manager hands one over; else nothing is shipped."""
    ship_password_file: str | None = _setting("ship", values.text, None, '"/etc/pertoken/password"')
    """File whose first line is the server's password, read at every connection; it belongs into no URL."""
    ship_tls: str | None = _setting("ship", values.tls, None, '"verify-full"')
    """verify-full | verify-ca | require | disable. Without it: verify-full, but for a socket or a loopback address."""
    ship_ca_file: str | None = _setting("ship", values.text, None, '"/etc/pertoken/ca.pem"')
    """Certificates of the authorities to believe for the server, PEM. Without it: the system's."""
    ship_cert_file: str | None = _setting("ship", values.text, None, '"/etc/pertoken/gpu-1.pem"')
    """Client certificate to show to the server, PEM."""
    ship_key_file: str | None = _setting("ship", values.text, None, '"/etc/pertoken/gpu-1.key"')
    """Key of that certificate, PEM."""
    ship_every: float = _setting("ship", lambda v: values.seconds(v, 1), 60.0, '"60s"')
    """Time between two batches; a bucket that changed several times meanwhile is sent once."""
    ship_raw: bool = _setting("ship", values.flag, False, "false")
    """Whether ticks are shipped too; without it only where the server asks for some (`pertoken db request-raw`)."""
    ship_spool_marks: int = _setting("ship", values.marks, 1_000_000, "1000000")
    """Most rows and buckets noted as not yet shipped (about 60 bytes each) while the server is away. Beyond it ticks
    are given up, oldest first, and roll-ups are found again by comparing with the server."""
    store_raw: float = _setting("store", values.age, 172_800.0, '"48h"')
    """How long ticks are kept. Roll-ups hold the sums of what is deleted."""
    store_minutes: float = _setting("store", values.age, 2_592_000.0, '"30d"')
    """How long 1-min roll-ups are kept."""
    store_hours: float = _setting("store", values.age, 63_072_000.0, '"730d"')
    """How long 1-h roll-ups are kept."""
    store_events: float = _setting("store", values.age, 63_072_000.0, '"730d"')
    """How long events are kept; of a host never more than the newest 10,000."""
    store_max_mb: float | None = _setting("store", lambda v: values.at_least(v, 4), None, "2000")
    """Most megabytes the telemetry file may take; beyond it the oldest ticks go before their age, then the oldest
    1-min roll-ups. Without it only a full disk is the limit, where the same is done."""
    store_check_every: float = _setting("store", lambda v: values.seconds(v, 1), 3600.0, '"1h"')
    """Pause between two passes that read all that is stored again and hold it against its checksums; one takes
    ten minutes or less."""
    advisor_since: float = _setting("advisor", values.window, 604_800.0, '"7d"')
    """Window of telemetry that rules look at, but for those that name one of their own."""
    advisor_every: float = _setting("advisor", values.window, 3600.0, '"1h"')
    """Time between the starts of two advice runs of `pertoken advise --every` and `pertoken up`, which runs first once
    5 minutes are recorded."""
    advisor_hour_rate: float = _setting("advisor", values.positive, 75.0, "120")
    """What an hour of the person who applies a change costs, US dollars. Lists fold away advice whose work pays back in
    over a year."""
    advisor_metrics_listen: tuple[str, int] | None = _setting("advisor", read_listen, None, '"127.0.0.1:9878"')
    """Address at which the advisor service serves Prometheus metrics (dollars) at /metrics; as agent.metrics_listen."""
    advisor_metrics_token_file: str | None = _setting("advisor", values.text, None, '"/etc/pertoken/metrics-token"')
    """File whose first line a scraper must send as bearer token."""
    advisor_metrics_cert_file: str | None = _setting("advisor", values.text, None, '"/etc/pertoken/metrics.pem"')
    """Certificate of the endpoint, PEM: it then speaks TLS."""
    advisor_metrics_key_file: str | None = _setting("advisor", values.text, None, '"/etc/pertoken/metrics.key"')
    """Key of that certificate, PEM, where the certificate's file does not hold it."""
    advisor_pages_listen: tuple[str, int] | None = _setting("advisor", read_listen, None, '"127.0.0.1:9404"')
    """Address at which the advisor service serves the team's pages (docs/team-pages.md). One that other hosts reach
    needs `pages_readers`, and `pages_cert_file` or `pages_proxies`."""
    advisor_pages_readers: tuple[fleet.PageReader, ...] = _setting(
        "advisor", values.tables(fleet.read_readers), (), '[{token_file = "/etc/pertoken/pages", owners = ["ml-ops"]}]'
    )
    """Logins to these pages, as tables: `token_file` (its first line is the token) or `user` (as a proxy names them,
    "*" for any), and `owners` (of [services."NAME"]) whose services they read; without it they read everything."""
    advisor_pages_proxies: tuple[str, ...] = _setting("advisor", values.networks, (), '["10.0.0.7", "10.0.1.0/28"]')
    """Addresses of proxies that name the user in a header. Without a certificate, only they may connect."""
    advisor_pages_user_header: str = _setting("advisor", fleet.read_header_name, "X-Forwarded-User", '"X-Auth-User"')
    """Header in which such a proxy names the user. It must replace what a client sent under that name."""
    advisor_pages_cert_file: str | None = _setting("advisor", values.text, None, '"/etc/pertoken/pages.pem"')
    """Certificate of the pages, PEM: they are then served over TLS."""
    advisor_pages_key_file: str | None = _setting("advisor", values.text, None, '"/etc/pertoken/pages.key"')
    """Key of that certificate, PEM, where the certificate's file does not hold it."""
    advisor_lake_url: str | None = _setting("advisor", values.text, None, '"s3://team-costs/lake"')
    """Lake into which the advisor service publishes closed hours of this database (docs/lake.md)."""
    advisor_lake_cell: str | None = _setting("advisor", values.text, None, '"eu-1"')
    """Name of this database in the lake. Without it the name of the host, or of the database of a fleet."""
    advisor_lake_every: float = _setting("advisor", values.window, 3600.0, '"1h"')
    """Time between two publications."""
    advisor_otlp_endpoint: str | None = _setting("advisor", values.text, None, '"http://127.0.0.1:4318/v1/metrics"')
    """OTLP/HTTP collector that the advisor service pushes dollars to each minute (needs pertoken[otlp])."""
    advisor_rule_timeout: float = _setting("advisor", lambda v: values.seconds(v, 0.1), 10.0, '"10s"')
    """Longest one rule may take for one deployment or service, or for the fleet, and a plugin to load. For all of them
    a rule may take six times as long."""
    advisor_rules: tuple[str, ...] = _setting(
        "advisor", values.texts("files and folders"), (), '["/home/me/lower_clocks.py"]'
    )
    """Files with rules, and folders of such files, that every run loads besides installed packages and the folder
    rules.d beside this file. A relative path starts in the folder of this file."""
    advisor_allow: tuple[str, ...] | None = _setting("advisor", values.texts("distributions"), None, '["acme-rules"]')
    """Installed distributions whose rules may be loaded, besides pertoken. Without it all may; [] allows none."""
    advisor_deny: tuple[str, ...] = _setting("advisor", values.texts("distributions"), (), '["acme-rules"]')
    """Installed distributions whose rules are never loaded, allowed or not."""
    advisor_forbid: tuple[str, ...] = _setting("advisor", values.forbidden, (), '["model", "purchase", "commitments"]')
    """Changes that no rule may propose, for all services: a knob (docs/rules.md), `placement` or a part of it
    (`provider`, `region`, `instance_type`, `accelerator`, `purchase`), `demand` or a part of it, `replicas`,
    `schedule`, `shares`, `devices`, `restart`, `release`, `partitions`, `commitments`."""
    advisor_quality_gate: bool = _setting("advisor", values.flag, False, "true")
    """Whether what can alter outputs (another model, fewer bits, shorter prompts or outputs, a response cache) is
    refused for all services until it is in `quality_passed` of [services."NAME"]."""
    advisor_quality_check: tuple[str, ...] = _setting(
        "advisor", values.texts("arguments"), (), '["python3", "/home/me/evaluate.py"]'
    )
    """Command of yours that tests outputs, as a list of arguments: `pertoken trial` runs it, without a shell, once the
    canary runs with a change that can alter outputs. It passes with exit status 0, and finds the engines in
    PERTOKEN_CANARY_URL and PERTOKEN_CONTROL_URL."""
    market_provider: str | None = _setting("market", values.text, None, '"aws"')
    """Only offers of this provider are considered; without it, all in the catalog."""
    market_region: str | None = _setting("market", values.text, None, '"us-east-1"')
    """Only offers of this region are considered."""
    market_allowed_regions: tuple[str, ...] = _setting("market", values.texts("regions"), (), '["us-east-2"]')
    """Regions of your provider that services may move to, beside the one they run in. A move to any other region is
    shown with what to confirm, and enters no total."""
    market_token_apis: tuple[str, ...] = _setting("market", values.texts("serverless APIs"), (), '["bedrock"]')
    """Serverless APIs whose answers you compared with your own, and that your prompts may be sent to. Of others only
    the break-even is shown."""
    slo_ttft_ms: float | None = _setting("slo", values.positive, None, "500")
    """Objective for p95 time to first token, milliseconds."""
    slo_tpot_ms: float | None = _setting("slo", values.positive, None, "50")
    """Objective for p95 time per output token, milliseconds."""
    slo_ttft_p50_ms: float | None = _setting("slo", values.positive, None, "200")
    """Objective for the median time to first token, milliseconds."""
    slo_tpot_p50_ms: float | None = _setting("slo", values.positive, None, "30")
    """Objective for the median time per output token, milliseconds."""
    budget_usd_per_month: float | None = _setting("budget", values.positive, None, "50000")
    """What all devices together may cost in a calendar month (UTC), dollars. `pertoken budget` compares with it."""
    budget_owners: tuple[tuple[str, float], ...] = _setting(
        "budget", values.tables(owners.read_owner_budgets), (), '{"label:team=search" = 8000, "namespace=prod" = 5000}'
    )
    """What the devices of an owner may cost in a calendar month, dollars by BASIS=NAME (docs/gateways.md lists the
    bases). `pertoken budget` compares with each."""
    budget_power_w: float | None = _setting("budget", values.positive, None, "12000")
    """What all devices that engines hold may draw together, watts, each at its power cap or else its power limit.
    `pertoken plan` refuses steps that would exceed it."""
    budget_alert_at: tuple[float, ...] = _setting("budget", values.thresholds, (0.8, 1.0), "[0.5, 0.8, 1.0]")
    """Shares of the budget at which `pertoken budget` exits with 3 once they are spent, and notes it in the database;
    it does so too where the likely spend of the whole month is above the budget."""
    headline: str = _setting("", fleet.one_of(fleet.HEADLINES), "blended", '"per_request"')
    """Price at the head of screens, summaries and reports: blended ($/Mtok of prompt and generated tokens), generated
    ($/Mtok of generated tokens), per_request ($ per 1,000 requests) or good ($/Mtok of requests within the SLO). Gates
    and alerts name their figure, and budgets are dollars: a changed headline leaves them as they are."""
    currency_code: str = _setting("currency", read_code, USD, '"EUR"')
    """Currency of the amounts on screens and in the text of commands. Databases, settings, CSV and JSON stay in US
    dollars; JSON has the currency beside them."""
    currency_rates: tuple[CurrencyRate, ...] = _setting(
        "currency", values.tables(read_rates), (), '[{date = 2026-11-01, per_usd = 0.92, source = "ECB"}]'
    )
    """What a US dollar was worth in it, as tables [[currency.rates]]: `date`, `per_usd`, `source`. Amounts are
    converted by the newest rate not later than the day they are of (today, or --at); without one none is shown."""
    screens_theme: str = _setting("screens", fleet.one_of(fleet.THEMES), "dark", '"light"')
    """Colours of the screens: dark, light or 16-colour (those of the terminal). NO_COLOR in the environment removes
    all. What is changed on the settings screen (s) is remembered and wins."""
    screens_borders: str = _setting("screens", fleet.one_of(fleet.BORDERS), "unicode", '"ascii"')
    """Whether lines, bars and plots are drawn in unicode or, for terminals without such a font, in ascii."""
    screens_refresh: float = _setting("screens", lambda v: values.seconds(v, 0.5), 2.0, '"5s"')
    """Time between two readings of the database by the screens."""
    screens_remember: bool = _setting("screens", values.flag, True, "false")
    """Whether columns, sort, window, theme and last screen are remembered between runs, in the platform's state
    folder."""
    screens_keys: tuple[tuple[str, str], ...] = _setting(
        "screens", values.tables(fleet.read_keys), (), '{sort = "f6", jump = "ctrl+g"}'
    )
    """Keys of your own, by the action they stand for (docs/keys.md lists the actions)."""
    alerts: tuple[AlertSettings, ...] = _setting(
        "",
        values.tables(read_alerts),
        (),
        '{dear = {when = "usd_per_mtok > 2.5", for = "15m", scope = "service=*", to = ["log"]}}',
    )
    """What the advisor service watches each minute, as tables [alerts.NAME]: `when` (a figure and a limit,
    docs/alerts.md), `for` (how long it must hold), `scope` (fleet, service=NAME, model=NAME or host=NAME, * for each),
    `window` (telemetry that the figure is of), `to` (log, mail and URLs of webhooks and chats),
    `enabled` (false: not evaluated)."""
    delivery_secret_file: str | None = _setting("delivery", values.text, None, '"/etc/pertoken/webhook-secret"')
    """File whose first line signs what is posted to webhooks (HMAC-SHA256 over time and body)."""
    delivery_secret_env: str | None = _setting("delivery", values.text, None, '"PERTOKEN_WEBHOOK_SECRET"')
    """Environment variable that holds this secret, where there is no file."""
    delivery_own_hosts: tuple[str, ...] = _setting("delivery", values.texts("host names"), (), '["hooks.internal"]')
    """Names of webhooks that may resolve to a private address. An address written in the URL needs no entry."""
    delivery_alerts_to: tuple[str, ...] = _setting(
        "delivery", values.secret_destinations, ("log",), '["log", "slack:https://hooks.slack.com/services/T0/B0/x"]'
    )
    """Destinations of alerts that name none, such as the default ones (docs/alerts.md)."""
    delivery_webhook: str | None = _setting("delivery", values.secret_webhook, None, '"https://example.com/hook"')
    """URL that `pertoken report --weekly --to webhook` posts to."""
    delivery_smtp: str | None = _setting("delivery", values.text, None, '"mail.example.com:587"')
    """Mail server, host and port."""
    delivery_smtp_tls: bool = _setting("delivery", values.flag, True, "true")
    """Whether mail is sent over TLS (STARTTLS)."""
    delivery_smtp_user: str | None = _setting("delivery", values.text, None, '"pertoken"')
    """User at the mail server; without it `delivery.mail_from`."""
    delivery_smtp_password_file: str | None = _setting("delivery", values.text, None, '"/etc/pertoken/mail-password"')
    """File whose first line is the password of that user."""
    delivery_mail_from: str | None = _setting("delivery", values.text, None, '"pertoken@example.com"')
    """Sender of mail."""
    delivery_mail_to: tuple[str, ...] = _setting("delivery", values.texts("mail addresses"), (), '["ops@example.com"]')
    """Recipients of mail."""
    energy_usd_per_kwh: float | None = _setting("energy", values.positive, None, "0.12")
    """What a kilowatt-hour costs you, where the hardware is your own. Without it energy saves no dollars."""
    energy_pue: float = _setting("energy", lambda v: values.at_least(v, 1), 1.0, "1.3")
    """Power usage effectiveness: energy of the whole facility over that of its servers at the plug."""
    energy_grid: GridCarbon | None = _setting(  # noqa: RUF009 - a field
        "energy", read_grid, None, '"363 g/kWh, Ember for Germany in 2024, 2025-01-23"'
    )
    """Carbon intensity of your electricity in grams of CO2 equivalent, its source and its date. Without it no carbon is
    shown."""
    energy_embodied_g_per_hour: float = _setting("energy", lambda v: values.at_least(v, 0), 0.0, "25")
    """Grams of CO2 equivalent of making one accelerator with its part of the server, for each hour of its life. It is
    added to the carbon of its energy."""
    source: Path | None = field(default=None, metadata={"section": None})
    set_by: Mapping[str, str] = field(default_factory=dict, metadata={"section": None})
    """Where each attribute that is not at its default was set, as messages name it: `FILE: rules`, `PERTOKEN_RULES`."""

    @property
    def currency(self) -> Currency:
        """The currency that people see."""
        return Currency(self.currency_code, self.currency_rates)

    @property
    def folder(self) -> Path:
        """The folder of the settings file, or where that file would be."""
        return (self.source or default_file()).parent

    @classmethod
    def table(cls) -> list[Setting]:
        """Return every setting with its names, in the order of the file."""
        return [Setting.of(field) for field in fields(cls) if field.metadata["section"] is not None]


FILE_NAME = f"{APP}.toml"
"""Name of a settings file that is not named: in the platform's folder, or beside a database."""


def default_file() -> Path:
    """Return the settings file in the platform's folder for this person or service."""
    import platformdirs

    return Path(platformdirs.user_config_dir(APP)) / FILE_NAME


def load(path: str | Path | None = None, environment: Mapping[str, str] = os.environ, **options: object) -> Settings:
    """Return settings from, in rising precedence: defaults, the file, the environment, command-line options.

    The file is `path`, else `PERTOKEN_CONFIG`, else the platform's; only a named one has to exist. Options that are
    None are taken as not given. Raises BadInput naming the key and where it was set.
    """
    named = path or environment.get("PERTOKEN_CONFIG")
    file = Path(named) if named else default_file()
    table: dict[str, object] = {}
    exists = file.is_file()
    if exists:
        try:
            if file.stat().st_size > MAX_FILE_BYTES:
                raise BadInput(f"{file}: larger than {MAX_FILE_BYTES // 2**20} MiB: no settings are")
            table = toml(file.read_text())
        except tomllib.TOMLDecodeError as error:
            raise BadInput(f"{file}: not valid TOML: {error}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{file}: cannot be read: {error}") from None
    elif named:
        raise BadInput(f"{file}: no such settings file (`pertoken config init` writes one)")

    keys = Settings.table()
    refuse_unknown(table, keys, file)
    values: dict[str, Any] = {"source": file if exists else None}
    set_by: dict[str, str] = {}
    for key in keys:
        section = table.get(key.section, {}) if key.section else table
        given: list[tuple[str, object]] = []
        if isinstance(section, dict) and key.key in section:
            given.append((f"{file}: {key.name}", section[key.key]))
        if key.environment in environment:
            given.append((key.environment, environment[key.environment]))
        if options.get(key.attribute) is not None:
            given.append((key.option, options[key.attribute]))
        for where, value in given:
            values[key.attribute], set_by[key.attribute] = parsed(key, value, where), where
    for service in ("agent", "advisor"):
        listen = values.get(f"{service}_metrics_listen")
        if listen is not None and not is_loopback(listen[0]) and not values.get(f"{service}_metrics_token_file"):
            where = set_by[f"{service}_metrics_listen"]
            raise BadInput(f"{where}: {listen[0]} is no loopback address: set {service}.metrics_token_file, too")
    settings = Settings(**values, set_by=set_by)
    if settings.advisor_pages_listen is not None:
        readers, proxies = settings.advisor_pages_readers, settings.advisor_pages_proxies
        host, cert_file = settings.advisor_pages_listen[0], settings.advisor_pages_cert_file
        if (fault := fleet.unsafe_pages(host, readers, proxies, cert_file)) is not None:
            raise BadInput(f"{set_by['advisor_pages_listen']}: {fault}")
    return settings


def meanings() -> dict[str, str]:
    """Return what each attribute of `Settings` means: the docstring under it, so that it is written once."""
    tree = ast.parse(inspect.getsource(Settings))
    body = cast(ast.ClassDef, tree.body[0]).body
    docstrings: dict[str, str] = {}
    for node, after in itertools.pairwise(body):
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            docstrings[node.target.id] = " ".join(str(after.value.value).split())
    return docstrings


def template() -> str:
    """Return a complete settings file in which nothing is set."""
    lines = ["# pertoken settings. Each key is also an environment variable, which wins over this file."]
    section = ""
    explained = meanings()
    for key in sorted(Settings.table(), key=lambda key: key.section != ""):  # TOML: tables come after plain keys
        if key.section != section:
            section = key.section
            lines += ["", f"[{section}]"] if section else []
        lines += ["", *(f"# {line}" for line in _wrapped(explained[key.attribute])), f"# ({key.environment})"]
        lines.append(f"# {key.key} = {key.example}")
    return "\n".join(lines) + "\n"


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, 98)
