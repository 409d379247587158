"""Prices that are set while devices run."""

import signal
import time
from dataclasses import dataclass

from tests.adversary.scene import Scene


@dataclass(frozen=True, slots=True)
class NewPrice:
    """A price is set from now on."""

    selector: str
    usd: float
    seconds: float = 0.0

    @property
    def touches(self) -> frozenset[str]:
        return frozenset({"price"})

    def begin(self, scene: Scene) -> None:
        scene.set_price(self.selector, self.usd)

    def end(self, scene: Scene) -> None:
        """Nothing: it stays."""


@dataclass(frozen=True, slots=True)
class NewPriceWhileAway:
    """The agent is away while a price comes into force: for half of that time before it, and half of it after."""

    selector: str
    usd: float
    seconds: float = 16.0

    @property
    def touches(self) -> frozenset[str]:
        return frozenset({"price", "agent"})

    def begin(self, scene: Scene) -> None:
        # Prices begin with minutes of the clock. A world that has this begins at a second that makes this wait short.
        minute = (int(scene.clock.now_s() + self.seconds / 2) // 60 + 1) * 60
        time.sleep(minute - self.seconds / 2 - scene.clock.now_s())
        scene.agent.stop(signal.SIGTERM)
        scene.set_price(self.selector, self.usd, from_ts=minute)

    def end(self, scene: Scene) -> None:
        scene.agent.start()
