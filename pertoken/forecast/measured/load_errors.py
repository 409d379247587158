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
from pertoken.forecast.calibration import POINT_SD
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.terms import context

ERROR_SD = 0.3
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

    def at(self, loads: Array) -> Array:
        """Return the log of the measured time over the model's, shape (n,), for loads of shape (n, 3)."""
        return np.asarray(_covariance(loads, np.array(self.loads), self.sd, self.length) @ _weights(self))


def loads_of(c: Candidates, running: Array) -> Array:
    """Return the load as logarithms: running sequences, their context, and the tokens they generate, shape (n, 3)."""
    return np.log(np.maximum(np.column_stack([running, context(c), c.generated_len]), 1.0))


def load_errors(
    loads: Array, log_errors: Array, sd: float = ERROR_SD, length: float = ERROR_LENGTH
) -> LoadErrors | None:
    """Return the errors around points of these loads, shape (n, 3), with times off by `log_errors`, shape (n,).

    NaN where no time was measured; None without any measured point.
    """
    known = np.isfinite(log_errors)
    if not known.any() or sd == 0:
        return None
    return LoadErrors(tuple(map(tuple, loads[known].tolist())), tuple(log_errors[known].tolist()), sd, length)


def correction(errors: Sequence[LoadErrors | None], before: Array, after: Array) -> Array:
    """Return the additions to log-ratios of rates: the error before, less that after.

    `before`, `after`: loads of shape (n, 3). 0 where no errors are known.
    """
    return np.array(
        [
            0.0 if known is None else float(np.subtract(*known.at(np.array(ends))))
            for known, *ends in zip(errors, before, after, strict=True)
        ]
    )


@by_identity
def _weights(errors: LoadErrors) -> Array:
    """Return the weight of each point in the errors at other loads."""
    loads = np.array(errors.loads)
    noise = POINT_SD**2 * np.eye(len(loads))
    alike = _covariance(loads, loads, errors.sd, errors.length)
    return np.asarray(np.linalg.solve(alike + noise, np.array(errors.log_errors)))


def _covariance(one: Array, other: Array, sd: float, length: float) -> Array:
    """Return the covariance of errors at loads of shapes (n, 3) and (m, 3), shape (n, m)."""
    squared = ((one[:, None, :] - other[None, :, :]) ** 2).sum(axis=2)
    return np.asarray(sd**2 * np.exp(-squared / (2 * length**2)))
