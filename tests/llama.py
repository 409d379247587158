"""A real llama.cpp server for tests: xllamacpp in a process of its own, serving a tiny model of random weights.

Run as a program it is that server (`python -m tests.llama MODEL HOST PORT SLOTS METRICS SHARED CONTEXT THREADS ALIAS`);
it ends when its standard input does, so that it cannot outlive the test that started it. A line on standard input
(MODEL, tab, ALIAS) swaps the model in the living process.
"""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.request import Request, urlopen

ALIAS = "tiny-llama"
SLOTS = 4
CONTEXT = 2048
"""Tokens per slot."""
N_TOKENS = 259
"""Vocabulary: unknown, begin, end, and one token for each byte. Prompts may use 3 to 258."""
DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a llama model; the feed-forward is `hidden` wide."""

    width: int = 64
    heads: int = 4
    layers: int = 2
    hidden: int = 128


TINY = Shape()


def write_model(
    path: Path,
    seed: int = 0,
    shape: Shape = TINY,
    *,
    weights: Literal["F32", "F16", "Q8_0"] = "F32",
    answers: str | None = None,
    end_bias: float | None = None,
    chat_template: str | None = None,
) -> Path:
    """Write a llama model of random weights as GGUF: 0.4 MB, if not of another shape.

    `answers`: a character that is all it generates. `end_bias`: weight that makes the end of an output likelier.
    `weights`: type of its matrices; Q8_0 needs a width and a hidden size that are multiples of 32.
    """
    import gguf
    import numpy as np

    width, heads, layers, hidden = shape.width, shape.heads, shape.layers, shape.hidden
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(ALIAS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // heads)
    writer.add_vocab_size(N_TOKENS)
    writer.add_file_type(gguf.LlamaFileType["ALL_F32" if weights == "F32" else f"MOSTLY_{weights}"])
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))])
    writer.add_token_scores([0.0] * N_TOKENS)
    kinds = gguf.TokenType
    writer.add_token_types([kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
    random = np.random.default_rng(seed)

    kind = gguf.GGMLQuantizationType[weights]
    favoured = {} if end_bias is None else {2: end_bias}
    favoured |= {} if answers is None else {3 + ord(answers): 2.0}

    def add_matrix(name: str, rows: int, columns: int) -> None:
        values = (random.standard_normal((rows, columns)) * 0.05).astype(np.float32)
        if favoured and name == "token_embd.weight":
            values[:, 0] = 1.0  # it stays the largest coordinate, about sqrt(width) / 1.5 after the last norm
        for token, weight in favoured.items() if name == "output.weight" else ():
            values[token, 0] = weight
        writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)

    add_matrix("token_embd.weight", N_TOKENS, width)
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    add_matrix("output.weight", N_TOKENS, width)
    for layer in range(layers):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add_matrix(f"blk.{layer}.{name}.weight", width, width)
        add_matrix(f"blk.{layer}.ffn_gate.weight", hidden, width)
        add_matrix(f"blk.{layer}.ffn_up.weight", hidden, width)
        add_matrix(f"blk.{layer}.ffn_down.weight", width, hidden)
        writer.add_tensor(f"blk.{layer}.attn_norm.weight", np.ones(width, np.float32))
        writer.add_tensor(f"blk.{layer}.ffn_norm.weight", np.ones(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts that the server returned to one client."""

    prompt_tokens: int
    """Submitted, cached included."""
    generated_tokens: int


