"""Hints: the next thing to start, set or switch on, in whole sentences, most useful first."""

from collections.abc import Sequence
from typing import Any

from pertoken.costs.report.lines import DeviceLine, HostLine, MissingMetric
from pertoken.metrics import label_of
from pertoken.units import format_duration

DEMO_ENDED_S = 120
"""Hosts of a demo that is open write in turns, so that each of them is stale for seconds on a busy machine."""


def hints(
    hosts: Sequence[HostLine],
    devices: Sequence[tuple[DeviceLine, bool]],
    deployments: Sequence[tuple[str, str | None]],
    missing: Sequence[MissingMetric],
    lost: Sequence[tuple[str, Sequence[str]]] = (),
    faults: Sequence[str] = (),
) -> tuple[str, ...]:
    """Hints for a fleet as it stands; none when there is nothing to do.

    `devices` are those that are paid for, each with whether it serves (one of each kind will do); `deployments` the
    models served, each with why it cannot be read; `lost` selectors of prices, each with names of devices that it was
    for when any part of a name matched; `faults` sentences about hosts whose rows cannot be used as they came.
    """
    lines: list[str] = [*faults]
    if not hosts:
        lines.append("Nothing was recorded yet: the agent's first row comes within one interval of its start.")
    lines += _generated_hints([host for host in hosts if host.generated])
    lines += _stale_hints([host for host in hosts if host.stale and not host.imported and not host.generated])
    lines += _imported_hints([host for host in hosts if host.stale and host.imported])
    if hosts and not deployments:
        lines.append(
            "No inference server was found on this host. Start one (vLLM, or llama-server with --metrics), or name "
            "one that runs elsewhere: `pertoken agent --engine http://HOST:PORT`."
        )
    lines += [f"{model} cannot be read: {fault}" for model, fault in deployments if fault]
    for selector, names in lost:
        lines.append(
            f"The price for '{selector}' is no longer one for {_listed(names)}, since names match by whole words: set "
            f'it for the whole name with --from ever, and take this one back with `pertoken prices unset "{selector}"`.'
        )
    for device, serves in devices:
        if device.nano_usd_per_hour is None and (device.kind == "gpu" or serves):
            selector = "cpu" if device.kind == "cpu" else f'"{device.name}"'
            lines.append(
                f"No price is known for {device.name}: set what an hour of it costs you, in dollars, with "
                f"`pertoken prices set DOLLARS --for {selector}`."
            )
        if device.listed_price:
            lines.append(
                f"Nobody set a price for {device.name}: dollars are by the {device.listed_price}. What you really pay: "
                f'`pertoken prices set DOLLARS --for "{device.name}"`.'
            )
    lines += _gap_hints(any(device.kind == "gpu" for device, _ in devices), bool(deployments), missing)
    return tuple(dict.fromkeys(lines))


def _generated_hints(generated: Sequence[HostLine]) -> list[str]:
    """Return one sentence for the hosts of a demo, which goes on while its own screens are open."""
    silent_s = min((host.age_s or 0 for host in generated), default=0)
    if silent_s < DEMO_ENDED_S:
        return []
    ended = format_duration(silent_s)
    return [f"This is a generated demo, which ended {ended} ago: `pertoken demo` makes another one, which goes on."]


def _imported_hints(imported: Sequence[HostLine]) -> list[str]:
    """Return one sentence for all hosts whose telemetry was imported, and goes no further."""
    if not imported:
        return []
    names = _together([host.name for host in imported])
    ended = format_duration(min(host.age_s or 0 for host in imported))
    return [
        f"Telemetry of {names} was imported and ends {ended} ago: `pertoken import prometheus` goes on from there, and "
        "`pertoken agent install` on a host records it from now on."
    ]


def _stale_hints(stale: Sequence[HostLine]) -> list[str]:
    """Return one sentence for all hosts whose agent never stored anything, and one for those whose agent stopped."""
    lines = []
    for silent in ([host for host in stale if host.age_s is not None], [host for host in stale if host.age_s is None]):
        if not silent:
            continue
        ages = [host.age_s for host in silent if host.age_s is not None]
        since = f"nothing for {format_duration(min(ages))}" if ages else "nothing yet"
        names = _together([host.name for host in silent])
        if len(silent) == 1:
            lines.append(f"The agent on {names} has stored {since}: is it running? Start it with `pertoken agent`.")
        else:
            least = " or longer" if ages else ""
            lines.append(
                f"The agents on {names} have stored {since}{least}: are they running? Start each with `pertoken agent`."
            )
    return lines


def worth_a_hint(gap: Any) -> bool:
    """Return whether a missing metric deserves a hint: a person could switch it on, or a whole driver is missing."""
    return gap.metric in (*_VENDORS, _PROCESSES) or (
        gap.status in ("denied", "missing", "failing") and bool(gap.remedy)
    )


def _gap_hints(gpus: bool, serving: bool, missing: Sequence[MissingMetric]) -> list[str]:
    """One sentence for each reason why something cannot be read that a person could switch on."""
    metrics: dict[tuple[str, str, str], dict[str, None]] = {}
    unknown_owners: dict[tuple[str, str | None], list[str]] = {}
    drivers: list[str] = []
    for gap in missing:
        if gap.metric == "engines" and serving:
            continue  # some were found; what else may be hidden is for `doctor`
        if gap.remedy == "wait":
            continue
        if gap.metric in _VENDORS:
            drivers.append(gap.reason)
        elif gap.metric == _PROCESSES:
            unknown_owners.setdefault((gap.reason, gap.remedy), []).append(gap.owner)
        elif worth_a_hint(gap) and gap.remedy and gap.metric != "metrics_page":
            metrics.setdefault((gap.owner, gap.reason, gap.remedy), {})[label_of(gap.metric)] = None
    # What several owners lack for one reason is one sentence.
    owners_of: dict[tuple[str, str, str], list[str]] = {}
    for (owner, reason, remedy), names in metrics.items():
        owners_of.setdefault((_listed(list(names)), reason, remedy), []).append(owner)
    lines = [
        f"{_together(owners)}: {names} cannot be read: {reason}. To switch it on: {remedy}."
        for (names, reason, remedy), owners in owners_of.items()
    ]
    lines += [
        f"Who holds {owners[0]}{f' and {len(owners) - 1} more' if len(owners) > 1 else ''} is not known: {reason}. "
        f"The cost of time without a known holder is shown as unallocated."
        f"{f' To switch it on: {remedy}.' if remedy else ''}"
        for (reason, remedy), owners in unknown_owners.items()
    ]
    if drivers and not gpus:
        lines.append(f"No GPU can be read here ({'; '.join(drivers)}). `pertoken doctor` shows how to switch one on.")
    return lines


_PROCESSES = "processes"
_VENDORS = ("nvidia", "amd", "gaudi")


def _together(names: Sequence[str]) -> str:
    """Return the first two names and how many more there are."""
    return _listed(names if len(names) <= 2 else [*names[:2], f"{len(names) - 2} more"])


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
