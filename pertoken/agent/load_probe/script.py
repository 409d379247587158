"""Script of a probe: prompts alone and batches at several contexts. Each step is repeated in waves."""

from collections.abc import Sequence
from dataclasses import dataclass

PROMPTS = (128, 512, 2048, 8192)
"""Prompt lengths, in tokens, whose time to first token is measured alone."""
CONTEXTS = (16, 2048)
"""Prompt lengths of batches: the short one costs little beside the tokens that are measured."""
GENERATED = 32
"""Tokens each request of a batch generates: enough for a rate, few enough to fit in a minute."""
PROMPT_WAVES = 3
"""Times each prompt is sent; the median counts."""
MAX_WAVES = 6
"""Times each batch is sent, as far as time allows."""
MAX_BATCH = 64
"""Largest batch: a larger one takes long to prefill and shows the same terms."""
DEFAULT_SLOTS = 8
DEFAULT_CONTEXT = 4096
"""Assumed where the server does not expose its limits."""
SHARE_OF_CONTEXT = 0.8
"""Share of the server's context limit that prompt and generated tokens may take: token counts are approximate."""


@dataclass(frozen=True, slots=True)
class Step:
    """Requests that are sent at once, in waves."""

    prompt_tokens: int
    generated_tokens: int
    batch: int
    waves: int

    @property
    def alone(self) -> bool:
        """Whether it measures a prompt alone; else a batch."""
        return self.generated_tokens == 1

    @property
    def tokens(self) -> int:
        """Prompt and generated tokens of one wave."""
        return (self.prompt_tokens + self.generated_tokens) * self.batch

    @property
    def label(self) -> str:
        """What it measures, for people."""
        if self.alone:
            return f"prompt of {self.prompt_tokens} tokens alone"
        return f"batch of {self.batch} at {self.prompt_tokens} tokens of context"


def script(slots: int | None, context: int | None) -> tuple[Step, ...]:
    """Return the steps for a server with `slots` slots of `context` tokens each; None where that is not known.

    Those with the fewest tokens come first: a slow server has no time for the others.
    """
    slots, limit = slots or DEFAULT_SLOTS, int((context or DEFAULT_CONTEXT) * SHARE_OF_CONTEXT)
    generated = min(GENERATED, max(2, limit // 4))
    prompts = _within(PROMPTS, limit - 1)
    contexts = _within(CONTEXTS, limit - generated)
    batches = _batches(min(slots, MAX_BATCH))
    steps = (
        *(Step(tokens, 1, 1, PROMPT_WAVES) for tokens in prompts),
        *(Step(tokens, generated, batch, MAX_WAVES) for batch in batches for tokens in contexts),
    )
    return tuple(sorted(steps, key=lambda step: step.tokens))


def _within(lengths: Sequence[int], limit: int) -> tuple[int, ...]:
    """Return the lengths up to a limit, with the limit in the place of the first longer one."""
    fitting = [length for length in lengths if length <= limit]
    longer = len(fitting) < len(lengths) and limit > 1.5 * (fitting[-1] if fitting else 0)
    return (*fitting, max(1, limit)) if longer else tuple(fitting)


def _batches(largest: int) -> tuple[int, ...]:
    """Return 1, 2 and powers of 4 up to the largest, and the largest itself."""
    return tuple(sorted({clients for clients in (1, 2, 4, 16, 64) if clients <= largest} | {largest}))


@dataclass(frozen=True, slots=True)
class Cost:
    """The most that a script sends and has generated."""

    prompt_tokens: int
    generated_tokens: int
    requests: int


def cost(steps: Sequence[Step]) -> Cost:
    """Return what the steps cost at most; time may end them earlier."""
    return Cost(
        sum(step.prompt_tokens * step.batch * step.waves for step in steps),
        sum(step.generated_tokens * step.batch * step.waves for step in steps),
        sum(step.batch * step.waves for step in steps),
    )
