"""Dollars and tokens that were paid for, and their price by each headline."""

from collections.abc import Iterable
from typing import NamedTuple

from pertoken.units import MTOK
from pertoken.window.columns import per_mtok


class Served(NamedTuple):
    """Dollars and tokens of one or more deployments over a time; None: not known."""

    nano_usd: int | None
    prompt_tokens: int | None
    generated_tokens: int | None
    requests: int | None = None
    """Requests that ended."""
    good_share: float | None = None
    """Least share of the requests within the SLO."""

    @property
    def pooling(self) -> bool:
        """Whether it embeds or ranks: it read prompts, ended requests and generated no token.

        Engines expose no task of a model. A generation has at least one token, so that none over all requests means
        that the model generates nothing.
        """
        return bool(self.prompt_tokens) and self.generated_tokens == 0 and self.requests != 0

    @property
    def counted(self) -> bool:
        """Whether its dollars and tokens are both known, so that they are in quotients of several deployments."""
        return None not in (self.nano_usd, self.prompt_tokens, self.generated_tokens) and not self.pooling

    def price(self, headline: str) -> int | None:
        """Return nano-USD per Mtok, or per 1,000 requests, by a headline of `metrics.HEADLINES`; None if unknown."""
        if self.nano_usd is None:
            return None
        if headline == "per_request":
            return round(self.nano_usd * 1000 / self.requests) if self.requests else None
        if headline == "generated":
            return per_mtok(self.nano_usd, self.generated_tokens)
        if self.prompt_tokens is None or self.generated_tokens is None:
            return None
        tokens = self.prompt_tokens + self.generated_tokens
        if headline == "blended":
            return per_mtok(self.nano_usd, tokens)
        return round(self.nano_usd * MTOK / (tokens * self.good_share)) if tokens and self.good_share else None


NOTHING = Served(None, None, None)


def together(parts: Iterable[Served]) -> Served:
    """Return the sum of several deployments; one whose dollars or tokens are not known is left out with both.

    So is one that embeds or ranks, whose tokens are others, unless all do: then the tokens are those of prompts.
    """
    parts = list(parts)
    generating = [part for part in parts if not part.pooling] or parts
    known = [part for part in generating if None not in part[:3]]
    if not known:
        return NOTHING
    nano_usd, prompt, generated = (sum(part[n] or 0 for part in known) for n in range(3))
    requests = [part.requests for part in known]
    good = [part.good_share for part in known]
    weights = [(part.prompt_tokens or 0) + (part.generated_tokens or 0) for part in known]
    share = sum((part or 0.0) * weight for part, weight in zip(good, weights, strict=True)) / max(1, sum(weights))
    return Served(
        int(nano_usd),
        int(prompt),
        int(generated),
        None if None in requests else sum(count or 0 for count in requests),
        None if None in good else share,
    )
