"""`pertoken import`: rows of a table from a file, telemetry that Prometheus recorded, or a gateway's spend log."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import Database, Progress, db_option, echo, recording_in
from pertoken.errors import BadInput
from pertoken.settings.fleet import GatewaySettings
from pertoken.settings.values import base_url
from pertoken.units import format_count, format_utc, parse_duration_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pertoken.agent.history.run import ImportReport
    from pertoken.config import Settings
    from pertoken.store.connect.location import StoreLocation


class _Imports(click.Group):
    """A group that reads `import FILE` as `import table FILE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["table", *args]
        return super().parse_args(ctx, args)


@click.group("import", cls=_Imports, short_help="Read rows from a file, history from Prometheus, or a spend log.")
def imports() -> None:
    """Read rows of a table back from a file, history from Prometheus, or the spend log of a LiteLLM proxy.

    `pertoken import FILE` is `pertoken import table FILE`.
    """


def _folder(database: Database) -> tuple[Settings, StoreLocation]:
    """Return the settings, and the location of the folder that is filled. Raises BadInput for a server."""
    settings, where = database.located()
    if where.folder is None:
        raise BadInput("import works on a folder; a server is filled by shipping")
    return settings, where


@imports.command("table", short_help="Read rows of a table back from a file that `pertoken export` wrote.")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--table", metavar="TABLE", help="Table of the rows [default: the one named in a Parquet file].")
@db_option
def restore(database: Database, file: Path, table: str | None) -> None:
    """Read rows that `pertoken export` wrote into a folder, made where there is none.

    Rows that exist already with the same values are skipped; one with other values ends the import. No agent may run on
    the folder meanwhile.
    """
    from pertoken.migrations import upgrade
    from pertoken.store.export.files import columns, csv_in, parquet_in, put
    from pertoken.store.write.writer import Writer

    _, where = _folder(database)
    if table is not None:
        columns(table)
    reading = csv_in if file.suffix.lower() == ".csv" else parquet_in
    name, n, slices = reading(file, table)
    new = seen = 0
    with recording_in(where.folder), Progress("Upgrading telemetry") as progress:
        upgrade(where, "telemetry")
        progress.phase(f"Importing {name}", n)
        with Writer(where) as writer:
            for rows in slices:
                new += put(writer, name, rows)
                seen += len(rows)
                progress.advance(len(rows))
    echo(f"{where}: {new:,} of {seen:,} rows of {name} were new.", err=True)


@imports.command("litellm", short_help="Read tokens of tenants from the spend log of a LiteLLM proxy.")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--gateway", "url", metavar="URL", help="Address of the proxy, as in [[gateways]] [default: the only one in it]."
)
@db_option
def litellm(database: Database, file: Path, url: str | None) -> None:
    """Read tokens of tenants from the spend log of a LiteLLM proxy, for `pertoken costs --by tenant` over the past.

    FILE is JSON as `GET /spend/logs?summarize=false` returns it: a row for each request. `models` and `users` of the
    gateway in [[gateways]] apply. Minutes not newer than the last imported one are skipped: import several
    files from the oldest on. No agent may run on the folder meanwhile.
    """
    from pertoken.agent.gateways import read_spend_log
    from pertoken.agent.history.run import import_spend_log
    from pertoken.migrations import upgrade
    from pertoken.store.connect.open import open_store

    settings, where = _folder(database)
    gateway_by_url = {gateway.url: gateway for gateway in settings.gateways if gateway.kind in (None, "litellm")}
    try:
        gateway_url = base_url(url) if url is not None else None
    except ValueError as error:
        raise BadInput(f"--gateway: {error}") from None
    if gateway_url is None and len(gateway_by_url) != 1:
        raise BadInput(f"name the proxy with --gateway: [[gateways]] has {len(gateway_by_url)} of LiteLLM")
    gateway_url = gateway_url or next(iter(gateway_by_url))
    log = read_spend_log(file, gateway_by_url.get(gateway_url, GatewaySettings(gateway_url)))
    with recording_in(where.folder), Progress("Importing the spend log"):
        upgrade(where, "telemetry")
        stored = import_spend_log(log, gateway_url, open_store(where), where)
    remarks = [f"{log.cached:,} answered from its own cache"] if log.cached else []
    remarks += [f"{log.repeated:,} rows repeated"] if log.repeated else []
    remarks += [f"{log.failed:,} failed, whose tokens do not count"] if log.failed else []
    echo(", ".join((f"{log.requests:,} requests", *remarks)))
    if stored.first_ts is not None and stored.last_ts is not None:
        interval = f"{format_utc(stored.first_ts)} to {format_utc(stored.last_ts)}"
        echo(f"{interval}: {format_count(stored.tokens)} tokens of tenants of {gateway_url}")
    if stored.left_out_minutes:
        echo(f"{stored.left_out_minutes:,} minutes left out: not newer than what was imported before")
    echo(f"Next: `pertoken costs --by tenant --hours 720 --db {where}`")


@imports.command("prometheus", short_help="Read what a Prometheus server recorded of engines and GPUs.")
@click.argument("url", metavar="URL")
@click.option("--last", default="30d", show_default=True, metavar="AGE", help="How far back.")
@click.option("--match", default="", metavar="MATCHERS", help="Only series with these labels: 'cluster=\"a\"'.")
@click.option("--host-label", metavar="LABEL", help="Label that names the host [default: Hostname, node, the address].")
@click.option("--token-file", metavar="FILE", help="File with the bearer token of the server.")
@click.option("--token-env", metavar="NAME", help="Environment variable with the bearer token.")
@click.option("--ca-file", metavar="FILE", help="Certificate authorities to trust, PEM [default: the system's].")
@click.option(
    "--header", "headers", metavar="'NAME: VALUE'", multiple=True, help="Sent with each query: 'X-Scope-OrgID: team'."
)
@click.option("--timeout", default="60s", show_default=True, metavar="TIME", help="Longest time of one query.")
@click.option(
    "--reply-limit-mb", type=click.IntRange(1, 4096), default=256, show_default=True, help="Largest reply that is read."
)
@db_option
def prometheus(
    database: Database,
    url: str,
    last: str,
    match: str,
    host_label: str | None,
    token_file: str | None,
    token_env: str | None,
    ca_file: str | None,
    headers: tuple[str, ...],
    timeout: str,
    reply_limit_mb: int,
) -> None:
    """Read what a Prometheus server recorded of engines and GPUs into a folder, made where there is none.

    Series of vLLM, SGLang, dcgm-exporter and nvidia_gpu_exporter become 1-min and 1-h roll-ups, so that costs and
    advice over the past exist before an agent runs. Missing series are listed, and rules that need them are blocked. An
    import starts where the previous one ended, and ends where an agent's own telemetry of a host begins. No agent may
    run on the folder meanwhile.

    Only URL is contacted (its certificate is checked), also Thanos, Mimir or VictoriaMetrics by the same API.
    """
    from pertoken.access import Access
    from pertoken.agent.history.prometheus import PrometheusApi
    from pertoken.agent.history.run import import_prometheus
    from pertoken.agent.history.series import SeriesSource
    from pertoken.agent.scrape import RequestLimits
    from pertoken.agent.upkeep import ages
    from pertoken.migrations import upgrade
    from pertoken.store.connect.open import open_store

    if token_file and token_env:
        raise BadInput("a token comes from --token-file or from --token-env, not from both")
    try:
        server_url = base_url(url)
        age_s, timeout_s = parse_duration_s(last), parse_duration_s(timeout)
    except ValueError as error:
        raise BadInput(f"{error}") from None
    if age_s < 120:
        raise BadInput(f"--last {last}: must be at least 2m")
    settings, where = _folder(database)
    access = Access(server_url, token_file=token_file, token_env=token_env, ca_file=ca_file)
    accesses = (access,) if token_file or token_env or ca_file else settings.agent_access
    api = PrometheusApi(
        server_url, RequestLimits(timeout_s, reply_limit_mb * 1_000_000, accesses), dict(map(_header, headers))
    )
    end = int(time.time()) // 60 * 60
    # The start is a full hour, so that a later import never adds minutes to an hour that was rolled up.
    start = (end - int(age_s)) // 3600 * 3600
    with recording_in(where.folder), Progress("Upgrading telemetry") as progress:
        upgrade(where, "telemetry")
        progress.phase(f"Importing minutes from {server_url}", (end - start) // 60)
        source = SeriesSource(api, match, host_label)
        report = import_prometheus(
            source, open_store(where), where, start, end, ages(settings), lambda s: progress.advance(s // 60)
        )
    for line in _lines(report, server_url, str(where)):
        echo(line)


def _header(text: str) -> tuple[str, str]:
    """Return name and value of a header. Raises BadInput, in which no value is repeated."""
    import re

    match = re.fullmatch(r"\s*([A-Za-z0-9-]{1,100})\s*[:=]\s*([\x20-\x7e]{1,4000})", text)
    if match is None:
        raise BadInput("--header: write it as 'NAME: VALUE', in ASCII")
    if match[1].casefold() in ("authorization", "host", "content-length", "connection", "accept", "accept-encoding"):
        raise BadInput(f"--header: {match[1]} is not set here; a token comes from --token-file or --token-env")
    return match[1], match[2].strip()


def _lines(report: ImportReport, url: str, where: str) -> Iterator[str]:
    """Yield lines on the import: minutes of each host, missing series, and the next command."""
    if not report.hosts:
        yield f"{url} has no series of vLLM, SGLang, dcgm-exporter or nvidia_gpu_exporter in that time."
        yield "Check --match and --last, and that Prometheus scrapes their metrics pages."
        if report.found_names:
            yield f"Names that count tokens there: {', '.join(report.found_names[:20])}."
        return
    for host in report.hosts:
        if host.first_ts is None or host.last_ts is None:
            yield f"{host.name}: nothing new{f' ({host.note})' if host.note else ''}"
            continue
        gpus = "1 GPU" if len(host.devices) == 1 else f"{len(host.devices)} GPUs"
        yield (
            f"{host.name}: {format_utc(host.first_ts)} to {format_utc(host.last_ts)}, "
            f"{gpus}, {', '.join(sorted(host.models)) or 'no model'}; "
            f"{format_count(host.prompt_tokens)} prompt and {format_count(host.generated_tokens)} generated tokens"
        )
        if host.note:
            yield f"  {host.note}"
    if report.wanted_names:
        yield ""
        yield f"No series of an engine was found under {', '.join(report.wanted_names)}, nor behind another prefix."
        names = ", ".join(report.found_names[:20]) or "none"
        yield f"Names that count tokens there: {names}. Check --match, --last and relabelling rules."
    if all(host.first_ts is None for host in report.hosts):
        return
    if report.blocked:
        yield ""
        yield "Not recorded by Prometheus; rules that need it are blocked:"
        for metric in report.blocked:
            yield f"  {metric.metric} ({metric.owners}): {metric.remedy or metric.reason}"
    yield ""
    commands = ("prices show", "top", "costs", "advise --since 30d")
    yield "Next: " + ", ".join(f"`pertoken {command} --db {where}`" for command in commands)
