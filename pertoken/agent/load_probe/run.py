"""The measurement: waves of requests, each checked for foreign ones, as operating points."""

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from pertoken.agent.load_probe.client import Client, Completion, ProbeError
from pertoken.agent.load_probe.script import Step
from pertoken.agent.load_probe.server_watch import Sent, ServerState, ServerWatch
from pertoken.evidence import OperatingPoint

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
    """Why it ended before its script did; what was measured before counts."""

    def add(self, step: Step, waves: Sequence[Sequence[Completion]], ts: int) -> None:
        """Add the point of a step, or a note with the reason why it has none. `ts`: Unix time."""
        point = _point(step, waves, ts) if waves else None
        if point is not None:
            self.points.append(point)
        elif waves:
            self.notes.append(f"{step.label}: left out, {_why_unusable(step, waves)}")


def run(
    client: Client,
    watch: ServerWatch | None,
    steps: Sequence[Step],
    seconds: float,
    progress: Callable[[Step], None] = lambda _: None,
    *,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], float] = time.time,
) -> Progressing:
    """Run the steps for about `seconds`: a wave that would not end in time, at the pace of those before, is not sent.

    The next wave is of the step that will have taken the least time by its end, so that all steps have about as much of
    it: on a slow server short requests are repeated, which shows how its speed varies, before the longest are sent.
    It ends within one wave (one request of each client) when `watch` sees a foreign request; that wave does not count.
    An interrupt ends the requests under way and keeps what was measured. Raises ProbeError if the server fails before
    anything was measured.
    """
    probe, pace = Progressing(), _Pace()
    waves: dict[Step, list[Sequence[Completion]]] = {step: [] for step in steps}
    end = clock() + seconds
    try:
        state = watch.state() if watch is not None else None
        probe.sent = sent_of([client.calibrate()])
        state = checked(watch, state, probe.sent)
        while (step := pace.next_of(steps, end - clock())) is not None:
            progress(step)
            began = clock()
            wave = wave_of(client, step)
            probe.sent = probe.sent.plus(sent_of(wave))
            state = checked(watch, state, sent_of(wave))
            pace.note(step, wave, clock() - began)
            waves[step].append(wave)
        unsent = [step.label for step, sent in waves.items() if not sent]
        if unsent:
            probe.notes.append(f"its time was over before the whole script was sent; left out: {', '.join(unsent)}")
    except Foreign as other:
        probe.stopped = f"somebody else uses the server: {other}"
    except KeyboardInterrupt:
        client.stop()
        probe.stopped = "interrupted"
    except ProbeError as error:
        if not any(waves.values()):
            raise
        probe.stopped = str(error)
    for step, sent in waves.items():
        probe.add(step, sent, int(now()))
    return probe


@dataclass(slots=True)
class _Pace:
    """Durations of the waves so far, and the fastest rates of the server."""

    taken_s: dict[Step, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Of each wave of a step."""
    prompt_token_s: float = math.inf
    """Seconds per prompt token, waiting included; infinite before the first wave."""
    step_s: float = math.inf
    """Seconds from one generated token of a request to its next; infinite before the first batch."""

    def note(self, step: Step, wave: Sequence[Completion], seconds: float) -> None:
        """Learn from a wave that took so long."""
        self.taken_s[step].append(seconds)
        first_s = max(request.ttft_s for request in wave)
        self.prompt_token_s = min(self.prompt_token_s, first_s / (step.prompt_tokens * step.batch))
        if not step.alone:
            steps_s = (
                (request.part_s[-1] - request.part_s[0]) / max(1, request.generated_tokens - 1) for request in wave
            )
            self.step_s = min(self.step_s, *steps_s)

    def next_of(self, steps: Sequence[Step], left_s: float) -> Step | None:
        """Return the step of the next wave, None where no wave would end in the time that is left."""
        open_ = [step for step in steps if len(self.taken_s[step]) < step.waves and self.wave_s(step) < left_s]
        return min(open_, key=lambda step: sum(self.taken_s[step]) + self.wave_s(step), default=None)

    def wave_s(self, step: Step) -> float:
        """Return the seconds that a wave takes: as its last one did, else at least; 0 while nothing is known."""
        if self.taken_s[step]:
            return self.taken_s[step][-1]
        prompts_s = step.prompt_tokens * step.batch * self.prompt_token_s if math.isfinite(self.prompt_token_s) else 0.0
        return prompts_s + (step.generated_tokens * self.step_s if math.isfinite(self.step_s) else 0.0)


class Foreign(Exception):
    """A request of somebody else was seen."""


def checked(watch: ServerWatch | None, before: ServerState | None, sent: Sent) -> ServerState | None:
    """Return the state after requests that were sent, None without a watch. Raises Foreign where others sent some."""
    if watch is None or before is None:
        return None
    foreign, state = watch.foreign(before, sent)
    if foreign is not None:
        raise Foreign(foreign)
    return state


def wave_of(client: Client, step: Step) -> list[Completion]:
    """Send one request of each client of a step at once, and return them when all have ended."""
    prompts = [client.prompt(step.prompt_tokens) for _ in range(step.batch)]
    with _pool(client, step.batch) as pool:
        return list(pool.map(lambda prompt: client.complete(prompt, step.generated_tokens), prompts))


@contextmanager
def _pool(client: Client, threads: int) -> Iterator[ThreadPoolExecutor]:
    """A pool whose requests end when this thread is interrupted."""
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


def _point(step: Step, waves: Sequence[Sequence[Completion]], ts: int) -> OperatingPoint | None:
    """Return what the waves of a step measured; None where that is not usable."""
    everyone = [request for wave in waves for request in wave]
    prompt_tokens = statistics.fmean(request.prompt_tokens for request in everyone)
    if step.alone:
        fresh = [
            request.ttft_s for request in everyone if request.cached_tokens <= MAX_CACHED_SHARE * request.prompt_tokens
        ]
        if not fresh:
            return None
        return OperatingPoint(ts, 1.0, None, prompt_tokens, 1.0, ttft_s=statistics.median(fresh), probed=True)
    times = [token_s for wave in waves if (token_s := _token_s(wave)) is not None]
    if not times:
        return None
    # Only decode is timed: the prompts were prefilled before, as if a cache had them.
    generated = statistics.fmean(request.generated_tokens for request in everyone)
    return OperatingPoint(
        ts, float(step.batch), statistics.median(times), prompt_tokens, generated, cached_share=1.0, probed=True
    )


def _token_s(wave: Sequence[Completion]) -> float | None:
    """Return seconds per token while all requests of a wave generate; None where too few tokens came then."""
    start, end = max(request.part_s[0] for request in wave), min(request.part_s[-1] for request in wave)
    tokens = statistics.fmean(request.tokens_between(start, end) for request in wave)
    return (end - start) / tokens if tokens >= MIN_TOKENS and end > start else None


def _why_unusable(step: Step, waves: Sequence[Sequence[Completion]]) -> str:
    if step.alone:
        return "a cache had its prompts"
    first = next(iter(waves))
    if min(request.generated_tokens for request in first) < step.generated_tokens / 2:
        return "the model ended its outputs early"
    return "its requests did not generate side by side for long enough"
