"""Restarts of the agent."""

import signal
from dataclasses import dataclass

from tests.adversary.scene import Scene


@dataclass(frozen=True, slots=True)
class Away:
    """The agent ends, and is started again after a while."""

    by: signal.Signals = signal.SIGTERM
    seconds: float = 3.0

    @property
    def touches(self) -> frozenset[str]:
        return frozenset({"agent"})

    def begin(self, scene: Scene) -> None:
        scene.agent.stop(self.by)

    def end(self, scene: Scene) -> None:
        scene.agent.start()
