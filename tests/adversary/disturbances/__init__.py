"""Disturbances of a running world. Each disturbance is a value: drawn, printed, begun and ended."""

from typing import Protocol

from tests.adversary.scene import Scene


class Disturbance(Protocol):
    """One thing that goes wrong, for a while."""

    @property
    def seconds(self) -> float:
        """How long it lasts: `end` is called then."""

    @property
    def touches(self) -> frozenset[str]:
        """What it makes untrue: `clock`, `agent`, `store`, `discovery`, an engine's key, a GPU's UUID."""

    def begin(self, scene: Scene) -> None:
        """Make it go wrong."""

    def end(self, scene: Scene) -> None:
        """Make it right again."""
