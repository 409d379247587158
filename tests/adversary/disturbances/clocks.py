"""Steps of the wall clock."""

import signal
import time
from dataclasses import dataclass

from tests.adversary.scene import Scene

HOUR_S, DAY_S = 3600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class Step:
    """The clock is stepped, and back again at the end where `back`."""

    by_s: float
    back: bool = False
    seconds: float = 3.0

    @property
    def touches(self) -> frozenset[str]:
        return frozenset({"clock"})

    def begin(self, scene: Scene) -> None:
        scene.clock.step(self.by_s)

    def end(self, scene: Scene) -> None:
        if self.back:
            scene.clock.step(-self.by_s)


@dataclass(frozen=True, slots=True)
class StepAndRestart:
    """The clock is stepped, and the agent restarted right after: `kills` times by SIGKILL, then by SIGTERM."""

    by_s: float
    kills: int = 1
    seconds: float = 4.0

    @property
    def touches(self) -> frozenset[str]:
        return frozenset({"clock", "agent"})

    def begin(self, scene: Scene) -> None:
        scene.clock.step(self.by_s)
        for _ in range(self.kills):
            scene.agent.stop(signal.SIGKILL)
            scene.agent.start()
            time.sleep(0.8)  # about when it has its baseline, or its first tick
        scene.agent.stop()
        scene.agent.start()

    def end(self, scene: Scene) -> None:
        """Nothing: the clock stays."""
