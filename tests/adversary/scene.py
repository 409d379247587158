"""A world while it runs: the machine's driver, the engines, the agent, its database; what disturbances act on."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.adversary.clock import SteppedClock
from tests.adversary.engines import ROOT, EngineSpec, ScriptedEngine, free_port
from tests.standin_nvml import Gpu, Machine, set_machine
from tests.standin_nvml.controlled import CLOCK
from tests.standin_nvml.shared import compiled

DEADLINE_S = 60.0
SCRAPE_TIMEOUT_S = 15
"""How long the agent waits for a page: long, to distinguish a deliberate wait from a slow page on a busy machine."""
_BOUND_BY_MODES = (
    "import ctypes, os, sys; libc = ctypes.CDLL(None); [libc.prctl(24, n, 0, 0, 0) for n in (1, 2)]; "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
"""Runs a program for which file modes hold even as root: without CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""


@dataclass(frozen=True, slots=True)
class Exit:
    """End of an agent process. `asked`: the signal that we sent; None without one."""

    asked: int | None
    code: int
    seconds: float
    """From the signal to the end."""
    log: str


class Agent:
    """`pertoken agent` on a folder at an interval of 1 s, as one process after the other."""

    def __init__(self, folder: Path, options: tuple[str, ...], environment: Mapping[str, str]) -> None:
        self.folder, self._options, self._environment = folder, options, dict(environment)
        self._log = folder.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None
        self._read = 0
        self.exits: list[Exit] = []
        self.started_s: list[float] = []

    @property
    def runs(self) -> bool:
        """Whether there is a process, ended or not, that was not stopped."""
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start a process; one that runs goes on."""
        if self._process is None:
            own = [sys.executable, "-m", "pertoken", "agent", "--db", str(self.folder), "--interval", "1s"]
            command = [sys.executable, "-I", "-S", "-c", _BOUND_BY_MODES, *own, *self._options]
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(command, stderr=log, env=self._environment)
            self.started_s.append(time.monotonic())

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the process by a signal and note how it ended."""
        if self._process is not None and not self.died():
            began_s = time.monotonic()
            self._process.send_signal(number)
            try:
                self._process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._ended(number, began_s)

    def died(self) -> bool:
        """Return whether its process ended though nobody asked; this is noted, and `start` starts another one."""
        if self._process is None or self._process.poll() is None:
            return False
        self._ended(None, time.monotonic())
        return True

    def _ended(self, asked: int | None, began_s: float) -> None:
        assert self._process is not None
        log = self._log.read_text(errors="replace")
        code = self._process.returncode
        self.exits.append(Exit(asked, code, time.monotonic() - began_s, log[self._read :]))
        self._read, self._process = len(log), None


