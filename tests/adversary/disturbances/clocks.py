"""Steps of the wall clock."""

import signal
from dataclasses import dataclass
from typing import Literal

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
    """The clock is stepped, and the agent killed and started `kills` times, and then restarted by SIGTERM.

    It is killed once its `until` is stored: the baseline of its start, or its first row.
    """

    by_s: float
    kills: int = 1
    until: Literal["baseline", "row"] = "row"
    seconds: float = 4.0

    @property
    def touches(self) -> frozenset[str]:
        return frozenset({"clock", "agent"})

    def begin(self, scene: Scene) -> None:
        scene.clock.step(self.by_s)
        for _ in range(self.kills):
            scene.agent.stop(signal.SIGKILL)
            stored = _stored(scene, self.until)
            scene.agent.start()
            scene.until(lambda stored=stored: _stored(scene, self.until) != stored, f"a {self.until}")  # type: ignore[misc]
        scene.agent.stop()
        scene.agent.start()

    def end(self, scene: Scene) -> None:
        """Nothing: the clock stays."""


def _stored(scene: Scene, what: str) -> list[tuple[object, ...]]:
    tables = {"baseline": "SELECT seq FROM batch ORDER BY seq DESC LIMIT 1", "row": "SELECT COUNT(*) FROM host_sample"}
    return scene.ask(tables[what])
