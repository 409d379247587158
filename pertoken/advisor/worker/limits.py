"""Resource limits of one worker. Normal rules stay far below them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of rules; each applies to one process, which runs one rule."""

    call_s: float = 10.0
    """Wall time of one rule for one target, and of loading a plugin."""
    rule_s: float = 60.0
    """Wall time of one rule for all its targets."""
    plugin_s: float = 300.0
    """Wall time of a plugin with all its rules, and CPU time of each of its processes."""
    memory_bytes: int = 2 * 2**30
    """Address space in addition to that of the advisor."""
    output_bytes: int = 2**20
    """Bytes printed for one target, and of each file in the temporary folder."""
    kept_chars: int = 4000
    """Characters of printed output to keep, from its end."""
    proposals: int = 1000
    """Proposals and refusals for one target."""
    call_bytes: int = 4 * 2**20
    """Bytes returned by a rule for one target."""
    returned_bytes: int = 64 * 2**20
    """Bytes returned by all rules of a worker."""

    @classmethod
    def of_call(cls, call_s: float) -> "Limits":
        """Return limits in proportion to the maximum duration of one call."""
        return cls(call_s=call_s, rule_s=6 * call_s, plugin_s=30 * call_s)
