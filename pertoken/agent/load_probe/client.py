"""Streamed requests to an OpenAI-compatible server, with the time at which each part of the output came."""

import http.client
import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from pertoken.access import Access
from pertoken.errors import PertokenError

PATIENCE_S = 120.0
"""Longest silence of a server."""
MAX_MESSAGE = 200
"""Characters of a server's own error that are repeated."""
_REFUSES_FIELD = (400, 422)
_OPTIONAL = ("ignore_eos",)
"""Fields beyond OpenAI's API. A server that refuses them is asked without."""
_OUTPUT_FIELDS = ("reasoning_content", "reasoning", "content")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class ProbeError(PertokenError):
    """The server cannot be probed. The message states what happened and what to do."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One request as its client saw it. Times are of one monotonic clock, in seconds."""

    sent_s: float
    part_s: tuple[float, ...]
    """When each part of the output came; at least one."""
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    text: str = ""
    """The output."""

    @property
    def ttft_s(self) -> float:
        """From sending to the first part."""
        return self.part_s[0] - self.sent_s

    def tokens_between(self, start_s: float, end_s: float) -> float:
        """Return the tokens that came after `start_s`, up to `end_s`. A part may hold several tokens."""
        inside = sum(start_s < arrived_s <= end_s for arrived_s in self.part_s)
        return self.generated_tokens * inside / len(self.part_s)


class Client:
    """Sends prompts to one server. Threads may share it; `stop` ends all of their requests."""

    def __init__(
        self,
        base_url: str,
        model: str,
        access: Access,
        seed: int,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock = clock
        self._url = urlsplit(base_url)
        self._model = model
        self._access = access
        self._random = random.Random(seed)
        self._chat = False
        self._optional = True
        self.words_per_token = 0.5
        """Of the prompts it makes; a guess until `calibrate`."""
        self._stopped = threading.Event()
        self._open: set[http.client.HTTPConnection] = set()
        self._lock = threading.Lock()

    def stop(self) -> None:
        """End all requests that are under way, and refuse further ones."""
        self._stopped.set()
        with self._lock:
            for connection in self._open:
                with suppress(OSError):
                    if connection.sock is not None:
                        connection.sock.shutdown(socket.SHUT_RDWR)

    def calibrate(self) -> Completion:
        """Send one short request, from which the number of words per token is learned. Raises ProbeError."""
        words = 32
        sent = self.complete(self._salted(words), 1)
        self.words_per_token = words / max(1, sent.prompt_tokens)
        return sent

    def prompt(self, tokens: int) -> str:
        """Return a prompt of about `tokens` tokens. It begins at random, so no prefix cache can have it."""
        return self._salted(max(1, round(tokens * self.words_per_token)))

    def _salted(self, words: int) -> str:
        with self._lock:
            return " ".join("".join(self._random.choices(_LETTERS, k=3)) for _ in range(words))

    def complete(self, prompt: str, generated: int, *, may_end: bool = False) -> Completion:
        """Send one request that generates up to `generated` tokens. Raises ProbeError.

        `may_end`: whether the model may end its output earlier, and whether an empty output is one.
        """
        while True:
            try:
                return self._complete(prompt, generated, may_end)
            except _Refused as refused:
                if refused.status == 404 and not self._chat:
                    self._chat = True
                elif refused.status in _REFUSES_FIELD and self._optional:
                    self._optional = False
                else:
                    raise ProbeError(str(refused)) from None

    def _complete(self, prompt: str, generated: int, may_end: bool) -> Completion:
        path, body = self._request(prompt, generated, may_end)
        connection = self._connection()
        with self._lock:
            if self._stopped.is_set():
                raise ProbeError("the probe was stopped")
            self._open.add(connection)
        try:
            sent_s = self._clock()
            connection.request("POST", path, json.dumps(body), self._headers())
            reply = connection.getresponse()
            if reply.status != 200:
                raise _Refused(reply.status, f"{self._at(path)}: answered {reply.status}: {_message(reply.read(4096))}")
            return _read(reply, self._clock, sent_s, self._at(path), may_end)
        except (OSError, http.client.HTTPException) as error:
            what = "the probe was stopped" if self._stopped.is_set() else f"{type(error).__name__}: {error}"
            raise ProbeError(f"{self._at(path)}: {what}") from None
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _request(self, prompt: str, generated: int, may_end: bool) -> tuple[str, dict[str, object]]:
        body: dict[str, object] = {
            "model": self._model,
            "max_tokens": generated,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._optional and not may_end:
            body |= dict.fromkeys(_OPTIONAL, True)
        if self._chat:
            return "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": prompt}]}
        return "/v1/completions", {**body, "prompt": prompt}

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme != "https":
            return http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
        context = ssl.create_default_context(cafile=self._access.ca_file)
        if self._access.cert_file is not None:
            context.load_cert_chain(self._access.cert_file, self._access.key_file, password="")
        return http.client.HTTPSConnection(host, port, timeout=PATIENCE_S, context=context)

    def _headers(self) -> Mapping[str, str]:
        token = self._access.token()
        return {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}

    def _at(self, path: str) -> str:
        return f"{self._url.scheme}://{self._url.netloc.rpartition('@')[2]}{path}"


