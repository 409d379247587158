"""Integers split in proportion, without losing a unit."""

from collections.abc import Sequence


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Return integers in proportion to `weights` that sum exactly to `total`; the largest remainders get the rest.

    If all weights are 0, the last one gets everything. Raises ValueError for a negative weight or no weight at all.
    """
    if not weights or min(weights) < 0:
        raise ValueError("weights must be there and not negative")
    whole = sum(weights)
    if whole == 0:
        return [*[0] * (len(weights) - 1), total]
    parts = [total * weight // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda i: (-(total * weights[i] % whole), i))
    for i in by_remainder[: total - sum(parts)]:
        parts[i] += 1
    return parts
