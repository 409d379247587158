"""Tiers: bases of forecasts, each with its measured error."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from pertoken.forecast.formats import constants


@dataclass(frozen=True)
class Tier:
    """Basis of a forecast, with the error that was measured for it."""

    name: str
    median: float
    """Of |predicted/measured - 1| of tokens/s, on pairs that did not choose it."""
    p90: float
    lifted_by: str | None = None
    """The command that lifts it; None for one that rests on the deployment itself."""

    @property
    def short(self) -> str:
        """Return its name with its measured error, median and 90th percentile: `stated, 12 / 38 %`."""
        return f"{self.name}, {100 * self.median:.0f} / {100 * self.p90:.0f} %"

    @property
    def words(self) -> str:
        """Return it for people, with its measured error and the command that lifts it."""
        lifted = f"; `{self.lifted_by}` at the load in question lifts it" if self.lifted_by else ""
        return f"{self.name}, off by {self.median:.1%} (median) and {self.p90:.1%} (90th percentile){lifted}"

    @property
    def assumption(self) -> str:
        """Return the line that a priced change carries among its assumptions."""
        return f"forecast tier: {self.words}"


@cache
def tiers() -> dict[str, Tier]:
    """Return every tier by its key, the best first: measured, probed, stated, cpus, physics."""
    rows = constants("tiers").items()
    return {key: Tier(row["name"], row["median"], row["p90"], row.get("lifted_by")) for key, row in rows}


def split_tier(assumptions: Iterable[str]) -> tuple[Tier | None, tuple[str, ...]]:
    """Return the weakest tier among assumptions, None without a forecast, and the other assumptions."""
    by_line = {tier.assumption: tier for tier in tiers().values()}
    lines = tuple(assumptions)
    weakest = [tier for line, tier in by_line.items() if line in lines][-1:]
    return (weakest[0] if weakest else None), tuple(line for line in lines if line not in by_line)
