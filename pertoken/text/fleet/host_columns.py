"""Columns of hosts, and counts of advice by host and deployment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pertoken.costs.report.lines import FleetReport, HostUse
from pertoken.text.amounts import amount, headline, price
from pertoken.text.columns import Column
from pertoken.text.fleet.columns import SPARK_CELLS, age, present, staleness, usd_per_hour, with_peak
from pertoken.text.words import literal, percent, stretched, watts
from pertoken.units import format_count, format_duration

if TYPE_CHECKING:
    from pertoken.proof.recommendation import Recommendation


@dataclass(frozen=True, slots=True)
class AdviceCounts:
    """Numbers of open proposals by host and deployment."""

    hosts: Counter[int] = field(default_factory=Counter)
    """By host id; proposals for deployments on the host count too."""
    deployments: Counter[int] = field(default_factory=Counter)


def advice_counts(advice: Sequence[Recommendation], report: FleetReport) -> AdviceCounts:
    """Count open proposals; one for a service counts for each deployment that serves its model."""
    counts = AdviceCounts()
    if not advice:  # as in the first frame, which waits for no module of advice
        return counts
    from pertoken.text.advice.columns import open_advice

    host_ids = {host.name: host.host_id for host in report.hosts}
    for row in open_advice(advice):
        if row.target_kind == "host":
            counts.hosts[int(row.target_key)] += 1
            continue
        touched: set[int] = set()
        for line in report.deployments:
            if line.deployment_id == row.deployment_id or (row.target_kind, row.target_key) == (
                "service",
                line.model,
            ):
                counts.deployments[line.deployment_id] += 1
                touched.add(host_ids.get(line.host, 0))
        counts.hosts.update(touched)
    return counts


def host_use_columns(report: FleetReport, counts: AdviceCounts, older_s: float = 0.0) -> tuple[Column[HostUse], ...]:
    """Return the columns of hosts."""
    stale = staleness(report, older_s)
    return (
        Column("host", lambda use: literal(use.name), 0, min_cells=14),
        Column("state", lambda use: age(stale, use, older_s), 1),
        Column("GPUs", lambda use: str(use.accelerators), 6, lambda use: use.accelerators),
        present("util", 3, percent, lambda use: use.util, stale),
        present("SM", 5, percent, lambda use: use.sm_active, stale),
        present("mem BW", 5, percent, lambda use: use.dram_active, stale),
        present("power", 4, watts, lambda use: use.power_w, stale),
        present("tok/s", 2, format_count, lambda use: use.generated_tok_s_now, stale),
        present("$/hour", 3, usd_per_hour, lambda use: use.nano_usd_per_hour, stale),
        Column(headline().caption, lambda use: amount(price(use)), 1, price),
        Column(
            "advice",
            lambda use: str(counts.hosts[use.host.host_id] or ""),
            4,
            lambda use: counts.hosts[use.host.host_id],
        ),
        Column(
            f"tok/s in {format_duration(report.window_s)}, peak",
            lambda use: with_peak(use.spark, SPARK_CELLS),
            7,
            wide=lambda use, cells: stretched(use.spark, cells),
            is_plot=True,
        ),
        present("CPU", 8, percent, lambda use: use.host.cpu_util, stale),
        Column("models", lambda use: literal(", ".join(use.models)), 6, min_cells=12),
    )
