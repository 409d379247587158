"""Order of engine versions, and earlier epochs as evidence of a version, for two rules."""

from collections.abc import Iterable

from pertoken.rule import Epoch, version_numbers


def is_newer(one: str | None, other: str | None) -> bool:
    """Return whether a version is known to be newer than another one."""
    first, second = version_numbers(one), version_numbers(other)
    return first is not None and second is not None and first > second


def judged(epochs: Iterable[Epoch]) -> tuple[Epoch, ...]:
    """Return one epoch of each version: the newest one that can be compared, else the newest one.

    The choice must not depend on the ratios: choosing the best of several would select noise.
    """
    best: dict[str, Epoch] = {}
    for epoch in epochs:
        version = epoch.engine_version
        if version is not None and (version not in best or _usable(epoch) or not _usable(best[version])):
            best[version] = epoch
    return tuple(best.values())


def _usable(epoch: Epoch) -> bool:
    """Return whether only the version changed since, and the device time per token can be compared."""
    return set(epoch.changed) == {"engine_version"} and epoch.present.ratio is not None


def percent(ratio: float) -> str:
    """Return a ratio as text: 1.33 as `33% more`."""
    return f"{abs(ratio - 1):.0%} {'more' if ratio >= 1 else 'less'}"


def interval(epoch: Epoch) -> str:
    """Return the interval and the number of matched hours of a comparison, as text."""
    compared = epoch.present
    assert compared.ratio is not None
    low, _, high = compared.ratio
    return f"90 % interval {low:.2f} to {high:.2f} times, {compared.matched_hours} matched hours"
