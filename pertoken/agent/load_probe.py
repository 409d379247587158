"""An explicit measurement of one idle inference server with a load of its own.

Front door: `script` (the requests), `ServerWatch` (requests of others), `run` and `measure` (the measurements).
"""

from __future__ import annotations

import http.client
import json
import math
import random
import socket
import ssl
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from string import ascii_lowercase
from urllib.parse import urlsplit

from pertoken.access import Access
from pertoken.agent.engines.reader import EngineReader
from pertoken.agent.readings import Endpoint, EngineReading
from pertoken.agent.scrape import RequestLimits
from pertoken.errors import PertokenError
from pertoken.evidence import OperatingPoint

PATIENCE_S = 120.0
"""Longest silence of a server."""
MAX_MESSAGE = 200
"""Characters of a server's own error that are repeated."""
_REFUSES_FIELD = (400, 422)
_OUTPUT_FIELDS = ("reasoning_content", "reasoning", "content")


class ProbeError(PertokenError):
    """The server cannot be probed. The message states the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One request as its client saw it. Times are of one monotonic clock, in seconds."""

    sent_s: float
    part_s: tuple[float, ...]
    """Arrival of each part of the output; at least one."""
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    text: str = ""

    @property
    def ttft_s(self) -> float:
        """From sending to the first part."""
        return self.part_s[0] - self.sent_s

    def tokens_between(self, start_s: float, end_s: float) -> float:
        """Return the tokens after `start_s`, up to `end_s`. A part may hold several tokens."""
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
        self._beyond_openai = True
        """Whether requests have a field beyond OpenAI's API, which a server may refuse."""
        self.words_per_token = 0.5
        """Ratio of its prompts; a guess until `calibrate`."""
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
        """Send one short request, and set the number of words per token by it. Raises ProbeError."""
        words = 32
        completion = self.complete(self._salted(words), 1)
        self.words_per_token = words / max(1, completion.prompt_tokens)
        return completion

    def prompt(self, tokens: int) -> str:
        """Return a prompt of about `tokens` tokens. It begins at random, so no prefix cache can have it."""
        return self._salted(max(1, round(tokens * self.words_per_token)))

    def _salted(self, words: int) -> str:
        with self._lock:
            return " ".join("".join(self._random.choices(ascii_lowercase, k=3)) for _ in range(words))

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
                elif refused.status in _REFUSES_FIELD and self._beyond_openai:
                    self._beyond_openai = False
                else:
                    raise ProbeError(str(refused)) from None

    def _complete(self, prompt: str, generated: int, may_end: bool) -> Completion:
        path, body = self._request(prompt, generated, may_end)
        address = f"{self._url.scheme}://{self._url.netloc.rpartition('@')[2]}{path}"
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
                raise _Refused(reply.status, f"{address}: answered {reply.status}: {_message(reply.read(4096))}")
            return _read(reply, self._clock, sent_s, address, may_end)
        except (OSError, http.client.HTTPException) as error:
            reason = "the probe was stopped" if self._stopped.is_set() else f"{type(error).__name__}: {error}"
            raise ProbeError(f"{address}: {reason}") from None
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
        if self._beyond_openai and not may_end:
            body["ignore_eos"] = True
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


class _Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _read(
    reply: http.client.HTTPResponse, clock: Callable[[], float], sent_s: float, address: str, may_end: bool = False
) -> Completion:
    part_s: list[float] = []
    texts: list[str] = []
    ended_s: float | None = None
    usage: Mapping[str, object] = {}
    for line in reply:
        if not line.startswith(b"data:") or line.strip() == b"data: [DONE]":
            continue
        arrived_s = clock()
        try:
            part = json.loads(line[5:])
            if not isinstance(part, dict):
                raise ValueError("no object")
        except (ValueError, RecursionError):
            raise ProbeError(f"{address}: streams something else than JSON events") from None
        if isinstance(part.get("error"), Mapping):
            raise ProbeError(f"{address}: {str(part['error'].get('message'))[:MAX_MESSAGE]}")
        usage = part["usage"] if isinstance(part.get("usage"), dict) else usage
        listed = part.get("choices")
        choices = [choice for choice in listed if isinstance(choice, dict)] if isinstance(listed, list) else []
        if any(_has_output(choice) for choice in choices):
            part_s.append(arrived_s)
            texts += map(_text, choices)
        elif choices:
            ended_s = arrived_s
    prompt, generated = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not (isinstance(prompt, int) and isinstance(generated, int)):
        raise ProbeError(
            f"{address}: reports no token usage at the end of a stream, so nothing can be computed per token"
        )
    if not part_s and ended_s is not None:
        part_s.append(ended_s)  # tokens without text, such as a part of a character
    if not part_s and may_end:
        part_s.append(clock())
    if not part_s:
        raise ProbeError(f"{address}: generated nothing")
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
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


