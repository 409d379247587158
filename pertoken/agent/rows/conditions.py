"""Conditions that last over many ticks: one event when a condition begins, one when it ends, none between."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from pertoken.store.schema.rows import Event


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that holds now for an owner (a host, a device or an engine)."""

    owner_id: int
    topic: str
    """What it is about: an owner has one condition of a topic at a time. The event of its end is `{topic}_back`."""
    kind: str
    """Kind of the event of its begin."""
    state: str
    """Distinguishes it from another condition of the topic. Its messages may differ from tick to tick."""
    begins: str
    ends: str | None = None
    """Message when it no longer holds; None: its end is no event."""

    @property
    def key(self) -> "Key":
        """Whose condition it is, and what about."""
        return self.owner_id, self.topic


Key = tuple[int, str]
Conditions = Mapping[Key, Condition]


def followed(before: Conditions, now: Collection[Condition], judged: Collection[int]) -> tuple[Conditions, list[Event]]:
    """Return the conditions to remember after a tick, and the events of what began and ended.

    `judged` are the owners of which this tick knows all conditions; those of other owners stay as they were.
    """
    allocation = {key.key: key for key in now}
    if not before and not allocation:
        return before, []
    remembered = {
        key: condition
        for key, condition in before.items()
        if key not in allocation and condition.owner_id not in judged
    }
    events = [*_begun(before, allocation), *_ended(before, allocation, remembered)]
    return remembered | {key: _oldest(before.get(key), condition) for key, condition in allocation.items()}, events


def _oldest(before: Condition | None, now: Condition) -> Condition:
    return before if before is not None and before.state == now.state else now


def _begun(before: Conditions, allocation: Conditions) -> Iterator[Event]:
    for key, condition in allocation.items():
        known = before.get(key)
        if known is None or known.state != condition.state:
            yield Event(condition.kind, condition.begins, condition.owner_id)


def _ended(before: Conditions, allocation: Conditions, remembered: Conditions) -> Iterator[Event]:
    for key, condition in before.items():
        if key not in allocation and key not in remembered and condition.ends is not None:
            yield Event(f"{condition.topic}_back", condition.ends, condition.owner_id)
