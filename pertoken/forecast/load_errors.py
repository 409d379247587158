"""Errors of the model near measured operating points, as a Gaussian process over the load.

The deviations of a host scale whole terms, so they cannot follow a rate that bends where no term does: a host's CPUs
that fall behind from some batch on, a kernel that changes with it. Points of the deployment itself show it. Near them
the forecast is corrected by its error, far from all of them by nothing (Rasmussen and Williams, Gaussian Processes for
Machine Learning, 2006, equations 2.23 and 2.24).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pertoken.by_identity import by_identity
from pertoken.forecast.calibration import MAX_SURPRISE, POINT_SD
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.steady import Steady, slowed
from pertoken.forecast.terms import context, total

ERROR_SD = 0.5
"""Standard deviation of an error, as a log time. It and the length were chosen on public rows; see
`python -m benchmarks.forecast --calibrate-with 10 --folds`: its groups of sources choose again."""
ERROR_LENGTH = 2.0
"""Distance between loads, in logarithms, over which errors are alike."""


@dataclass(frozen=True, slots=True)
class LoadErrors:
    """Errors at operating points of one deployment."""

    loads: tuple[tuple[float, ...], ...]
    """Of each point: see `loads_of`."""
    log_errors: tuple[float, ...]
    """Of each point: the log of the measured time over the model's."""
    sd: float = ERROR_SD
    length: float = ERROR_LENGTH


def loads_of(c: Candidates, running: Array) -> Array:
    """Return the load as logarithms: running sequences, their context, and the tokens they generate.

    `running`: shape (n,), or (n, points) of candidates that are `spread`; the result has one more axis, of 3.
    """
    parts = np.broadcast_arrays(running, context(c), c.generated_len)
    return np.asarray(np.log(np.maximum(np.stack(parts, axis=-1), 1.0)))


def load_errors(
    loads: Array, log_errors: Array, sd: float = ERROR_SD, length: float = ERROR_LENGTH
) -> LoadErrors | None:
    """Return the errors around points of these loads, shape (n, 3), with times off by `log_errors`, shape (n,).

    NaN where no time was measured; None without any measured point. Errors are cut off at `MAX_SURPRISE`: a minute in
    which a server stalled, at a load that no other minute had, would otherwise dominate all forecasts near it.
    """
    known = np.isfinite(log_errors)
    if not known.any() or sd == 0:
        return None
    kept = np.clip(log_errors[known], -MAX_SURPRISE, MAX_SURPRISE)
    return LoadErrors(tuple(map(tuple, loads[known].tolist())), tuple(kept.tolist()), sd, length)


def log_times(errors: Sequence[LoadErrors | None], loads: Array) -> Array:
    """Return the log of the measured time over the model's at loads of shape (n, 3) or (n, points, 3), without their
    last axis. 0 where no errors are known.
    """
    rows = [row for row, known in enumerate(errors) if known is not None]
    missed = np.zeros(loads.shape[:-1])
    if not rows:
        return missed
    points = [_points(known) for known in errors if known is not None]
    most = max(len(weights) for _, weights, _ in points)
    # Points of no weight fill up the shorter lists, and sums go point by point: what else is computed beside changes no
    # digit.
    at, weight = np.zeros((len(rows), most, loads.shape[-1])), np.zeros((len(rows), most))
    for row, (own_loads, weights, _) in enumerate(points):
        at[row, : len(weights)], weight[row, : len(weights)] = own_loads, weights
    asked = loads[rows].reshape(len(rows), -1, loads.shape[-1])
    length = np.array([length for *_, length in points])[:, None, None]
    alike = _likeness(asked[:, :, None, :], at[:, None, :, :], length)
    missed[rows] = total(alike * weight[:, None, :]).reshape(missed[rows].shape)
    return missed


def as_measured(state: Steady, c: Candidates, errors: Sequence[LoadErrors | None]) -> Steady:
    """Return steady states with the times that points near their loads show."""
    if not any(errors):
        return state
    return slowed(state, np.exp(log_times(errors, loads_of(c, state.running))))


@by_identity
def _points(errors: LoadErrors) -> tuple[Array, Array, float]:
    """Return the loads of points, what the error of each adds to that at a load alike, and the length."""
    loads = np.array(errors.loads)
    alike = errors.sd**2 * _likeness(loads[:, None, :], loads[None, :, :], errors.length)
    weights = np.linalg.solve(alike + POINT_SD**2 * np.eye(len(loads)), np.array(errors.log_errors))
    return loads, errors.sd**2 * weights, errors.length


def _likeness(one: Array, other: Array, length: Array | float) -> Array:
    """Return the correlation of errors at loads, whose last axis is summed up."""
    return np.asarray(np.exp(-total((one - other) ** 2) / (2 * length**2)))
