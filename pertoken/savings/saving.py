"""Saving of a change: the net change of the bill, and the work that the changed bill can do in addition."""

from dataclasses import dataclass

Money = tuple[int, int, int]
"""Nano-USD per month of 730 h: low, likely, high."""
NOTHING: Money = (0, 0, 0)
LOW, LIKELY = 0, 1


@dataclass(frozen=True)
class Saving:
    """Net dollars and capacity dollars of a change, which are never added to each other."""

    net: Money = NOTHING
    """Bill before less bill after, while demand stays; negative where the bill rises."""
    capacity: Money = NOTHING
    """Additional work that the bill could serve, valued at the present cost."""

    @property
    def pays_more(self) -> bool:
        """Whether the likely bill rises: such a saving is in no total."""
        return self.net[LIKELY] < 0

    @property
    def may_rise(self) -> bool:
        """Whether the bill likely does not rise, but rises at the low end."""
        return self.net[LOW] < 0 <= self.net[LIKELY]

    @property
    def worthless(self) -> bool:
        """Whether the bill does not fall, and the capacity is worth no more than its rise."""
        return self.net[LIKELY] <= 0 and self.capacity[LIKELY] <= -self.net[LIKELY]

    @property
    def counted(self) -> bool:
        """Whether totals hold it."""
        return not self.pays_more

    @property
    def rank(self) -> tuple[int, int]:
        """Sort key of plans, the largest first: likely net dollars, then likely capacity dollars."""
        return self.net[LIKELY], self.capacity[LIKELY]

    def sure_first(self, *, forecast: bool = False) -> tuple[int, ...]:
        """Return a sort key, the largest first: net dollars, then capacity dollars, each as in `surest`."""
        return *surest(self.net, forecast=forecast), *surest(self.capacity, forecast=forecast)


def surest(money: Money, *, forecast: bool = False) -> tuple[int, int, int]:
    """Return a sort key, the largest first: by the low end; amounts whose low end is a loss follow, by the likely one.

    An amount of nothing follows both. A low end that rests on a `forecast` counts half.
    """
    low, likely, _ = money
    return likely > 0 and low >= 0, max(low, 0) // (2 if forecast else 1), likely
