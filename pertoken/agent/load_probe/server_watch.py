"""Detection of foreign load on a server: its own metrics, less what the probe itself sent."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from pertoken.agent.engines.reader import EngineReader
from pertoken.agent.load_probe.client import ProbeError
from pertoken.agent.readings import Endpoint, EngineReading
from pertoken.agent.scrape.http import Limits

IDLE_S = 30.0
"""Time for which a server must have had no request before it is measured."""
POLL_S = 1.0
SETTLE_S = 5.0
"""Time after which the metrics of an idle server show no running request any more."""
TOKENS_PER_REQUEST = 2
"""Tokens by which a server's count of one request may differ from what it reported to its client."""
SHARE_OF_TOKENS = 0.01


@dataclass(frozen=True, slots=True)
class Sent:
    """Work that the probe sent to a server."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0

    def plus(self, other: "Sent") -> "Sent":
        """Return both together."""
        return Sent(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.generated_tokens + other.generated_tokens,
        )


@dataclass(frozen=True, slots=True)
class ServerState:
    """One page of a server, in our words."""

    running: float
    waiting: float
    counts: dict[str, int]
    """By word: tokens and finished requests, as far as the server counts them."""

    @property
    def idle(self) -> bool:
        """Whether no request runs or waits."""
        return self.running == 0 and self.waiting == 0


class ServerWatch:
    """Reads the metrics page of one server."""

    def __init__(
        self,
        endpoint: Endpoint,
        limits: Limits,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._reader = EngineReader(endpoint, limits)
        self._clock, self._sleep = clock, sleep
        self.reading: EngineReading | None = None
        """The last one."""

    def state(self) -> ServerState:
        """Read the page. Raises ProbeError where it cannot be read or does not show what runs."""
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
            left = end - self._clock()
            if left <= 0:
                return state
            progress(f"Waiting for {seconds:g} s without requests")
            self._sleep(min(POLL_S, left))
            state = self.state()

    def foreign(self, before: ServerState, sent: Sent) -> tuple[str | None, ServerState]:
        """Return what somebody else did since `before`, None for nothing, and the state now.

        A moment passes until an idle server's metrics show it.
        """
        end = self._clock() + SETTLE_S
        state = self.state()
        while not state.idle and self._clock() < end:
            self._sleep(POLL_S / 10)
            state = self.state()
        if not state.idle:
            return f"{state.running + state.waiting:g} requests of others run or wait", state
        return _excess(before, state, sent), state


_TRAFFIC = ("requests_finished", "generated_tokens", "prompt_tokens", "computed_tokens")


def _excess(before: ServerState, after: ServerState, sent: Sent) -> str | None:
    """Return what was counted beyond what was sent; None where that is nothing."""
    slack = TOKENS_PER_REQUEST * sent.requests
    own = {
        "requests_finished": (sent.requests, 0),
        "generated_tokens": (sent.generated_tokens, slack),
        "prompt_tokens": (sent.prompt_tokens, slack + SHARE_OF_TOKENS * sent.prompt_tokens),
        "computed_tokens": (sent.prompt_tokens - sent.cached_tokens, slack + SHARE_OF_TOKENS * sent.prompt_tokens),
    }
    for word in _TRAFFIC:
        if word in after.counts and word in before.counts:
            more = after.counts[word] - before.counts[word] - own[word][0]
            if more > own[word][1]:
                return f"{more} {word.replace('_', ' ')} of others were counted"
    return None
