"""One model in one hour, and over many: dollars, tokens and how much of it was observed."""

from dataclasses import dataclass
from typing import NamedTuple

from pertoken.costs.ledger import divide
from pertoken.costs.served import NOTHING, Served
from pertoken.units import MTOK
from pertoken.window.columns import observed_share


class ModelHour(NamedTuple):
    """One model in one hour. Tokens are prompt (cached included) and generated, as far as they were observed."""

    nano_usd: int | None
    """None if a device it held has no price."""
    tokens: int | None
    """None if no deployment's tokens are known."""
    observed_ms: int = 0
    """Time in which its deployments were read and their tokens are known."""
    expected_ms: int = 0
    """Time in which its deployments should have been read, since they were first known."""
    uncounted_nano_usd: int = 0
    """Dollars, among the others, of deployments whose tokens are not known."""
    estimated: bool = False
    """Whether dollars of the hour were divided by time, as its minutes were deleted."""
    cached_tokens: int | None = None
    generated_tokens: int | None = None
    requests: int | None = None
    """Requests that ended."""

    @property
    def recorded(self) -> bool:
        """Whether dollars, tokens or time are known."""
        return self.nano_usd is not None or self.tokens is not None or self.observed_ms > 0

    @property
    def observed(self) -> float | None:
        """Share of the hour that was observed; None if nothing was to be observed."""
        return observed_share(self.observed_ms, self.expected_ms)

    @property
    def served(self) -> Served:
        """Its dollars and tokens. A deployment whose tokens are not known is left out with its dollars."""
        if self.nano_usd is None or self.tokens is None:
            return NOTHING
        prompt = self.tokens - (self.generated_tokens or 0)
        return Served(self.nano_usd - self.uncounted_nano_usd, prompt, self.generated_tokens, self.requests)

    @property
    def nano_usd_per_mtok(self) -> int | None:
        """Nano-USD for a million tokens; None if not known, or none was served.

        A deployment whose tokens are not known is left out with its dollars.
        """
        if self.nano_usd is None or not self.tokens:
            return None
        return divide((self.nano_usd - self.uncounted_nano_usd) * MTOK, self.tokens)


@dataclass(frozen=True, slots=True)
class ModelHours:
    """One model over whole hours of the clock, the last of which is under way."""

    model: str
    start_ts: int
    hours: tuple[ModelHour | None, ...]
    """Oldest first; None: it was not known."""

    @property
    def together(self) -> ModelHour:
        """All hours of which dollars and tokens are both known, with the share of all hours that was observed."""
        nano_usd = tokens = observed_ms = expected_ms = uncounted_nano_usd = 0
        known = estimated = False
        counts: dict[str, int] = {}
        for hour in self.hours:
            if hour is None:
                continue
            observed_ms += hour.observed_ms
            expected_ms += hour.expected_ms
            if hour.nano_usd is None or hour.tokens is None:
                continue
            known, estimated = True, estimated or hour.estimated
            nano_usd += hour.nano_usd
            tokens += hour.tokens
            uncounted_nano_usd += hour.uncounted_nano_usd
            for name in ("cached_tokens", "generated_tokens", "requests"):
                if (count := getattr(hour, name)) is not None:
                    counts[name] = counts.get(name, 0) + count
        if not known:
            return ModelHour(None, None, observed_ms, expected_ms)
        return ModelHour(nano_usd, tokens, observed_ms, expected_ms, uncounted_nano_usd, estimated, **counts)

    @property
    def tokens(self) -> int | None:
        """Of all hours of which they are known, whether those have a price or not."""
        return self.total("tokens")

    def total(self, name: str) -> int | None:
        """Return the sum of a count of `ModelHour` over all hours of which it is known; None without any."""
        known = [getattr(hour, name) for hour in self.hours if hour and getattr(hour, name) is not None]
        return sum(known) if known else None
