"""Watts of a host without power measurements, from the load of its devices alone."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pertoken.forecast.candidates import Array
from pertoken.forecast.power import CandidateWatts, busy_w


def unmeasured_busy_w(accelerator: str, device: CandidateWatts, share: Array) -> Array:
    """Return the watts of a host without power measurements; for a change of watts `busy_w` is more accurate.

    `accelerator`: its catalog name. Where several sources measured it, their median corrects the curve.
    """
    x = _table()
    curve = busy_w(device, share, x)
    return np.asarray(np.maximum(curve * x["device"].get(accelerator, 1.0), device.idle_w))


def unmeasured_log_sd() -> float:
    """Standard deviation of the log error of `unmeasured_busy_w`."""
    return float(_table()["log_sd"])


@cache
def _table() -> dict[str, Any]:
    path = Path(__file__).parent / "unmeasured_watts.toml"
    return dict(tomllib.loads(path.read_text(encoding="utf-8"))["busy"]["unmeasured"])
