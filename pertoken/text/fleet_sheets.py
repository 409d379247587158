"""Details of one deployment, device or host as a sheet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pertoken.costs.ledger import TokenCounts, kind_prices
from pertoken.costs.report.lines import (
    DeploymentLine,
    DeviceLine,
    FleetReport,
    HostLine,
    HostUse,
    MissingMetric,
    Trouble,
    TroubleKind,
)
from pertoken.metrics import ENGINE_COUNTERS, HEADLINES, RollUp, label_of, rolled
from pertoken.text.amounts import amount, bounded, caption, headline
from pertoken.text.columns import Column, L, table
from pertoken.text.fleet import busy_share, device_columns, headline_price, host_columns, label, staleness
from pertoken.text.sheet import Fact, Section, Sheet, sheet
from pertoken.text.words import (
    UNKNOWN,
    ago,
    at_least,
    bytes_per_s,
    celsius,
    literal,
    megahertz,
    number,
    observed,
    percent,
    seconds,
    sparkline,
    watts,
)
from pertoken.units import format_count, format_duration
from pertoken.window.figures import EngineCounts, per_mtok

if TYPE_CHECKING:
    from pertoken.agent.doctor import Finding

NOW = "Now"
MAX_LINES = 10
"""Lines of a summary; JSON has all."""
_OUTAGES = (TroubleKind.STUCK, TroubleKind.SILENT)
COLUMNS: tuple[Column[Trouble], ...] = (
    Column("what", lambda line: f"{mark(line)} {line.kind.value}", 1),
    Column("target", lambda line: literal(line.target), 0, min_cells=14),
    Column("$/hour", lambda line: per_hour(line), 2),
    Column("command", lambda line: literal(line.command), 3),
    Column("why", lambda line: literal(line.reason), 4, min_cells=20, keep_start=True),
)


def mark(line: Trouble) -> str:
    """Return the mark of an outage or of another trouble, readable without colour."""
    return "✗" if line.kind in _OUTAGES else "!"


def per_hour(line: Trouble) -> str:
    """Return the cost of its target: `$1.95/hour`; a dash if unknown."""
    return UNKNOWN if line.nano_usd_per_hour is None else f"{amount(line.nano_usd_per_hour)}/hour"


def trouble_table(report: FleetReport, width: int | None) -> list[str]:
    """Return the most urgent troubles as a table; `width` as in `summary`."""
    more = len(report.troubles) - MAX_LINES
    lines = table(NOW, report.troubles[:MAX_LINES], COLUMNS, width)
    return [*lines, f"  and {more} more: `pertoken top --once --json` has all"] if more > 0 else lines


def trouble_rows(troubles: Sequence[Trouble], width: int) -> list[str]:
    """Return the troubles as rows of at most `width` cells, without a head."""
    return [line.strip() for line in table(NOW, troubles, COLUMNS, width)[2:]]


def trouble_sentences(troubles: Sequence[Trouble]) -> tuple[str, ...]:
    """Return each trouble as one sentence, with its dollars and its command."""
    return tuple(
        f"{mark(line)} {line.kind.value}: {literal(line.target)}, {literal(line.reason)} ({per_hour(line)}). "
        f"{literal(line.command)}"
        for line in troubles
    )


def fleet_notes(report: FleetReport) -> tuple[str, ...]:
    """Return notes on the marks in the table of deployments and on estimated dollars; empty without them."""
    star = caption("* Some tokens were missed (an engine restarted): $/Mtok is an upper bound.")
    about = "Dollars are an estimate: the minutes of an hour were deleted."
    return (*((star,) if report.incomplete else ()), *((about,) if report.estimated else ()))


def event_lines(report: FleetReport) -> tuple[str, ...]:
    """Return the events, newest first, equal messages as one line: `3m ago  the engine restarted (4 times)`."""
    newest: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for event in report.events:
        newest[event.message] = max(event.ts, newest.get(event.message, event.ts))
        counts[event.message] += event.count
    return tuple(
        f"{ago(report.now_ts - ts)}  {literal(message)}{f' ({counts[message]} times)' if counts[message] > 1 else ''}"
        for message, ts in sorted(newest.items(), key=lambda message_ts: -message_ts[1])
    )


def notices_sheet(report: FleetReport) -> Sheet:
    """Return a sheet of all hints, events, and metrics that are not measured."""
    return sheet(
        Section(NOW, trouble_sentences(report.troubles)),
        Section("What to start, set or switch on", tuple(f"→ {literal(hint)}" for hint in report.hints)),
        Section("What happened, newest first", event_lines(report)),
        Section("What is not measured", _gaps(report.missing)),
    )


def _gaps(missing: Iterable[MissingMetric]) -> tuple[Fact, ...]:
    """Return the metrics that are not measured, one line for each metric and reason."""
    owners: dict[tuple[str, str], list[str]] = {}
    for gap in missing:
        owners.setdefault((gap.metric, gap_reason(gap)), []).append(gap.owner)
    facts = []
    for (metric, why), names in owners.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        facts.append((literal(f"{names[0]}{more}: {label_of(metric)}"), why))
    return tuple(facts)


def gap_reason(gap: MissingMetric) -> str:
    """Return the reason why a metric is not measured, with its remedy."""
    reason = literal(gap.reason) or literal(gap.status)
    return f"{reason.rstrip('.')}. {literal(gap.remedy)}" if gap.remedy else reason


WIDE_SPARK_CELLS = 60
_NO_PRICE = "Not known, so no dollar figure includes it. `pertoken prices set --help` explains how to set a price."


def deployment_sheet(report: FleetReport, line: DeploymentLine, older_s: float = 0.0) -> Sheet:
    """Return the details of a deployment: money, tokens, latency, and limits of the figures."""
    window = format_duration(report.window_s)
    # If the host stopped reporting, its present values come from the last reading.
    stale = staleness(report, older_s)(line)
    return sheet(
        Section("Fault", (literal(line.fault),) if line.fault else ()),
        Section(
            "Deployment",
            (
                ("model", literal(line.model)),
                ("engine", literal(line.engine)),
                ("host", literal(line.host)),
                ("devices", literal(", ".join(line.devices)) or UNKNOWN),
            ),
        ),
        Section(
            f"What it costs (last {window})",
            (
                (
                    caption("$ per Mtok"),
                    f"{amount(line.nano_usd_per_mtok)}{'*' if line.incomplete and line.nano_usd_per_mtok else ''}"
                    "  (prompt, cached included, and generated tokens)",
                ),
                (caption("$ per generated Mtok"), amount(line.nano_usd_per_generated_mtok)),
                *_kind_facts(line),
                (caption(f"$ in {window}"), amount(line.nano_usd)),
                (caption("$ per hour, last read" if stale else "$ per hour now"), amount(line.nano_usd_per_hour)),
                ("observed", f"{observed(line.coverage)} of its time in the window"),
                *(() if line.nano_usd is not None else (_no_dollars(report, line),)),
            ),
        ),
        Section(
            f"What it does (last {window})",
            (
                ("generated tokens", format_count(line.generated_tokens)),
                ("prompt tokens", format_count(line.prompt_tokens)),
                ("of them cached", format_count(line.cached_tokens)),
                ("busy", busy_share(line)),
                ("TTFT p95", seconds(line.ttft_p95_s)),
                ("TPOT p50", seconds(line.tpot_p50_s)),
                ("generated tok/s", f"{sparkline(line.spark, WIDE_SPARK_CELLS)}  (blank: not observed)"),
            ),
        ),
        Section("Counters of its engine", _counted(line.counts, busy_is_bound=line.busy_is_bound)),
        Section(
            f"When last read, {ago(line.age_s)}" if stale else "Now",
            (
                ("generated tok/s", format_count(line.generated_tok_s_now)),
                ("prompt tok/s", format_count(line.prompt_tok_s_now)),
                ("requests running", number(line.running_now)),
                ("requests waiting", number(line.waiting_now)),
                ("power, its share", watts(line.power_w)),
            ),
        ),
        Section("How far to trust it", _trust(report, line, older_s)),
    )


def _counted(counts: EngineCounts, *, busy_is_bound: bool) -> tuple[Fact, ...]:
    """Return the counters beside tokens that the engine has."""
    accepted = counts.spec_acceptance_length
    facts = (
        ("requests ended", ", ".join(f"{literal(how)} {format_count(n)}" for how, n in counts.ended)),
        ("preemptions", format_count(counts.preemptions) if counts.preemptions is not None else ""),
        ("prefix cache hits", percent(counts.prefix_hit_rate) if counts.prefix_hit_rate is not None else ""),
        ("drafts accepted", percent(counts.spec_acceptance_rate) if counts.spec_acceptance_rate is not None else ""),
        ("acceptance length", f"{accepted:.2f} tokens per step" if accepted is not None else ""),
        ("MFU while busy", _utilization(counts.mfu, busy_is_bound=busy_is_bound)),
        ("MBU while busy", _utilization(counts.mbu, busy_is_bound=busy_is_bound)),
        *(
            (metric.label, format_duration(n / 1000) if metric.unit == "ms" else format_count(n))
            for metric, n in ((ENGINE_COUNTERS[name], n) for name, n in counts.counted)
            if n
        ),
    )
    return tuple((name, text) for name, text in facts if text)


def _utilization(share: float | None, *, busy_is_bound: bool) -> str:
    if share is None:
        return ""
    # Busy time is the divisor: if it is an upper bound, the quotient is a lower bound.
    text = (at_least if busy_is_bound else percent)(share)
    return f"{text}  (the engine's estimate, relative to the peak in the catalog)"


def device_sheet(report: FleetReport, line: DeviceLine, older_s: float = 0.0) -> Sheet:
    """Return the details of a device: all values, metrics that are not measured with reasons, and its host."""
    kind = {
        "gpu": "GPU",
        "mig": f"MIG instance of {literal(line.part_of or 'a GPU')}",
        "partition": f"partition of {literal(line.part_of or 'a GPU')}",
        "cpu": "CPUs of the host",
    }.get(line.kind, literal(line.kind))
    host = next((candidate for candidate in report.hosts if candidate.name == line.host), None)
    return sheet(
        Section(
            literal(label(line)),
            (
                ("kind", kind),
                ("host", literal(line.host)),
                *_facts(device_columns(report, last=True), line, {"device", "host"}),
            ),
        ),
        Section("Activity", _measured(line, ratios=True)),
        Section("Links and clocks", _measured(line, ratios=False)),
        Section("Source of the power figure", (literal(line.power_source),) if line.power_source else ()),
        Section("Price", _price(line)),
        Section("Not measured", _missing(report, line.device_id)),
        Section(
            f"Its host, {literal(line.host)}", _facts(host_columns(report, last=True), host, {"host"}) if host else ()
        ),
        Section("How far to trust it", (_last_read(report, line, older_s),)),
    )


def host_sheet(report: FleetReport, line: HostLine, older_s: float = 0.0) -> Sheet:
    """Return the details of a host and its agent."""
    traffic = line.memory_traffic_bytes_s
    return sheet(
        Section(
            literal(line.name),
            (
                *_facts(host_columns(report, last=True), line, {"host"}),
                *(() if traffic is None else (("memory traffic of the CPUs", bytes_per_s(traffic)),)),
            ),
        ),
        Section("Agent", (("reads every", format_duration(line.interval_s)),)),
        Section("Not measured", _missing(report, line.host_id)),
        Section("How far to trust it", (_last_read(report, line, older_s),)),
    )


def _kind_facts(line: DeploymentLine) -> Iterator[tuple[str, str]]:
    """Yield the busy dollars of each kind of token per million of them, or why they are not known."""
    counts = TokenCounts(line.prompt_tokens, line.cached_tokens, line.generated_tokens)
    names = ("computed prompt", "cached prompt", "generated, by time")
    for name, price in zip(names, kind_prices(line.kinds, counts).values(), strict=True):
        yield caption(f"$ per Mtok {name}"), price.reason or bounded(price)
    if line.kinds is not None and line.prompt_tokens is not None and line.generated_tokens is not None:
        at_full_use = per_mtok(line.kinds.busy, line.prompt_tokens + line.generated_tokens)
        yield caption("$ per Mtok at full use"), amount(at_full_use)
    for name in ("per_request", "good"):
        if (nano_usd := line.served.price(name)) is not None:
            yield caption(f"$ per {HEADLINES[name].unit}"), amount(nano_usd)


def host_page_sheet(report: FleetReport, use: HostUse, older_s: float = 0.0) -> Sheet:
    """Return the details of a host with its devices, deployments and agent."""
    devices = [line for line in report.devices if line.host == use.name]
    served = [line for line in report.deployments if line.host == use.name]
    columns = [column for column in device_columns(report, older_s) if column.name != "host"]
    return sheet(
        Section(
            "Devices and partitions, with the deployments that use them", tuple(table("", devices, columns, None)[1:])
        ),
        Section(
            "What runs on it",
            tuple(
                (
                    literal(line.model),
                    f"{literal(line.engine)}{', ended' if line.ended else ''}, on {literal(', '.join(line.devices))}: "
                    f"{headline_price(line)} per {headline().unit}, busy {busy_share(line)}",
                )
                for line in served
            ),
        ),
        *host_sheet(report, use.host, older_s),
    )


def _facts(columns: Sequence[Column[L]], line: L, without: set[str]) -> tuple[Fact, ...]:
    """Return the cells of a line with the names of their columns; empty cells, `without` and state are left out."""
    cells = [(column.name, column.text(line)) for column in columns if column.name not in without | {"state"}]
    return tuple((name, text) for name, text in cells if text)


_FORMATS: Mapping[str, Callable[[float], str]] = {
    "ratio": percent,
    "bytes/s": bytes_per_s,
    "MHz": megahertz,
    "°C": celsius,
    "W": watts,
}


def _measured(line: DeviceLine, *, ratios: bool) -> tuple[Fact, ...]:
    """Return the measured gauges of a device: with `ratios` those that are shares, else all others."""
    return tuple(
        (
            metric.label,
            _FORMATS[metric.unit](value) if metric.unit in _FORMATS else f"{number(value)} {metric.unit}".rstrip(),
        )
        for metric in rolled(RollUp.GAUGE)
        if (metric.unit == "ratio") is ratios and (value := line.values.get(metric.stored)) is not None
    )


def _price(line: DeviceLine) -> tuple[str, ...]:
    if line.nano_usd_per_hour is None:
        return (_NO_PRICE,)
    return (f"Not set by a person: {literal(line.listed_price)}.",) if line.listed_price else ()


def _no_dollars(report: FleetReport, line: DeploymentLine) -> str:
    unpriced = [name for name in line.devices if name in report.unpriced_devices]
    if unpriced:
        return f"No dollars are shown, because no price is set for {literal(', '.join(unpriced))}."
    return "No dollars are shown yet: none of its time on a priced device was observed."


def _trust(report: FleetReport, line: DeploymentLine, older_s: float) -> tuple[str, ...]:
    share = f"{observed(line.coverage)} of the window since it first appeared was observed."
    unseen = (
        "Some tokens were missed (the engine restarted between two readings): counts are lower bounds, "
        f"and {caption('$ per Mtok')}, marked *, is an upper bound."
    )
    words = " and ".join(word.replace("_", " ") for word in line.late)
    late = (
        f"Its engine counts {words} when a request ends: totals are exact except for requests running at the start "
        "or end of the window, and rates lag behind if few requests end."
    )
    at_most = (
        "Busy is an upper bound: its engine counts the time of requests, which overlap, or exposes no time. Busy "
        "dollars are therefore an upper bound, too."
    )
    return (
        _last_read(report, line, older_s),
        share,
        *((unseen,) if line.incomplete else ()),
        *((late,) if words else ()),
        *((at_most,) if line.busy_is_bound else ()),
    )


def _last_read(report: FleetReport, line: DeploymentLine | DeviceLine | HostLine, older_s: float) -> str:
    if line.age_s is None:
        return "It was never read."
    late = ": the figures are stale" if staleness(report, older_s)(line) else ""
    return f"Last read {ago(line.age_s)}{late}."


def _missing(report: FleetReport, owner_id: int) -> tuple[Fact, ...]:
    return tuple((literal(label_of(gap.metric)), gap_reason(gap)) for gap in report.missing if gap.owner_id == owner_id)


def finding_lines(
    findings: Sequence[Finding] | None, error: str | None, doing: str | None, report: FleetReport
) -> list[str]:
    """Return the findings as lines: working parts, then gaps with remedies. Empty once something is served."""
    if report.deployments:
        return []
    if findings is None:
        failed = [] if error is None else [f"This host could not be examined: {literal(error)}"]
        return failed if doing is None else ["Examining this host: devices, drivers, inference servers, database…"]
    works = [finding for finding in findings if finding.ok]
    missing = sorted((finding for finding in findings if not finding.ok), key=lambda finding: finding.area != "engine")
    areas = ", ".join(dict.fromkeys(finding.area for finding in works))
    lines = [f"Examined this host: {len(missing)} missing or not readable; works: {areas or 'nothing'}."]
    for finding in missing:
        remedy = f"; {literal(finding.remedy)}" if finding.remedy else ""
        lines.append(f"✗ {literal(finding.area)} {literal(finding.subject)}: {literal(finding.text)}{remedy}")
    return [*lines, "`pertoken doctor` shows all findings."]