class LlamaServer:
    """One server process on a port of loopback; stays on its port across restarts."""

    def __init__(
        self,
        model: Path,
        *,
        metrics: bool = True,
        port: int | None = None,
        slots: int = SLOTS,
        host: str = "127.0.0.1",
        shared: bool = False,
        context: int | None = None,
        threads: int = 1,
        alias: str = ALIAS,
    ) -> None:
        """`shared`: other servers may listen on the same address (SO_REUSEPORT).

        `context`: tokens of all slots together, which it divides among them; by default `CONTEXT` for each.
        """
        self.model = model
        self.metrics = metrics
        self.slots = slots
        self.port = port or free_port()
        self.host = host
        self.shared = shared
        self.threads = threads
        self.alias = alias
        self.context = context or CONTEXT * slots
        self.url = f"http://{host}:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running server."""
        assert self._process is not None, "the server does not run"
        return self._process.pid

    def start(self) -> "LlamaServer":
        """Start it and wait until it serves."""
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.llama", str(self.model), self.host, str(self.port)),
                *(str(self.slots), str(int(self.metrics)), str(int(self.shared)), str(self.context)),
                *(str(self.threads), self.alias),
            ],
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + DEADLINE_S
        while not self._healthy():
            assert self._process.poll() is None, "the server ended before it served"
            assert time.monotonic() < deadline, "the server does not serve"
            time.sleep(0.02)
        return self

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process = None

    def restart(self) -> "LlamaServer":
        """End it and start another process on the same port."""
        self.kill()
        return self.start()

    def swap(self, model: Path, alias: str) -> None:
        """Serve another model in the same process, and wait until it is served."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(f"{model}\t{alias}\n".encode())
        self._process.stdin.flush()
        deadline = time.monotonic() + DEADLINE_S
        while self._served() != alias:
            assert time.monotonic() < deadline, "the server does not serve the other model"
            time.sleep(0.02)

    def complete(self, prompt: list[int], generated: int) -> Usage:
        """Return one request of these prompt tokens that generates exactly `generated` tokens."""
        request = {"prompt": prompt, "n_predict": generated, "ignore_eos": True, "temperature": 0}
        reply = json.loads(self._post(request).read())
        return Usage(reply["timings"]["cache_n"] + reply["timings"]["prompt_n"], reply["tokens_predicted"])

    def answer(self, prompt: list[int], limit: int, seed: int) -> Usage:
        """Return one sampled request that the model ends, or that is cut at `limit` tokens."""
        request = {"prompt": prompt, "n_predict": limit, "temperature": 1, "seed": seed}
        reply = json.loads(self._post(request).read())
        return Usage(reply["timings"]["cache_n"] + reply["timings"]["prompt_n"], reply["tokens_predicted"])

    def abort(self, prompt: list[int]) -> None:
        """One streamed request whose client leaves after the first token; returns when the server noticed."""
        request = {"prompt": prompt, "n_predict": CONTEXT // 2, "ignore_eos": True, "stream": True}
        with self._post(request) as reply:
            assert reply.readline().startswith(b"data:")
        deadline = time.monotonic() + DEADLINE_S
        while self.counter("requests_processing"):
            assert time.monotonic() < deadline, "the server did not notice that the client left"
            time.sleep(0.01)

    def counter(self, name: str) -> int:
        """Return one of the server's metrics, read without the code under test."""
        return int(self.seconds(name))

    def seconds(self, name: str) -> float:
        """Return one of the server's times, read without the code under test."""
        with urlopen(f"{self.url}/metrics", timeout=DEADLINE_S) as reply:
            lines = reply.read().decode().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith(f"llamacpp:{name} ")))

    def counted(self) -> dict[str, int]:
        """Return all tokens so far, in our words, read without the code under test."""
        computed, cached = self.counter("prompt_tokens_total"), self.counter("prompt_tokens_cached_total")
        return {
            "prompt_tokens": computed + cached,
            "cached_tokens": cached,
            "computed_tokens": computed,
            "generated_tokens": self.counter("tokens_predicted_total"),
        }

    def __enter__(self) -> "LlamaServer":
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.kill()

    def _post(self, request: dict[str, object]) -> Any:
        body = json.dumps(request).encode()
        headers = {"Content-Type": "application/json", "Connection": "close"}
        return urlopen(Request(f"{self.url}/completion", body, headers), timeout=DEADLINE_S)

    def _served(self) -> str | None:
        try:
            with urlopen(f"{self.url}/v1/models", timeout=1) as reply:
                return str(json.load(reply)["data"][0]["id"])
        except (OSError, KeyError):
            return None

    def _healthy(self) -> bool:
        try:
            with urlopen(f"{self.url}/health", timeout=1) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False


def free_port() -> int:
    """Return a port of loopback that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def serve(
    model: str, host: str, port: int, slots: int, metrics: bool, shared: bool, context: int, threads: int, alias: str
) -> None:
    """Be the server until standard input ends."""
    import xllamacpp

    def started(model: str, alias: str) -> object:
        params = xllamacpp.CommonParams()
        params.model.path = model
        params.model_alias = {alias}
        params.hostnames = [host]
        params.port = port
        params.reuse_port = shared
        params.n_parallel = slots
        params.n_ctx = context
        params.kv_unified = False
        params.endpoint_metrics = metrics
        params.warmup = False
        params.cache_ram_mib = 0  # else every prompt a slot drops is copied aside
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = threads
        return xllamacpp.Server(params)

    server = started(model, alias)
    for line in sys.stdin:
        del server
        server = started(*line.rstrip("\n").split("\t"))
    del server
    os._exit(0)


if __name__ == "__main__":
    serve(
        sys.argv[1],
        sys.argv[2],
        int(sys.argv[3]),
        int(sys.argv[4]),
        sys.argv[5] == "1",
        sys.argv[6] == "1",
        int(sys.argv[7]),
        int(sys.argv[8]),
        sys.argv[9],
    )
