"""The workload a service is sized for."""

import math
from dataclasses import dataclass
from functools import cached_property

from pertoken.forecast.queue.load import Arrivals, typical
from pertoken.forecast.served import Load
from pertoken.state.service import Slo
from pertoken.units import MTOK

SHAPE = "conversation"
"""Published trace whose spread of prompt and output lengths is taken around the means that are given."""
HOUR_S = 3600
LENGTH_STEP = 256
"""Tokens; `max_model_len` is a multiple of it."""


@dataclass(frozen=True)
class Workload:
    """Requests a service will get, as means, and its latency objectives."""

    requests_per_s: float
    """Arriving independently of each other (Poisson)."""
    prompt_len: float
    """Mean prompt tokens per request, cached included."""
    output_len: float
    """Mean generated tokens per request."""
    slo: Slo
    cached_share: float = 0.0
    """Prompt tokens found in a prefix cache, 0 to 1."""

    @cached_property
    def arrivals(self) -> Arrivals:
        """Arrivals with the spread of lengths of the published trace, scaled to the means."""
        prompt, output = typical(SHAPE)
        return Arrivals(self.requests_per_s, prompt.scaled_to(self.prompt_len), output.scaled_to(self.output_len))

    @cached_property
    def load(self) -> Load:
        """Load as the serving model takes it."""
        tok_s = self.requests_per_s * self.output_len
        return Load(tok_s, self.prompt_len, self.output_len, 1.0, cached_share=self.cached_share)

    @property
    def longest(self) -> int:
        """Tokens of the longest request that is expected, rounded up: the `max_model_len` to set."""
        tokens = float(self.arrivals.prompt.tokens[-1] + self.arrivals.generated.tokens[-1])
        return LENGTH_STEP * math.ceil(tokens / LENGTH_STEP)

    @property
    def mtok_per_hour(self) -> float:
        """Prompt (cached included) and generated Mtok per hour: what `$/Mtok` is per."""
        return self.requests_per_s * (self.prompt_len + self.output_len) * HOUR_S / MTOK