@dataclass
class Scene:
    """One running world."""

    folder: Path
    clock: SteppedClock
    engines: dict[str, ScriptedEngine]
    gpus: list[Gpu]
    """By slot; what the driver pretends now."""
    agent: Agent
    environment: dict[str, str]
    """Of commands: they see the stepped clock."""
    prices: list[tuple[int, str, float]] = field(default_factory=list)
    """(from when, Unix time on the stepped clock; selector; dollars an hour)."""
    reloads: int = 0
    held: dict[str, object] = field(default_factory=dict)
    """What a disturbance keeps between its begin and its end, by its name."""

    @property
    def db(self) -> Path:
        return self.agent.folder

    def show_gpus(self) -> None:
        """Make the driver answer with the devices of `gpus`."""
        set_machine(self.folder / "machine", Machine(gpus=tuple(self.gpus), reloads=self.reloads))

    def change_gpu(self, known: str, /, **fields: Any) -> None:
        """Change one GPU, by the UUID that it has now."""
        slot = next(slot for slot, gpu in enumerate(self.gpus) if gpu.uuid == known)
        self.gpus[slot] = replace(self.gpus[slot], **fields)
        self.show_gpus()

    def hold_gpus(self) -> None:
        """Have each engine's process on its GPU."""
        for slot, gpu in enumerate(self.gpus):
            pids = [engine.pid for engine in self.engines.values() if engine.spec.gpu == gpu.uuid and engine.runs]
            processes = tuple((pid, 8 * 2**30) for pid in pids)
            if gpu.slices:
                self.gpus[slot] = replace(gpu, slices=(replace(gpu.slices[0], processes=processes), *gpu.slices[1:]))
            else:
                self.gpus[slot] = replace(gpu, processes=processes)
        self.show_gpus()

    def set_price(self, selector: str, usd: float, from_ts: int | None = None) -> None:
        """Set a price by the command line: from `from_ts` (whole minutes), or as the command does by default."""
        now = int(self.clock.now_s())
        first = all(price[1] != selector for price in self.prices)
        options = [] if from_ts is None else ["--from", time.strftime("%Y-%m-%dT%H:%M", time.gmtime(from_ts))]
        done = self.command("prices", "set", str(usd), "--for", selector, *options, "--db", str(self.db))
        assert done.returncode == 0, done.stderr
        default = 0 if first else now // 60 * 60
        self.prices.append((default if from_ts is None else from_ts, selector, usd))

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a `pertoken` command under the stepped clock."""
        return subprocess.run(
            [sys.executable, "-m", "pertoken", *arguments],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Return rows of the telemetry as it is now, read without the code under test; none where it cannot be read."""
        with suppress(sqlite3.OperationalError):
            connection = sqlite3.connect(f"file:{self.db}/telemetry.db?mode=ro", uri=True, timeout=2)
            try:
                return connection.execute(sql).fetchall()
            finally:
                connection.close()
        return []

    def until(self, true: Callable[[], object], what: str, within_s: float = DEADLINE_S) -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + within_s
        while not true():
            if time.monotonic() > deadline:
                raise NotReached(f"waited {within_s:.0f} s for {what}")
            if self.agent.died():
                raise NotReached(f"the agent ended while waiting for {what}: {self.agent.exits[-1].log[-2000:]}")
            time.sleep(0.1)

    def limit_files(self, most: int | None) -> None:
        """Limit the size of files that the agent may write; None: no limit."""
        with suppress(ProcessLookupError, AssertionError):
            _, hard = resource.prlimit(self.agent.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(self.agent.pid, resource.RLIMIT_FSIZE, (hard if most is None else most, hard))

    def close(self) -> None:
        """End every process that was started."""
        self.limit_files(None)
        self.agent.stop(signal.SIGKILL)
        for engine in self.engines.values():
            engine.stop()


class NotReached(Exception):
    """A condition that must come did not."""


def prepared(
    folder: Path, specs: tuple[EngineSpec, ...], gpus: tuple[Gpu, ...], discover: bool, urls: tuple[str, ...]
) -> Scene:
    """Return everything laid out in `folder`, the engines started, the agent not yet. `urls` are named to it
    besides."""
    clock = SteppedClock(folder)
    machine = Machine(gpus=gpus)
    engines: dict[str, ScriptedEngine] = {}
    for spec in specs:
        port = (
            engines[spec.port_of].port
            if spec.port_of
            else free_port(dict.fromkeys(("127.0.0.1", *(spec.host for spec in specs))))
        )
        engines[spec.key] = ScriptedEngine(spec, folder / spec.key, port)
    settings = folder / "pertoken.toml"
    settings.touch()
    plain = clock.environment(compiled(machine, folder)) | {
        CLOCK: "monotonic",
        "PERTOKEN_CONFIG": str(settings),
        "PERTOKEN_AGENT_CLOUD_METADATA": "false",
        "PERTOKEN_AGENT_PROBES": "nvidia",
        "PERTOKEN_AGENT_DISCOVER": str(discover).lower(),
        "PERTOKEN_AGENT_SCRAPE_TIMEOUT": f"{SCRAPE_TIMEOUT_S}s",
        "PERTOKEN_STORE_CHECK_EVERY": "15s",
    }
    plain["PYTHONPATH"] = os.pathsep.join(dict.fromkeys((*plain["PYTHONPATH"].split(os.pathsep), str(ROOT))))
    named = dict.fromkeys((*urls, *(() if discover else (engine.url for engine in engines.values()))))
    options = tuple(word for url in named for word in ("--engine", url))
    scene = Scene(folder, clock, engines, list(gpus), Agent(folder / "db", options, plain), plain)
    try:
        for engine in engines.values():
            engine.behaviour = replace(engine.behaviour, prompt_tok_s=0.0, generated_tok_s=0.0, busy=0.0)
            engine.start()
        scene.hold_gpus()
    except BaseException:
        scene.close()
        raise
    return scene
