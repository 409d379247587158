"""Owners of a deployment: its pod, pod labels, batch job or systemd slice, as words among the knobs of its epoch."""

from collections.abc import Collection, Mapping
from typing import Any

from pertoken.settings.owners import BASES, JOB, JOB_FACTS, LABEL, SLICE
from pertoken.state.workload import WORKLOAD, Workload, parsed


def is_owner_knob(name: str) -> bool:
    """Return whether a knob of an epoch names an owner: it changes nothing of what runs."""
    return name in (WORKLOAD, JOB, *JOB_FACTS, SLICE) or name.startswith(LABEL)


def owner_of(knobs: Mapping[str, Any], basis: str) -> str | None:
    """Return the owner of a deployment by one of the bases; None where it has none that is known.

    A workload is named with its namespace, as names repeat among them.
    """
    if basis not in ("namespace", "workload"):
        return str(knobs[basis]) if knobs.get(basis) else None
    workload = parsed(knobs.get(WORKLOAD)) or Workload()
    if basis == "namespace":
        return workload.namespace
    return "/".join(filter(None, (workload.namespace, workload.name))) if workload.name else None


def bases_of(all_knobs: Collection[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the bases by which any of these deployments has an owner, labels last."""
    labels = sorted({name for knobs in all_knobs for name in knobs if name.startswith(LABEL)})
    return tuple(basis for basis in (*BASES, *labels) if any(owner_of(knobs, basis) for knobs in all_knobs))


def changed_owner(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether somebody else pays; an owner that is not known on either side has not changed."""
    bases = (*BASES, *(name for name in before if name.startswith(LABEL)))
    pairs = ((owner_of(before, basis), owner_of(after, basis)) for basis in bases)
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)
