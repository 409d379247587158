"""Plays a world over a real agent process, and has it judged."""

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from tests.adversary.behaviour import Served
from tests.adversary.judge import Finding, judged
from tests.adversary.played import Played, Watcher
from tests.adversary.scene import NotReached, Scene, prepared
from tests.adversary.world import PRICES, World
from tests.llama import ALIAS, LlamaServer, write_model

READY_S = 45.0
SETTLE_S = 60.0
"""An engine that could not be read when the agent started is asked again after `recorder.LOOK_S`, 30 s."""
COMMANDS = (
    ("db", "check"),
    ("top",),
    ("costs", "--json"),
    ("advise", "--json"),
    ("doctor",),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A world that was played, and what is wrong with what is stored of it."""

    world: World
    findings: tuple[Finding, ...]
    seconds: float
    stored: dict[str, int]
    """Generated tokens that are stored, by model."""
    played: Played


def play(world: World, folder: Path, progress: Callable[[str], None] = lambda _: None) -> Outcome:
    """Play one world in an empty folder."""
    began_s = time.monotonic()
    with ExitStack() as stack:
        llama = _llama(stack, folder) if world.llama else None
        urls = (llama.url,) if llama else ()
        scene = prepared(folder, world.engines, world.gpus, world.discover, urls)
        stack.callback(scene.close)
        if world.minute_at_s is not None:
            scene.clock.set(-((time.time() + world.minute_at_s) % 60))
        watcher = Watcher(scene.db)
        with watcher:
            problems, down, unwritable, loaded_s = _acted(scene, world, llama, progress)
        ended_s = time.monotonic()
        progress("asking the commands")
        commands = {" ".join(words): scene.command(*words, "--db", str(scene.db)) for words in COMMANDS}
        served: dict[str, Served] = {}
        for engine in scene.engines.values():
            for model, truth in engine.served().items():
                served[model] = served.get(model, Served()) + truth
        if llama:
            counted = llama.counted()
            served[ALIAS] = Served(counted["prompt_tokens"], counted["cached_tokens"], counted["generated_tokens"])
        starts_s = tuple(scene.agent.started_s)
        played = Played(
            world,
            scene.db,
            (*(engine.port for engine in scene.engines.values()), *([llama.port] if llama else [])),
            served,
            looks=tuple(watcher.looks),
            exits=tuple(scene.agent.exits),
            starts_s=starts_s,
            first_s=tuple(until_s for _, until_s in down),
            down=tuple(down),
            unwritable=tuple(unwritable),
            loaded_s=loaded_s,
            ended_s=ended_s,
            offsets=tuple(scene.clock.steps),
            wall_s=time.time() - time.monotonic(),
            prices=tuple(scene.prices),
            commands=commands,
            problems=tuple(problems),
            llama_busy_s=_busy_s(llama) if llama else None,
        )
        findings, stored = judged(played)
    return Outcome(world, findings, time.monotonic() - began_s, stored, played)


class _Downs:
    """Notes for how long there was no agent that records."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self.intervals = scene, list[tuple[float, float]]()
        self._since_s: float | None = time.monotonic()
        self._rows = 0
        self._starts = 0

    def look(self) -> None:
        rows = int((self._scene.ask("SELECT COUNT(*) FROM host_sample") or [(0,)])[0][0])
        starts, now_s = len(self._scene.agent.started_s), time.monotonic()
        if self._since_s is None and (starts != self._starts or not self._scene.agent.runs):
            self._since_s = min([now_s, *self._scene.agent.started_s[self._starts :]])
            self._rows = rows
        if self._since_s is not None and self._scene.agent.runs and rows > self._rows:
            self.intervals.append((self._since_s, now_s))
            self._since_s = None
        self._starts = starts


def _acted(
    scene: Scene, world: World, llama: LlamaServer | None, progress: Callable[[str], None]
) -> tuple[list[str], list[tuple[float, float]], list[tuple[float, float]], float]:
    """Return everything from the agent's first start to its last end."""
    problems: list[str] = []
    unwritable: list[tuple[float, float]] = []
    downs = _Downs(scene)
    loaded_s = time.monotonic()
    try:
        for key in world.silent_at_start:
            scene.engines[key].signal(signal.SIGSTOP)
        scene.agent.start()
        scene.until(lambda: scene.ask("SELECT 1 FROM host_sample LIMIT 1"), "the first row", READY_S)
        downs.look()
        for key in world.silent_at_start:
            scene.engines[key].signal(signal.SIGCONT)
        known = {engine.spec.model for engine in scene.engines.values() if not engine.spec.shared}
        known |= {ALIAS} if llama else set()
        scene.until(lambda: known <= _models(scene, llama), f"{', '.join(sorted(known))} to be seen", READY_S)
        if any(engine.spec.shared for engine in scene.engines.values()):
            several = "SELECT 1 FROM event WHERE kind = 'engine_several_servers'"
            scene.until(lambda: scene.ask(several), "servers at one address to be seen as several", READY_S)
        for selector, usd in PRICES:
            scene.set_price(selector, usd)
        loaded_s = time.monotonic()
        for engine in scene.engines.values():
            engine.behave(engine.spec.behaviour())
        _play_acts(scene, world, llama, downs, unwritable, progress)
    except NotReached as error:
        problems.append(str(error))
    progress("settling")
    problems += _settled(scene, downs)
    scene.agent.stop()
    return problems, downs.intervals, unwritable, loaded_s


def _play_acts(
    scene: Scene,
    world: World,
    llama: LlamaServer | None,
    downs: _Downs,
    unwritable: list[tuple[float, float]],
    progress: Callable[[str], None],
) -> None:
    due: list[tuple[float, int, str]] = [(act.at_s, n, "begin") for n, act in enumerate(world.acts)]
    began_s = time.monotonic()
    closed_s: dict[int, float] = {}
    asked = 0
    while due or time.monotonic() - began_s < world.seconds:
        due.sort()
        if due and due[0][0] <= time.monotonic() - began_s:
            at_s, n, part = due.pop(0)
            what = world.acts[n].what
            progress(f"{time.monotonic() - began_s:5.1f} s  {part} {what}")
            if part == "begin":
                if "store" in what.touches:
                    closed_s[n] = time.monotonic()
                what.begin(scene)
                # One that began late, or took long to begin, lasts as long as it is meant to all the same, and what
                # follows begins as much later: no two may touch one thing at once.
                now_s = time.monotonic() - began_s
                late_s = now_s - at_s
                due = [(at + late_s if of == "begin" else at, act, of) for at, act, of in due]
                due.append((now_s + what.seconds, n, "end"))
            else:
                what.end(scene)
                if n in closed_s:
                    unwritable.append((closed_s.pop(n), time.monotonic()))
        if scene.agent.died() and not closed_s:
            scene.agent.start()
        downs.look()
        if llama and time.monotonic() - began_s > asked:
            asked += 1
            llama.complete([*range(20, 30), 40 + asked], generated=20)
        time.sleep(0.05)


def _settled(scene: Scene, downs: _Downs) -> list[str]:
    """Stop the load, and wait until the agent has stored all of it: further rows of the host and of every engine."""
    for engine in scene.engines.values():
        if engine.runs:
            engine.signal(signal.SIGCONT)
            now = engine.behaviour
            engine.behave(type(now)(now.model))
    scene.agent.died()
    scene.agent.start()
    time.sleep(0.3)
    rows, counted = _rows(scene), _counted_rows(scene)
    # The first row may hold a page that was read before the load ended.
    wanted = {key: counted.get(key, 0) + 2 for key in _awaited(scene)}

    def missing() -> list[str]:
        now = _counted_rows(scene)
        return [f"{model} at port {port}" for (model, port), n in wanted.items() if now.get((model, port), 0) < n]

    try:
        scene.until(lambda: _rows(scene) >= rows + 3, "three more rows", SETTLE_S)
        downs.look()
        scene.until(lambda: not missing(), "rows of all engines", SETTLE_S)
    except NotReached as error:
        return [f"{error}; without rows: {', '.join(missing()) or 'none'}"]
    return []


def _awaited(scene: Scene) -> set[tuple[str, int]]:
    """Return model and port of every engine whose tokens must be counted in the end."""
    return {
        (engine.behaviour.model, engine.port)
        for engine in scene.engines.values()
        if engine.runs and not engine.spec.shared
    }


def _counted_rows(scene: Scene) -> dict[tuple[str, int], int]:
    """Return the number of rows that hold tokens, by model and port."""
    rows = scene.ask(
        "SELECT served_model, port, COUNT(*) FROM deployment_sample JOIN epoch USING (epoch_id) "
        "JOIN deployment USING (deployment_id) JOIN engine USING (engine_id) "
        "WHERE generated_tokens IS NOT NULL GROUP BY served_model, port"
    )
    return {(model, port): n for model, port, n in rows}


def _rows(scene: Scene) -> int:
    return int((scene.ask("SELECT COUNT(*) FROM host_sample") or [(0,)])[0][0])


def _models(scene: Scene, llama: LlamaServer | None) -> set[str]:
    """Return models of our engines; others of this machine may be found, too."""
    ports = {engine.port for engine in scene.engines.values()} | ({llama.port} if llama else set())
    models = scene.ask("SELECT served_model, port FROM deployment JOIN engine USING (engine_id)")
    return {model for model, port in models if port in ports}


def _llama(stack: ExitStack, folder: Path) -> LlamaServer:
    return stack.enter_context(LlamaServer(write_model(folder / "tiny.gguf")))


def _busy_s(llama: LlamaServer) -> float:
    return _seconds(llama, "prompt_seconds_total") + _seconds(llama, "tokens_predicted_seconds_total")


def _seconds(llama: LlamaServer, name: str) -> float:
    with urlopen(f"{llama.url}/metrics", timeout=10) as reply:
        lines = reply.read().decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"llamacpp:{name} ")))
