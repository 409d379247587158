"""A real llama.cpp server (xllamacpp) in a process of its own, with the knobs that a site changes.

Run as a program it is that server; it ends when its standard input does.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.request import urlopen

from tests.llama import free_port

DEADLINE_S = 120.0
GGML_TYPES = {"fp16": 1, "int8": 8}
"""Of the cache, as ggml numbers them: F16 and Q8_0."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Command-line settings of a server."""

    model: str
    """Path of its GGUF file."""
    alias: str
    slots: int
    context: int
    """Tokens of each slot."""
    threads: int
    kv_dtype: str


class Server:
    """One server process on a port of loopback, while it is entered."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running server."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> "Server":
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(self._port), json.dumps(asdict(self._settings))],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + DEADLINE_S
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError(f"llama.cpp does not serve {self._settings}")
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process = None

    def _serves(self) -> bool:
        try:
            with urlopen(f"{self.url}/health", timeout=1) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False


def serve(port: int, settings: ServerSettings) -> None:
    """Be the server until standard input ends."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings.model
    params.model_alias = {settings.alias}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = settings.slots
    params.n_ctx = settings.context * settings.slots
    params.kv_unified = False
    params.endpoint_metrics = True
    params.warmup = True
    params.cache_ram_mib = 0
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED  # a Q8_0 cache needs it
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type(GGML_TYPES[settings.kv_dtype])
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads
    server = xllamacpp.Server(params)
    sys.stdin.read()
    del server
    os._exit(0)


if __name__ == "__main__":
    serve(int(sys.argv[1]), ServerSettings(**json.loads(sys.argv[2])))
