"""Kinds of change between two deployments, in the words of the efficiency table."""

import tomllib
from functools import cache
from importlib.resources import files

from pertoken.by_identity import by_identity
from pertoken.catalog.market import CPU_ARCH, Market
from pertoken.forecast.served import Abstained, Load, uncovered_kernels
from pertoken.state.deployment import Deployment
from pertoken.state.knobs import knobs


@cache
def _table() -> dict[str, dict[str, str]]:
    return tomllib.loads(files("pertoken.forecast").joinpath("kinds.toml").read_text(encoding="utf-8"))


UNCOVERED_KERNELS = "uncovered kernels"
"""Kind of a change from or to kernels that no public source ran: none measured it."""


@by_identity
def kinds_of(now: Deployment, to: Deployment) -> frozenset[str]:
    """Kinds of change between two deployments, in the words of the efficiency table; empty for none."""
    changes = _changes(now, to)
    kinds = {_table()["knobs"][knob] for knob in changes if knob in _table()["knobs"]}
    if "weight_dtype" in changes:
        narrow = to.weight_dtype if to.weight_dtype in _table()["narrow"] else now.weight_dtype
        kinds.add(f"quantize_{_table()['narrow'].get(narrow or '', narrow)}")
    return frozenset(kinds)


@by_identity
def measured_kinds(now: Deployment, to: Deployment, market: Market) -> frozenset[str]:
    """Return the kinds of a change, with `UNCOVERED_KERNELS` where no public source ran the kernels before or after."""
    kinds = kinds_of(now, to)
    covered = not kinds or not any(uncovered_kernels(end, market) for end in (now, to))
    return kinds if covered else kinds | {UNCOVERED_KERNELS}


@by_identity
def _changes(now: Deployment, to: Deployment) -> frozenset[str]:
    """Name the knobs that differ, and the accelerator; no other part of a placement changes the speed."""
    moved = now.accelerator != to.accelerator
    return frozenset(now.knob_changes(to)) | ({"placement.accelerator"} if moved else frozenset())


def onto_cpus(now: Deployment, to: Deployment, market: Market) -> bool:
    """Return whether a change is a move from accelerators to CPUs, whose rates a probe measured by engine."""
    on_cpus = [
        device is not None and device.arch == CPU_ARCH
        for device in (market.accelerator(deployment.accelerator) for deployment in (now, to))
    ]
    return on_cpus == [False, True]


def known_kinds(now: Deployment, to: Deployment, load: Load, market: Market) -> frozenset[str]:
    """Return the kinds of a change. Raises Abstained for a knob that the serving model does not know."""
    changes = _changes(now, to)
    if "enable_prefix_caching" in changes and not now.enable_prefix_caching:
        raise Abstained(
            "which share of prompts repeats is not measured while the prefix cache is off: switch it on for some hours"
        )
    if "num_speculative_tokens" in changes and (load.acceptance is None or not now.num_speculative_tokens):
        raise Abstained(
            "which share of drafted tokens is accepted is not measured: let the engine draft for some hours, with "
            "metrics that count drafts"
        )
    known = {"weight_dtype", "engine"} if onto_cpus(now, to, market) else {"weight_dtype"}
    unknown = [knob for knob in changes - known if knob not in _table()["knobs"]]
    if unknown:
        trial = knobs()[unknown[0]].trial
        raise Abstained(f"the serving model does not know what {unknown[0]} does: try it for {trial}")
    return kinds_of(now, to)


def check_hardware(now: Deployment, to: Deployment, market: Market) -> None:
    """Raise Abstained for a move from CPUs to accelerators, or to a format that the engine does not run there.

    Measurements on CPUs do not predict accelerators.
    """
    if onto_cpus(to, now, market):
        raise Abstained("what a move from CPUs to accelerators gains is not measured: try it for some hours")
    combinations = [(deployment.engine, deployment.weight_dtype, deployment.accelerator) for deployment in (now, to)]
    if combinations[0] != combinations[1] and (reason := market.not_run(*combinations[1])) is not None:
        raise Abstained(reason)