IDLE_S = 30.0
"""Time without a request before a server is measured."""
POLL_S = 1.0
SETTLE_S = 5.0
"""Time after which the metrics of an idle server show no running request any more."""
TOKENS_PER_REQUEST = 2
"""Largest difference between a server's count of one request and its report to the client."""
SHARE_OF_TOKENS = 0.01


@dataclass(frozen=True, slots=True)
class Sent:
    """Work that the probe sent to a server."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ServerState:
    """Load of a server by its metrics page."""

    running: float
    waiting: float
    counts: dict[str, int]
    """Tokens and finished requests by word, as far as the server counts them."""

    @property
    def idle(self) -> bool:
        """Whether no request runs or waits."""
        return self.running == 0 and self.waiting == 0


class ServerWatch:
    """Reads the metrics page of one server."""

    def __init__(
        self,
        endpoint: Endpoint,
        limits: RequestLimits,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._reader = EngineReader(endpoint, limits)
        self._clock, self._sleep = clock, sleep
        self.reading: EngineReading | None = None
        """The last one."""

    def state(self) -> ServerState:
        """Read the page. Raises ProbeError where it cannot be read or shows no running requests."""
        readings = self._reader.read(latencies=False)
        if len(readings) != 1:
            raise ProbeError("the server serves several models on one page: what each of them does cannot be separated")
        (reading,) = readings
        if reading.fault is not None:
            remedy = f"; {reading.remedy}" if reading.remedy else ""
            raise ProbeError(f"{reading.fault}{remedy}, or pass --exclusive if nobody else uses the server")
        self.reading = reading
        running = reading.gauges.get("running")
        if running is None:
            raise ProbeError(
                "the server's metrics do not show how many requests run: pass --exclusive if nobody else uses it"
            )
        counts: dict[str, int] = {}
        for series, value in reading.counters.items():
            word = series.partition("{")[0]
            counts[word] = counts.get(word, 0) + value
        return ServerState(running, reading.gauges.get("waiting", 0.0), counts)

    def wait_idle(self, seconds: float, progress: Callable[[str], None] = lambda _: None) -> ServerState:
        """Return the state after `seconds` without a request. Raises ProbeError as soon as there was one."""
        first = state = self.state()
        end = self._clock() + seconds
        while True:
            if not state.idle:
                raise ProbeError(
                    f"the server is in use ({state.running:g} running, {state.waiting:g} waiting): drain it, or probe "
                    "another replica"
                )
            if any(state.counts.get(word, 0) > value for word, value in first.counts.items() if word in _TRAFFIC):
                raise ProbeError("the server served a request meanwhile: drain it, or probe another replica")
            remaining_s = end - self._clock()
            if remaining_s <= 0:
                return state
            progress(f"Waiting for {seconds:g} s without requests")
            self._sleep(min(POLL_S, remaining_s))
            state = self.state()

    def foreign(self, start: ServerState, sent: Sent) -> tuple[str | None, ServerState]:
        """Return the traffic of others since `start`, None without any, and the present state.

        A moment passes until an idle server's metrics show it.
        """
        end = self._clock() + SETTLE_S
        state = self.state()
        while not state.idle and self._clock() < end:
            self._sleep(POLL_S / 10)
            state = self.state()
        if not state.idle:
            return f"{state.running + state.waiting:g} requests of others run or wait", state
        return _excess(start, state, sent), state


_TRAFFIC = ("requests_finished", "generated_tokens", "prompt_tokens", "computed_tokens")


def _excess(start: ServerState, end: ServerState, sent: Sent) -> str | None:
    """Return the first count beyond the work that was sent; None where there is none."""
    slack = TOKENS_PER_REQUEST * sent.requests
    count_and_tolerance: dict[str, tuple[int, float]] = {
        "requests_finished": (sent.requests, 0),
        "generated_tokens": (sent.generated_tokens, slack),
        "prompt_tokens": (sent.prompt_tokens, slack + SHARE_OF_TOKENS * sent.prompt_tokens),
        "computed_tokens": (sent.prompt_tokens - sent.cached_tokens, slack + SHARE_OF_TOKENS * sent.prompt_tokens),
    }
    for word in _TRAFFIC:
        if word in end.counts and word in start.counts:
            count, tolerance = count_and_tolerance[word]
            excess = end.counts[word] - start.counts[word] - count
            if excess > tolerance:
                return f"{excess} {word.replace('_', ' ')} of others were counted"
    return None


PROMPTS = (128, 512, 2048, 8192)
"""Prompt lengths, in tokens: their time to first token is measured alone."""
CONTEXTS = (16, 2048)
"""Prompt lengths of batches: the short one costs little beside the tokens that are measured."""
GENERATED = 32
"""Tokens each request of a batch generates: enough for a rate, few enough to fit in a minute."""
PROMPT_WAVES = 3
"""Times each prompt is sent; the median counts."""
MAX_SCRIPT_WAVES = 6
"""Times each batch is sent, as far as time allows."""
MAX_BATCH = 64
"""Largest batch: a larger one takes long to prefill and shows the same terms."""
DEFAULT_SLOTS = 8
DEFAULT_CONTEXT = 4096
"""Assumed where the server does not expose its limits."""
SHARE_OF_CONTEXT = 0.8
"""Share of the server's context limit that prompt and generated tokens may take: token counts are approximate."""


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """Waves of requests that are sent at once."""

    prompt_tokens: int
    generated_tokens: int
    batch: int
    waves: int

    @property
    def alone(self) -> bool:
        """Whether it measures a prompt alone; else a batch."""
        return self.generated_tokens == 1

    @property
    def tokens(self) -> int:
        """Prompt and generated tokens of one wave."""
        return (self.prompt_tokens + self.generated_tokens) * self.batch

    @property
    def label(self) -> str:
        """Its measurement, for people."""
        if self.alone:
            return f"prompt of {self.prompt_tokens} tokens alone"
        return f"batch of {self.batch} at {self.prompt_tokens} tokens of context"


