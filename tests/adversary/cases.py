"""Each known hazard alone, so that a failure has one cause: `python -m tests.adversary --case NAME`."""

import signal
from dataclasses import replace
from typing import Literal

from tests.adversary.behaviour import LIES, Lie
from tests.adversary.disturbances import Disturbance, agents, clocks, drivers, engines, prices, stores
from tests.adversary.engines import EngineSpec
from tests.adversary.world import ENGINES, PAIR, TWINS, Act, World, divided, gpus

GPU = "GPU-adversary-0"
_UNTIL: tuple[Literal["baseline", "row"], ...] = ("baseline", "row")


def _world(name: str, *acts: tuple[float, Disturbance], **others: object) -> World:
    given = {"engines": ENGINES, "gpus": gpus(3), "acts": tuple(Act(at_s, what) for at_s, what in acts)}
    return World(name, **(given | others))  # type: ignore[arg-type]


def _lie(lie: Lie) -> World:
    seconds = 24.0 if lie == "alternating" else 6.0
    acts: list[tuple[float, Disturbance]] = [(2.0, engines.Lies(key, seconds, lie)) for key in ("a", "b")]
    # One token less is a fall only where none is served meanwhile.
    acts += [(1.5, engines.Idle(key, seconds + 1.0)) for key in ("a", "b") if lie == "one_less"]
    return _world(lie, *acts)


CASES: dict[str, World] = {
    world.name: world
    for world in (
        _world("nothing"),
        _world("step forth by 1 s", (2.0, clocks.Step(1.0))),
        _world("step back by 1 s", (2.0, clocks.Step(-1.0))),
        *(
            _world(
                f"step of {by_s:+g} s and restarts after a {until}" + (" of an idle host" if idle else ""),
                (3.0, clocks.StepAndRestart(by_s, 2, until)),
                *((1.0, engines.Idle(engine.key, 20.0)) for engine in ENGINES if idle),
            )
            for by_s in (1.0, -1.0)
            for until in _UNTIL
            for idle in (False, True)
        ),
        _world("many small steps", *((1.0 + n, clocks.Step(-1.0 if n % 2 else 1.0, seconds=0.2)) for n in range(6))),
        _world("step back of 45 s", (2.0, clocks.Step(-45.0)), (4.0, agents.Away(signal.SIGKILL, 1.0))),
        _world("step forth of 1 h", (2.0, clocks.Step(3600.0)), (5.0, agents.Away(signal.SIGTERM, 1.0))),
        _world("step forth of 1 h while away", (2.0, agents.Away(signal.SIGTERM, 4.0)), (4.0, clocks.Step(3600.0))),
        _world("step back of 1 h", (2.0, clocks.Step(-3600.0)), (6.0, agents.Away(signal.SIGTERM, 1.0))),
        _world("step back of 3 days", (2.0, clocks.Step(-3 * clocks.DAY_S)), (6.0, agents.Away(signal.SIGTERM, 1.0))),
        _world("1000 days forth for 45 s", (2.0, clocks.Step(1000 * clocks.DAY_S, back=True, seconds=45.0))),
        _world("1000 days forth for 8 s", (2.0, clocks.Step(1000 * clocks.DAY_S, back=True, seconds=8.0))),
        _world("killed", (2.0, agents.Away(signal.SIGKILL, 3.0)), (8.0, agents.Away(signal.SIGKILL, 0.5))),
        _world("engine crashes", (2.0, engines.Crash("a", 2.0)), (3.0, engines.Crash("b", 3.0))),
        _world("engine crashes while away", (2.0, agents.Away(signal.SIGTERM, 5.0)), (3.0, engines.Crash("a", 1.0))),
        _world(
            "unreadable when the agent starts",
            (2.0, engines.Lies("a", 8.0, "large")),
            (2.0, engines.Lies("b", 8.0, "cut")),
            (4.0, agents.Away(signal.SIGTERM, 1.0)),
        ),
        _world("engine hangs", (2.0, engines.Hang("a", 20.0))),
        _world("engine is slow", (2.0, engines.Slow("a", 15.0, 4.0))),
        _world("silent at the start", silent_at_start=("a", "b", "c")),
        *map(_lie, LIES),
        _world(
            "half of each count and a restart",
            # Ends long before the half passes the last whole count: a true reset that rises past it looks the same.
            *((10.0, engines.Lies(key, 4.0, "half")) for key in ("a", "b")),
            (11.5, agents.Away(signal.SIGKILL, 0.5)),
        ),
        _world("model swap", (2.0, engines.SwapModel("a", 30.0)), (2.0, engines.SwapModel("b", 30.0))),
        _world("twins on one port", engines=(*ENGINES, *TWINS)),
        _world("twins on one port and a crash", (3.0, engines.Crash("t1", 2.0)), engines=(*ENGINES, *TWINS)),
        _world("twins on one port and a restart", (3.0, agents.Away(signal.SIGKILL, 2.0)), engines=(*ENGINES, *TWINS)),
        _world("a pair answers in turn", (8.0, agents.Away(signal.SIGTERM, 1.0)), engines=(*ENGINES, *PAIR)),
        _world("found by looking", (3.0, agents.Away(signal.SIGKILL, 1.0)), engines=(*ENGINES, *TWINS), discover=True),
        _world("energy UINT64_MAX", (2.0, drivers.Values(GPU, 5.0, drivers.ENERGY, drivers.UINT64_MAX))),
        _world("power UINT32_MAX", (2.0, drivers.Values(GPU, 5.0, drivers.POWER, drivers.UINT32_MAX))),
        _world("memory UINT64_MAX", (2.0, drivers.Values(GPU, 5.0, ("nvmlDeviceGetMemoryInfo_v2",)))),
        _world("throttle UINT64_MAX", (2.0, drivers.Values(GPU, 5.0, ("nvmlDeviceGetCurrentClocksEventReasons",)))),
        _world("frozen energy", (2.0, drivers.Values(GPU, 12.0, drivers.ENERGY, 10**9))),
        _world("fallen energy", (2.0, drivers.Values(GPU, 5.0, drivers.ENERGY, 5))),
        _world(
            "MIG devices refused",
            (2.0, drivers.Refuses(GPU, 26.0)),
            (4.0, agents.Away(signal.SIGTERM, 1.0)),
            gpus=(divided(gpus(3)[0]), *gpus(3)[1:]),
        ),
        _world("MIG mode refused", (2.0, drivers.Refuses(GPU, 26.0)), (4.0, agents.Away(signal.SIGTERM, 1.0))),
        _world(
            "processes refused",
            (2.0, drivers.Refuses(GPU, 26.0, drivers.PROCESSES)),
            (4.0, agents.Away(signal.SIGTERM, 1.0)),
        ),
        _world("call hangs", (2.0, drivers.HangingCall(GPU, 8.0))),
        _world("GPU lost", (2.0, drivers.Lost(GPU, 5.0))),
        _world("GPU removed", (2.0, drivers.Lost(GPU, 12.0, listed=False))),
        _world("duplicate UUID", (2.0, drivers.SameUuid(GPU, 6.0))),
        _world("duplicate UUID from the start", gpus=(*gpus(3), replace(gpus(4)[3], uuid=GPU))),
        _world("other UUID behind a handle", (2.0, drivers.OtherUuid(GPU, 8.0))),
        _world("other slot", (2.0, drivers.OtherSlot(GPU, 8.0))),
        _world("disk full", (2.0, stores.DiskFull(6.0))),
        _world("disk full and killed", (2.0, stores.DiskFull(6.0)), (5.0, agents.Away(signal.SIGKILL, 1.0))),
        _world("reader", (2.0, stores.Reader(10.0)), (4.0, agents.Away(signal.SIGTERM, 1.0))),
        _world("read-only folder", (2.0, stores.ReadOnlyFolder(6.0))),
        _world("read-only folder and restart", (2.0, stores.ReadOnlyFolder(6.0)), (3.0, agents.Away(seconds=2.0))),
        _world("new price", (2.0, prices.NewPrice("gpu", 100.0))),
        _world(
            "new price while away", (6.0, prices.NewPriceWhileAway("gpu", 400.0)), minute_at_s=3.0 + 6.0 + 8.0 + 2.0
        ),
        _world("low duty of a real llama.cpp", engines=ENGINES[:1], llama=True),
    )
}


