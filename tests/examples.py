"""Number of generated cases of a property: each run draws others, so that many short runs see what a long one
does."""

from hypothesis import settings

THOROUGH, QUICK = 100, 25
"""Cases where a test names no number: with `--hypothesis-profile thorough`, and without."""


def examples(thorough: int) -> int:
    """Return how many cases to try in this run, of `thorough` in a thorough one."""
    quick = settings().max_examples < THOROUGH
    return max(5, thorough * QUICK // THOROUGH) if quick else thorough
