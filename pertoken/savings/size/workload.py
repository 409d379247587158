"""The workload a service is sized for."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

from pertoken.arrivals import Arrivals, typical
from pertoken.catalog.model_facts import image_encoder
from pertoken.errors import BadInput
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
    images: float = 0.0
    """Mean images per request. Their tokens are part of `prompt_len`."""
    image_size: tuple[int, int] | None = None
    """Width and height of an image in pixels."""

    def with_images(self, images: float, size: tuple[int, int], model: str) -> "Workload":
        """Return the workload with images beside the prompts: their tokens are added to `prompt_len`.

        Raises BadInput for a model whose tokens per image are not known.
        """
        encoder = image_encoder(model)
        if encoder is None:
            raise BadInput(
                f"how many tokens {model} makes of an image is not known: add them to the prompt tokens yourself, and "
                "count no images"
            )
        tokens = images * encoder.tokens(*size)
        return replace(self, prompt_len=self.prompt_len + tokens, images=images, image_size=size)

    @cached_property
    def arrivals(self) -> Arrivals:
        """Arrivals with the spread of lengths of the published trace, scaled to the means."""
        prompt, output = typical(SHAPE)
        return Arrivals(self.requests_per_s, prompt.scaled_to(self.prompt_len), output.scaled_to(self.output_len))

    @cached_property
    def load(self) -> Load:
        """Load as the serving model takes it."""
        tok_s = self.requests_per_s * self.output_len
        return Load(
            tok_s,
            self.prompt_len,
            self.output_len,
            1.0,
            cached_share=self.cached_share,
            images=self.images,
            image_size=self.image_size,
        )

    @property
    def longest(self) -> int:
        """Tokens of the longest request that is expected, rounded up: the `max_model_len` to set."""
        tokens = float(self.arrivals.prompt.tokens[-1] + self.arrivals.generated.tokens[-1])
        return LENGTH_STEP * math.ceil(tokens / LENGTH_STEP)

    @property
    def mtok_per_hour(self) -> float:
        """Prompt (cached included) and generated Mtok per hour: what `$/Mtok` is per."""
        return self.requests_per_s * (self.prompt_len + self.output_len) * HOUR_S / MTOK