SHORT = World(
    "short",
    engines=(
        *ENGINES,
        EngineSpec("d", "vllm"),
        EngineSpec("e", "llama-server", busy=0.2),
        *TWINS,
    ),
    gpus=(*gpus(2), divided(gpus(3)[2]), gpus(4)[3]),
    acts=(
        Act(0.2, engines.Idle("a", 6.0)),
        Act(0.5, engines.Lies("a", 4.0, "one_less")),
        Act(0.5, engines.Lies("d", 5.0, "alternating")),
        Act(0.5, engines.Hang("c", 13.0)),
        Act(0.5, drivers.Values(GPU, 4.0, drivers.ENERGY, drivers.UINT64_MAX)),
        Act(0.5, drivers.Values("GPU-adversary-1", 10.0, drivers.ENERGY, 10**9)),
        Act(0.5, drivers.Refuses("GPU-adversary-2", 16.0)),
        Act(1.0, engines.Idle("b", 12.0)),
        Act(1.0, clocks.Step(1000 * clocks.DAY_S, back=True, seconds=5.0)),
        Act(7.5, clocks.StepAndRestart(-1.0, kills=1, seconds=4.0)),
        Act(12.0, stores.DiskFull(2.5)),
        Act(13.0, engines.Crash("e", 1.0)),
    ),
)
"""Most of them at once, for the test suite; what one disturbance touches no other one does."""
