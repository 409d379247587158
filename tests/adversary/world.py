"""A world: what there is, and what goes wrong when. Drawn from a seed, or one named case."""

import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.adversary.behaviour import LIES
from tests.adversary.disturbances import Disturbance, agents, clocks, drivers, engines, prices, stores
from tests.adversary.engines import EngineSpec, has_ipv6
from tests.standin_nvml import Gpu, Slice, Wave

QUIET_S = 1.0
"""Between the last disturbance and the end of the load."""
PRICES = (("cpu", 1.5), ("gpu", 4.0))
"""In force from the beginning, dollars an hour."""


@dataclass(frozen=True, slots=True)
class Act:
    """A disturbance and when it begins, seconds after all engines were seen."""

    at_s: float
    what: Disturbance


@dataclass(frozen=True, slots=True)
class World:
    """All that a run needs. Times are real seconds."""

    name: str
    engines: tuple[EngineSpec, ...]
    gpus: tuple[Gpu, ...]
    acts: tuple[Act, ...] = ()
    discover: bool = False
    """Whether engines are looked for; else they are named by their URLs."""
    silent_at_start: tuple[str, ...] = ()
    """Engines that are stopped while the agent starts."""
    llama: bool = False
    """Whether a real llama.cpp server is there, with little load."""
    minute_at_s: float | None = None
    """When a minute of the agent's clock is to begin, seconds after the agent's start."""

    @property
    def seconds(self) -> float:
        """Until the last disturbance is over."""
        return max((act.at_s + act.what.seconds for act in self.acts), default=3.0) + QUIET_S

    @property
    def touched(self) -> frozenset[str]:
        """All that some disturbance makes untrue."""
        touched = frozenset[str]().union(*(act.what.touches for act in self.acts))
        return touched | ({self.gpus[-1].uuid} if "last GPU" in touched else frozenset())

    def acts_on(self, what: str) -> list[Act]:
        """Return acts that touch this."""
        return [act for act in self.acts if what in act.what.touches]


def divided(gpu: Gpu) -> Gpu:
    """Return the GPU in MIG mode, as one MIG device that takes all of it."""
    return replace(gpu, slices=(Slice(f"MIG-{gpu.uuid}", gpu_instance=0, compute_slices=7),))


def gpus(n: int) -> tuple[Gpu, ...]:
    """Return GPUs of constant power, so that their energy is known to the millijoule."""
    return tuple(
        Gpu(
            f"GPU-adversary-{slot}",
            power_mw=Wave(300_000 + 10_000 * slot),
            energy_start_mj=10**9,
            util_percent=Wave(50),
        )
        for slot in range(n)
    )


ENGINES = (
    EngineSpec("a", "vllm", gpu="GPU-adversary-0"),
    EngineSpec("b", "llama-server", gpu="GPU-adversary-1", busy=0.1, generated_tok_s=20.0),
    EngineSpec("c", "vllm", gpu="GPU-adversary-2"),
)
TWINS = (
    EngineSpec("t1", "llama-server"),
    EngineSpec("t2", "llama-server", host="::1" if has_ipv6() else "127.0.0.3", port_of="t1"),
    EngineSpec("t3", "llama-server", host="127.0.0.2", port_of="t1"),
)
"""Servers that have one port, each at an address of its own. Nothing on their pages distinguishes them."""
PAIR = (EngineSpec("p1", "vllm", shared=True), EngineSpec("p2", "vllm", port_of="p1", shared=True))


def drawn(seed: int) -> World:
    """Return a random world: one to three engines and perhaps twins, two to six disturbances that may overlap."""
    draw = random.Random(seed)
    chosen = ENGINES[: draw.randint(1, 3)]
    if draw.random() < 0.3:
        chosen += TWINS
    if draw.random() < 0.15:
        chosen += PAIR
    cards = gpus(draw.randint(3, 5))
    keys, uuids = [engine.key for engine in ENGINES[:3] if engine in chosen], [card.uuid for card in cards[:-1]]
    acts: list[Act] = []
    free_from_s: dict[str, float] = {}
    for _ in range(draw.randint(2, 6)):
        what = _any(draw, keys, uuids)
        # What touches the same thing comes one after the other: its end would undo more than itself.
        about = [*what.touches, type(what).__module__, getattr(what, "engine", ""), getattr(what, "gpu", "")]
        at_s = max([draw.uniform(0.5, 12.0), *(free_from_s.get(fault, 0.0) for fault in about if fault)])
        free_from_s |= dict.fromkeys(filter(None, about), at_s + what.seconds + 1.0)
        acts.append(Act(round(at_s, 2), what))
    return World(f"seed {seed}", chosen, cards, tuple(sorted(acts, key=lambda act: act.at_s)))


def _any(draw: random.Random, keys: list[str], uuids: list[str]) -> Disturbance:
    """Return one disturbance with its parameters."""
    seconds = round(draw.uniform(2.0, 8.0), 1)
    key, uuid = draw.choice(keys), draw.choice(uuids)
    step_s = draw.choice((-1.0, 1.0, -45.0, 45.0, -3600.0, 3600.0, -3 * clocks.DAY_S, 1000 * clocks.DAY_S))
    makers: tuple[Callable[[], Disturbance], ...] = (
        lambda: clocks.Step(step_s, back=step_s > clocks.HOUR_S or draw.random() < 0.5, seconds=seconds),
        lambda: clocks.StepAndRestart(
            draw.choice((-1.0, 1.0, -45.0)), draw.randint(1, 2), "row" if draw.random() < 0.5 else "baseline"
        ),
        lambda: agents.Away(draw.choice((signal.SIGTERM, signal.SIGKILL)), seconds),
        lambda: engines.Crash(key, seconds),
        lambda: engines.Idle(key, 2 * seconds),
        lambda: engines.Hang(key, seconds),
        lambda: engines.Slow(key, seconds, draw.choice((0.5, 2.0, 5.0))),
        lambda: engines.Lies(key, seconds, draw.choice(LIES)),
        lambda: engines.SwapModel(key),
        lambda: drivers.Values(uuid, seconds, draw.choice((drivers.ENERGY, drivers.POWER)), drivers.UINT64_MAX),
        lambda: drivers.Values(uuid, seconds, drivers.POWER, drivers.UINT32_MAX),
        lambda: drivers.Values(uuid, seconds, drivers.ENERGY, 5),
        lambda: drivers.Refuses(uuid, 11.0, draw.choice((drivers.MIG, drivers.PROCESSES))),
        lambda: drivers.HangingCall(uuid, seconds),
        lambda: drivers.Lost(uuid, seconds, draw.random() < 0.5),
        lambda: drivers.SameUuid(uuid, seconds),
        lambda: drivers.OtherUuid(uuid, seconds),
        lambda: drivers.OtherSlot(uuid, seconds),
        lambda: stores.DiskFull(seconds, draw.choice((0, 4096, 100_000))),
        lambda: stores.Reader(seconds),
        lambda: stores.ReadOnlyFolder(seconds),
        lambda: prices.NewPrice(draw.choice(("cpu", "gpu")), float(draw.choice((0.5, 30.0)))),
    )
    return draw.choice(makers)()