class _Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _read(
    reply: http.client.HTTPResponse, clock: Callable[[], float], sent_s: float, at: str, may_end: bool = False
) -> Completion:
    part_s: list[float] = []
    texts: list[str] = []
    ended_s: float | None = None
    usage: Mapping[str, object] = {}
    for line in reply:
        if not line.startswith(b"data:") or line.strip() == b"data: [DONE]":
            continue
        now = clock()
        try:
            part = json.loads(line[5:])
            if not isinstance(part, dict):
                raise ValueError("no object")
        except (ValueError, RecursionError):
            raise ProbeError(f"{at}: streams something else than JSON events") from None
        if isinstance(part.get("error"), Mapping):
            raise ProbeError(f"{at}: {str(part['error'].get('message'))[:MAX_MESSAGE]}")
        usage = part["usage"] if isinstance(part.get("usage"), dict) else usage
        listed = part.get("choices")
        choices = [choice for choice in listed if isinstance(choice, dict)] if isinstance(listed, list) else []
        if any(_has_output(choice) for choice in choices):
            part_s.append(now)
            texts += map(_text, choices)
        elif choices:
            ended_s = now
    tokens = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
    if not all(isinstance(token, int) for token in tokens):
        raise ProbeError(f"{at}: reports no token usage at the end of a stream, so nothing can be computed per token")
    if not part_s and ended_s is not None:
        part_s.append(ended_s)  # tokens without text, such as a part of a character
    if not part_s and may_end:
        part_s.append(clock())
    if not part_s:
        raise ProbeError(f"{at}: generated nothing")
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    prompt, generated = (token for token in tokens if isinstance(token, int))
    return Completion(sent_s, tuple(part_s), prompt, cached or 0, max(1, generated), "".join(texts))


def _has_output(choice: Mapping[str, object]) -> bool:
    delta = choice.get("delta")
    if isinstance(delta, Mapping):
        return any(delta.get(name) for name in _OUTPUT_FIELDS)
    return bool(choice.get("text")) or ("text" in choice and choice.get("finish_reason") is None)


def _text(choice: Mapping[str, object]) -> str:
    """Return the text of one part of an output, reasoning included."""
    delta = choice.get("delta")
    if isinstance(delta, Mapping):
        return "".join(str(delta.get(name) or "") for name in _OUTPUT_FIELDS)
    return str(choice.get("text") or "")


def _message(body: bytes) -> str:
    text = body.decode(errors="replace")
    with suppress(ValueError, RecursionError):
        reply = json.loads(text)
        error = reply.get("error", reply) if isinstance(reply, dict) else reply
        text = str(error.get("message", error)) if isinstance(error, dict) else str(error)
    return text[:MAX_MESSAGE]