def script(slots: int | None, context: int | None) -> tuple[ProbeStep, ...]:
    """Return the steps for a server with `slots` slots of `context` tokens each; None where that is not known.

    Steps with the fewest tokens come first: a slow server has no time for the others.
    """
    slots, limit = slots or DEFAULT_SLOTS, int((context or DEFAULT_CONTEXT) * SHARE_OF_CONTEXT)
    generated = min(GENERATED, max(2, limit // 4))
    prompts = _within(PROMPTS, limit - 1)
    contexts = _within(CONTEXTS, limit - generated)
    batches = _batches(min(slots, MAX_BATCH))
    steps = (
        *(ProbeStep(tokens, 1, 1, PROMPT_WAVES) for tokens in prompts),
        *(ProbeStep(tokens, generated, batch, MAX_SCRIPT_WAVES) for batch in batches for tokens in contexts),
    )
    return tuple(sorted(steps, key=lambda step: step.tokens))


def _within(lengths: Sequence[int], limit: int) -> tuple[int, ...]:
    """Return the lengths up to a limit, with the limit in the place of the first longer one."""
    fitting = [length for length in lengths if length <= limit]
    longer = len(fitting) < len(lengths) and limit > 1.5 * (fitting[-1] if fitting else 0)
    return (*fitting, max(1, limit)) if longer else tuple(fitting)


def _batches(largest: int) -> tuple[int, ...]:
    """Return 1, 2 and powers of 4 up to the largest, and the largest itself."""
    return tuple(sorted({clients for clients in (1, 2, 4, 16, 64) if clients <= largest} | {largest}))


@dataclass(frozen=True, slots=True)
class ProbeCost:
    """Largest work of a script."""

    prompt_tokens: int
    generated_tokens: int
    requests: int


def cost(steps: Sequence[ProbeStep]) -> ProbeCost:
    """Return the largest cost of the steps; time may end them earlier."""
    return ProbeCost(
        sum(step.prompt_tokens * step.batch * step.waves for step in steps),
        sum(step.generated_tokens * step.batch * step.waves for step in steps),
        sum(step.batch * step.waves for step in steps),
    )


MAX_CACHED_SHARE = 0.1
"""Share of cached prompt tokens above which a prompt's time is not usable: the salt did not help."""
MIN_TOKENS = 4
"""Tokens per request in the time in which all of a batch generate, below which their rate is too coarse."""


@dataclass(slots=True)
class Progressing:
    """Measurements of a probe so far."""

    points: list[OperatingPoint] = field(default_factory=list)
    sent: Sent = field(default_factory=Sent)
    notes: list[str] = field(default_factory=list)
    stopped: str | None = None
    """Why it ended before its script did; earlier measurements count."""

    def add(self, step: ProbeStep, waves: Sequence[Sequence[Completion]], ts: int) -> None:
        """Add the point of a step, or a note with the reason why it has none. `ts`: Unix time."""
        point = _point(step, waves, ts) if waves else None
        if point is not None:
            self.points.append(point)
        elif waves:
            self.notes.append(f"{step.label}: left out, {_why_unusable(step, waves)}")


def run(
    client: Client,
    watch: ServerWatch | None,
    steps: Sequence[ProbeStep],
    seconds: float,
    progress: Callable[[ProbeStep], None] = lambda _: None,
    *,
    clock: Callable[[], float] = time.monotonic,
    unix_s: Callable[[], float] = time.time,
) -> Progressing:
    """Run the steps for about `seconds`. A wave that would not end in time, at the pace so far, is not sent.

    The next wave is of the step that will have taken the least time by its end, so that all steps share the time.
    On a slow server, short requests are repeated before the longest are sent: this shows how its speed varies.
    It ends within one wave (one request of each client) when `watch` sees a foreign request; that wave does not count.
    An interrupt ends the requests under way and keeps all measurements. Raises ProbeError if the server fails before
    the first measurement.
    """
    probe, pace = Progressing(), _Pace()
    waves: dict[ProbeStep, list[Sequence[Completion]]] = {step: [] for step in steps}
    end = clock() + seconds
    try:
        state = watch.state() if watch is not None else None
        requests = [client.calibrate()]
        probe.sent = sent_of(requests)
        state = checked(watch, state, probe.sent)
        while (step := pace.next_of(steps, end - clock())) is not None:
            progress(step)
            began = clock()
            wave = wave_of(client, step)
            requests += wave
            probe.sent = sent_of(requests)
            state = checked(watch, state, sent_of(wave))
            pace.note(step, wave, clock() - began)
            waves[step].append(wave)
        unsent = [step.label for step, sent in waves.items() if not sent]
        if unsent:
            probe.notes.append(f"its time was over before the whole script was sent; left out: {', '.join(unsent)}")
    except Foreign as traffic:
        probe.stopped = f"somebody else uses the server: {traffic}"
    except KeyboardInterrupt:
        client.stop()
        probe.stopped = "interrupted"
    except ProbeError as error:
        if not any(waves.values()):
            raise
        probe.stopped = str(error)
    for step, sent in waves.items():
        probe.add(step, sent, int(unix_s()))
    return probe


@dataclass(slots=True)
class _Pace:
    """Durations of the waves so far, and the fastest rates of the server."""

    taken_s: dict[ProbeStep, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Durations of the waves of each step."""
    prompt_token_s: float = math.inf
    """Seconds per prompt token, waiting included; infinite before the first wave."""
    step_s: float = math.inf
    """Seconds from one generated token of a request to its next; infinite before the first batch."""

    def note(self, step: ProbeStep, wave: Sequence[Completion], seconds: float) -> None:
        """Learn from a wave that took so long."""
        self.taken_s[step].append(seconds)
        first_s = max(request.ttft_s for request in wave)
        self.prompt_token_s = min(self.prompt_token_s, first_s / (step.prompt_tokens * step.batch))
        if not step.alone:
            for request in wave:
                decode_s = request.part_s[-1] - request.part_s[0]
                self.step_s = min(self.step_s, decode_s / max(1, request.generated_tokens - 1))

    def next_of(self, steps: Sequence[ProbeStep], left_s: float) -> ProbeStep | None:
        """Return the step of the next wave, None where no wave would end in the time that is left."""
        candidates = [step for step in steps if len(self.taken_s[step]) < step.waves and self.wave_s(step) < left_s]
        return min(candidates, key=lambda step: sum(self.taken_s[step]) + self.wave_s(step), default=None)

    def wave_s(self, step: ProbeStep) -> float:
        """Return the seconds of a wave: of the last one, else at least these; 0 while nothing is known."""
        if self.taken_s[step]:
            return self.taken_s[step][-1]
        parts_s = (step.prompt_tokens * step.batch * self.prompt_token_s, step.generated_tokens * self.step_s)
        return sum(seconds for seconds in parts_s if math.isfinite(seconds))


class Foreign(Exception):
    """A request of somebody else was seen."""


def checked(watch: ServerWatch | None, start: ServerState | None, sent: Sent) -> ServerState | None:
    """Return the state after requests that were sent, None without a watch. Raises Foreign where others sent some."""
    if watch is None or start is None:
        return None
    foreign, state = watch.foreign(start, sent)
    if foreign is not None:
        raise Foreign(foreign)
    return state


def wave_of(client: Client, step: ProbeStep) -> list[Completion]:
    """Send one request of each client of a step at once, and return them when all have ended."""
    prompts = [client.prompt(step.prompt_tokens) for _ in range(step.batch)]
    with _pool(client, step.batch) as pool:
        return list(pool.map(lambda prompt: client.complete(prompt, step.generated_tokens), prompts))


@contextmanager
def _pool(client: Client, threads: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of threads; its requests end when this thread is interrupted."""
    pool = ThreadPoolExecutor(threads)
    try:
        yield pool
    except KeyboardInterrupt:
        client.stop()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def sent_of(wave: Sequence[Completion]) -> Sent:
    """Return the work of a wave."""
    return Sent(
        len(wave),
        sum(request.prompt_tokens for request in wave),
        sum(request.cached_tokens for request in wave),
        sum(request.generated_tokens for request in wave),
    )


def _point(step: ProbeStep, waves: Sequence[Sequence[Completion]], ts: int) -> OperatingPoint | None:
    """Return the measurement of a step by its waves; None where that is not usable."""
    requests = [request for wave in waves for request in wave]
    prompt_tokens = statistics.fmean(request.prompt_tokens for request in requests)
    if step.alone:
        fresh = [request for request in requests if request.cached_tokens <= MAX_CACHED_SHARE * request.prompt_tokens]
        if not fresh:
            return None
        ttft_s = statistics.median(request.ttft_s for request in fresh)
        return OperatingPoint(ts, 1.0, None, prompt_tokens, 1.0, ttft_s=ttft_s, probed=True)
    times = [token_s for wave in waves if (token_s := _token_s(wave)) is not None]
    if not times:
        return None
    # Only decode is timed: the prompts were prefilled before, as if a cache had them.
    generated = statistics.fmean(request.generated_tokens for request in requests)
    return OperatingPoint(
        ts, float(step.batch), statistics.median(times), prompt_tokens, generated, cached_share=1.0, probed=True
    )


def _token_s(wave: Sequence[Completion]) -> float | None:
    """Return seconds per token while all requests of a wave generate; None where too few tokens came then."""
    start, end = max(request.part_s[0] for request in wave), min(request.part_s[-1] for request in wave)
    tokens = statistics.fmean(request.tokens_between(start, end) for request in wave)
    return (end - start) / tokens if tokens >= MIN_TOKENS and end > start else None


def _why_unusable(step: ProbeStep, waves: Sequence[Sequence[Completion]]) -> str:
    if step.alone:
        return "a cache had its prompts"
    first = next(iter(waves))
    if min(request.generated_tokens for request in first) < step.generated_tokens / 2:
        return "the model ended its outputs early"
    return "its requests did not generate side by side for long enough"


BLOCKS = 24
"""Blocks of each server: short ones in turn, so that a disturbance of the machine hits both servers."""
MIN_WAVES, MAX_WAVES = 3, 200
"""Waves of a block: of three the median is not moved by one that was disturbed."""
WARM_UP_WAVES = 3
"""Waves before the first block, which are not counted: the server allocates and compiles in them."""
PROMPT_TOKENS = 256
GENERATED_TOKENS = 32
CLIENTS = 4
"""Requests of a wave at most: together they show the cost of a server with batches."""


@dataclass(frozen=True, slots=True)
class ServerUnderCheck:
    """One server, with the watch of its metrics page; None: it has no other client by the word of a person."""

    client: Client
    watch: ServerWatch | None


@dataclass(frozen=True, slots=True)
class WorkBlock:
    """One block of equal waves, as its client saw it."""

    server: int
    """Position of its server."""
    wave_s: tuple[float, ...]
    """Duration of each wave."""
    started_s: tuple[float, ...]
    """Start of each wave after the first wave of all."""
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int


def step_of(slots: int | None, context: int | None) -> ProbeStep:
    """Return the work of one wave on a server with `slots` slots of `context` tokens; None where not known."""
    limit = int((context or DEFAULT_CONTEXT) * SHARE_OF_CONTEXT)
    generated = min(GENERATED_TOKENS, max(2, limit // 4))
    prompt = max(1, min(PROMPT_TOKENS, limit - generated))
    return ProbeStep(prompt, generated, min(CLIENTS, slots or DEFAULT_SLOTS), MAX_WAVES)


def order(servers: int) -> Iterator[int]:
    """Yield the server of each block: 0 1 1 0 0 1 1 0 …, so that a drift of the machine is no difference."""
    for number in range(BLOCKS * servers):
        yield (number + 1) // 2 % 2 if servers == 2 else 0


def measure(
    servers: Sequence[ServerUnderCheck],
    step: ProbeStep,
    seconds: float,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> list[WorkBlock]:
    """Warm each server up, and return its blocks, which take about `seconds` together.

    Raises ProbeError where a server fails, Foreign where somebody else uses it.
    """
    warm_s = max(_warmed(server, step, clock) for server in servers)
    sequence = list(order(len(servers)))
    waves = min(step.waves, max(MIN_WAVES, int(seconds / len(sequence) / warm_s)))
    began_s = clock()
    blocks = []
    for number, position in enumerate(sequence):
        progress(number, len(sequence))
        blocks.append(_block(servers[position], position, step, waves, began_s, clock))
    return blocks


def _warmed(server: ServerUnderCheck, step: ProbeStep, clock: Callable[[], float]) -> float:
    """Return the seconds of the fastest wave after the first."""
    server.client.calibrate()
    taken_s = []
    for _ in range(WARM_UP_WAVES):
        began_s = clock()
        wave_of(server.client, step)
        taken_s.append(max(clock() - began_s, 1e-6))
    return min(taken_s[1:])


def _block(
    server: ServerUnderCheck, position: int, step: ProbeStep, waves: int, began_s: float, clock: Callable[[], float]
) -> WorkBlock:
    state = server.watch.state() if server.watch is not None else None
    started_s, wave_s, requests = [], [], list[Completion]()
    for _ in range(waves):
        start_s = clock()
        requests += wave_of(server.client, step)
        wave_s.append(clock() - start_s)
        started_s.append(start_s - began_s)
    sent = sent_of(requests)
    checked(server.watch, state, sent)
    return WorkBlock(
        position, tuple(wave_s), tuple(started_s), sent.prompt_tokens, sent.cached_tokens, sent.generated_tokens
    )
