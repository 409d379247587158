"""Clients of a llama.cpp server that note when each token came: alone, in a closed loop, and at random times."""

import json
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import numpy as np

from pertoken.arrivals import Lengths
from tests.llama import N_TOKENS, LlamaServer

ASCII = range(3, 3 + 128)
"""Tokens of the tiny model that are a character each. The server holds back a token that ends inside one, so a
client would take the next character's time for the token's."""
_ONLY_ASCII = [[token, False] for token in range(N_TOKENS) if token not in ASCII]
PATIENCE_S = 300.0
MAX_OPEN = 256
"""Maximum of requests in flight."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request: its prompt, and how many tokens it wants."""

    prompt: tuple[int, ...]
    generated: int


@dataclass(frozen=True, slots=True)
class Response:
    """One response as its client saw it. Seconds of one clock."""

    sent_s: float
    token_s: tuple[float, ...]
    """When each token came."""

    @property
    def ttft_s(self) -> float:
        """From sending to the first token."""
        return self.token_s[0] - self.sent_s

    @property
    def tpot_s(self) -> float:
        """Mean time between tokens, of an answer of several."""
        return (self.token_s[-1] - self.token_s[0]) / (len(self.token_s) - 1)


def request(random: np.random.Generator, prompt: float, generated: float) -> Prompt:
    """Return a prompt of a number of random tokens, rounded, that asks for two tokens or more."""
    tokens = random.choice(np.array(ASCII), max(1, round(prompt)))
    return Prompt(tuple(map(int, tokens)), max(2, round(generated)))


def requests(random: np.random.Generator, prompt: Lengths, generated: Lengths, n: int) -> list[Prompt]:
    """So many requests, prompt and answer drawn independently, every length about equally often."""
    prompts, answers = (random.permutation(np.resize(lengths.tokens, n)) for lengths in (prompt, generated))
    return [request(random, *exchange) for exchange in zip(prompts, answers, strict=True)]


def poisson_gaps(random: np.random.Generator, requests_per_s: float, n: int) -> list[float]:
    """Seconds between requests that come independently of each other, at exactly this rate over all of them."""
    gaps = -np.log1p(-(np.arange(n) + 0.5) / n)
    return list(map(float, random.permutation(gaps / gaps.mean() / requests_per_s)))


class Clients:
    """Clients of one server, and their clock.

    The clock runs with the CPU time of the server while it has a request, and with the wall while it has none: what
    other programs take of a shared machine stops server and clock alike, and so is not measured.
    """

    def __init__(self, server: LlamaServer) -> None:
        self._url = f"{server.url}/completion"
        self._cpu_clock = (~server.pid << 3) | 2  # Linux: the clock of all threads of another process
        self._lock = threading.Lock()
        self._open = 0
        self._idle_s = 0.0
        """Wall time without a request, up to when the last one was sent."""
        self._idle_since = time.perf_counter()

    def now(self) -> float:
        """Seconds."""
        with self._lock:
            idle = 0.0 if self._open else time.perf_counter() - self._idle_since
            return time.clock_gettime(self._cpu_clock) + self._idle_s + idle

    def ask(self, asked: Prompt) -> Response:
        """One streamed request. Raises RuntimeError if the answer is not as long as it was asked to be."""
        body = {
            "prompt": asked.prompt,
            "n_predict": asked.generated,
            "ignore_eos": True,
            "logit_bias": _ONLY_ASCII,
            "temperature": 0,
            "stream": True,
            "cache_prompt": False,
        }
        message = HttpRequest(self._url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        came, line = [], b""
        with self.waiting():
            sent = self.now()
            with urlopen(message, timeout=PATIENCE_S) as reply:
                for part in reply:
                    if part.startswith(b"data:"):
                        came.append(self.now())
                        line = part
        if len(came) != asked.generated + 1:  # the last line sums up the request and holds no token
            raise RuntimeError(f"{asked.generated} tokens were asked for, {len(came) - 1} came: {line!r}")
        return Response(sent, tuple(came[:-1]))

    def open_loop(self, asked: Iterable[Prompt], gaps_s: Iterable[float]) -> list[Response]:
        """Requests, each sent by a client of its own so long after the one before, in that order."""
        with ThreadPoolExecutor(MAX_OPEN) as pool:
            answers, due = [], self.now()
            for prompt, gap in zip(asked, gaps_s, strict=False):
                due += gap
                while (early := due - self.now()) > 0:
                    time.sleep(early)
                answers.append(pool.submit(self.ask, prompt))
            return [future.result() for future in answers]

    def closed_loop(self, asked: Iterable[Prompt], clients: int) -> list[Response]:
        """So many clients, each of which sends the next request as soon as it is answered."""
        with ThreadPoolExecutor(clients) as pool:
            return list(pool.map(self.ask, asked))

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The server has a request, so that its CPU time counts and the wall does not."""
        with self._lock:
            if not self._open:
                self._idle_s += time.perf_counter() - self._idle_since
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                self._idle_since = time.perf_counter()
