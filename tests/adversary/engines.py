"""Scripted engines from outside: started, stopped, restarted; and what they truly served, over all their lives."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.adversary.behaviour import Behaviour, Served

Kind = Literal["vllm", "llama-server"]
DEADLINE_S = 30.0
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One engine of a world."""

    key: str
    """Of the world; its model is named for it."""
    kind: Kind
    host: str = "127.0.0.1"
    port_of: str | None = None
    """Key of the engine whose port it shares."""
    shared: bool = False
    """Whether several processes listen on this address and port (SO_REUSEPORT)."""
    prompt_tok_s: float = 40.0
    generated_tok_s: float = 200.0
    busy: float = 0.5
    gpu: str | None = None
    """UUID of the GPU that it holds."""

    @property
    def model(self) -> str:
        """The model it serves at first; engines that share an address serve the same one."""
        return f"model-{self.port_of if self.shared and self.port_of else self.key}"

    def behaviour(self) -> Behaviour:
        """Return what it does undisturbed."""
        return Behaviour(self.model, self.prompt_tok_s, self.generated_tok_s, self.busy)


class ScriptedEngine:
    """A process that serves `spec`; stays on its port across restarts."""

    def __init__(self, spec: EngineSpec, folder: Path, port: int) -> None:
        self.spec, self.port, self._folder = spec, port, folder
        host = f"[{spec.host}]" if ":" in spec.host else spec.host
        self.url = f"http://{host}:{port}"
        folder.mkdir(parents=True)
        self._program = folder / spec.kind
        self._program.symlink_to(Path(__file__).with_name("engine_process.py"))
        self.behaviour = spec.behaviour()
        self.lives = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of its process now."""
        assert self._process is not None, f"{self.spec.key} does not run"
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether it has a process."""
        return self._process is not None

    def behave(self, behaviour: Behaviour) -> None:
        """Follow this from the next step on."""
        self.behaviour = behaviour
        new = self._folder / "new"
        new.write_text(behaviour.to_json())
        new.replace(self._folder / "behaviour")

    def start(self) -> None:
        """Start its process and wait until it listens."""
        self.behave(self.behaviour)
        environment = dict(os.environ) | {"PYTHONPATH": str(ROOT), "ADVERSARY_ENGINE": str(self._folder)}
        if self.spec.shared:
            environment["ADVERSARY_SHARED"] = "1"
        words = ("serve", self.spec.model) if self.spec.kind == "vllm" else ("--metrics",)
        command = [sys.executable, str(self._program), *words, "--host", self.spec.host, "--port", str(self.port)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log, env=environment)
        self.lives += 1
        deadline = time.monotonic() + DEADLINE_S
        while not self._counts() or not self._listens():
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < deadline, f"{self.spec.key} does not listen"
            time.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process."""
        os.kill(self.pid, number)

    def stop(self) -> None:
        """End its process, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process = None

    def served(self) -> dict[str, Served]:
        """Return what all its processes so far truly served, by model."""
        total: dict[str, Served] = {}
        for file in self._folder.glob("truth.*"):
            if file.suffix != ".new":
                for model, values in json.loads(file.read_text()).items():
                    total[model] = total.get(model, Served()) + Served(**values)
        return total

    def _counts(self) -> bool:
        return (self._folder / f"truth.{self.pid}").exists()

    def _listens(self) -> bool:
        try:
            socket.create_connection((self.spec.host, self.port), timeout=1).close()
        except OSError:
            return False
        return True


def has_ipv6() -> bool:
    """Return whether this machine has the loopback of IPv6."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def free_port(hosts: Iterable[str]) -> int:
    """Return a port that nobody listens on at any of these addresses of loopback."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = int(listener.getsockname()[1])
        if all(_is_free(host, port) for host in hosts):
            return port


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        try:
            listener.bind((host, port))
        except OSError:
            return False
        return True
