"""Engines that are restarted, hang, are slow, lie, or serve another model."""

import signal
import time
from dataclasses import dataclass, replace

from tests.adversary.behaviour import Lie
from tests.adversary.scene import Scene


@dataclass(frozen=True, slots=True)
class _OfEngine:
    engine: str
    seconds: float = 5.0

    @property
    def touches(self) -> frozenset[str]:
        return frozenset({self.engine})


@dataclass(frozen=True, slots=True)
class Crash(_OfEngine):
    """Its process is killed, and another one started at the end: what was counted after the last page is lost."""

    def begin(self, scene: Scene) -> None:
        scene.engines[self.engine].stop()
        scene.hold_gpus()

    def end(self, scene: Scene) -> None:
        scene.engines[self.engine].start()
        scene.hold_gpus()


@dataclass(frozen=True, slots=True)
class Hang(_OfEngine):
    """Its process is stopped, with its port open: who asks waits."""

    @property
    def touches(self) -> frozenset[str]:
        """It loses nothing: it only does not answer."""
        return frozenset()

    def begin(self, scene: Scene) -> None:
        scene.engines[self.engine].signal(signal.SIGSTOP)

    def end(self, scene: Scene) -> None:
        scene.engines[self.engine].signal(signal.SIGCONT)


@dataclass(frozen=True, slots=True)
class Slow(_OfEngine):
    """It answers late."""

    delay_s: float = 2.0

    @property
    def touches(self) -> frozenset[str]:
        """It loses nothing."""
        return frozenset()

    def begin(self, scene: Scene) -> None:
        engine = scene.engines[self.engine]
        engine.behave(replace(engine.behaviour, delay_s=self.delay_s))

    def end(self, scene: Scene) -> None:
        engine = scene.engines[self.engine]
        engine.behave(replace(engine.behaviour, delay_s=0.0))


@dataclass(frozen=True, slots=True)
class Lies(_OfEngine):
    """Its page lies for a while; then it is true again."""

    lie: Lie = "one_less"

    def begin(self, scene: Scene) -> None:
        engine = scene.engines[self.engine]
        engine.behave(replace(engine.behaviour, lie=self.lie))

    def end(self, scene: Scene) -> None:
        engine = scene.engines[self.engine]
        engine.behave(replace(engine.behaviour, lie="none"))


@dataclass(frozen=True, slots=True)
class SwapModel(_OfEngine):
    """It serves another model from now on, in the same process, which goes on counting. It is idle around the swap."""

    pause_s: float = 2.5

    def begin(self, scene: Scene) -> None:
        engine = scene.engines[self.engine]
        before = engine.behaviour
        engine.behave(replace(before, prompt_tok_s=0.0, generated_tok_s=0.0, busy=0.0))
        time.sleep(self.pause_s)
        engine.behave(replace(engine.behaviour, model=f"{before.model}-swapped"))
        time.sleep(self.pause_s)
        engine.behave(replace(before, model=f"{before.model}-swapped"))

    def end(self, scene: Scene) -> None:
        """Nothing: the other model stays."""


@dataclass(frozen=True, slots=True)
class Idle(_OfEngine):
    """Nobody asks it for anything: its counters stand still."""

    @property
    def touches(self) -> frozenset[str]:
        """It loses nothing."""
        return frozenset()

    def begin(self, scene: Scene) -> None:
        engine = scene.engines[self.engine]
        engine.behave(replace(engine.behaviour, prompt_tok_s=0.0, generated_tok_s=0.0, busy=0.0))

    def end(self, scene: Scene) -> None:
        engine = scene.engines[self.engine]
        served = engine.spec.behaviour()
        engine.behave(replace(served, model=engine.behaviour.model, lie=engine.behaviour.lie))
