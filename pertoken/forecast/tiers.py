"""Tiers of what a forecast rests on, each with the error that was measured for it."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from pertoken.catalog.market import Market
from pertoken.forecast.host import LOAD_KINDS, Calibration
from pertoken.forecast.kinds import kinds_of
from pertoken.forecast.served import uncovered_kernels
from pertoken.state.deployment import Deployment


@dataclass(frozen=True, slots=True)
class Tier:
    """Ground that a forecast rests on, with its measured error."""

    name: str
    median: float
    """Of |predicted/measured - 1| of tokens/s, on pairs that did not choose it."""
    p90: float
    source: str
    as_of: str
    lifted_by: str | None = None
    """The command that lifts it; None for one that rests on the deployment itself."""

    @property
    def words(self) -> str:
        """Return it for people, with its measured error and the command that lifts it."""
        lifted = f"; `{self.lifted_by}` at the load in question lifts it" if self.lifted_by else ""
        error = f"off by {self.median:.1%} (median) and {self.p90:.1%} (90th percentile)"
        return f"forecast tier: {self.name}, {error}{lifted}"


@cache
def tiers() -> dict[str, Tier]:
    """Return every tier by its key: measured, probed, stated, physics."""
    rows = tomllib.loads(files("pertoken.forecast").joinpath("tiers.toml").read_text(encoding="utf-8"))
    return {key: Tier(**row) for key, row in rows.items()}


def tier_of(to: Deployment, calibration: Calibration, market: Market) -> Tier:
    """Return the tier of a forecast of a deployment under a calibration.

    A surprising host is *physics only*, whatever was measured on it. Points of a deployment count for changes of its
    load alone. Raises Abstained for a format the serving model does not know.
    """
    if calibration.surprising or uncovered_kernels(to, market):
        return tiers()["physics"]
    if calibration.origin is not None and kinds_of(calibration.origin, to) <= LOAD_KINDS:
        if calibration.minutes:
            return tiers()["measured"]
        if calibration.probed:
            return tiers()["probed"]
    return tiers()["stated"]
