"""Blocks of equal work on one or two servers, in counterbalanced order: what `pertoken check` compares."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pertoken.agent.load_probe.client import Client, Completion
from pertoken.agent.load_probe.run import checked, sent_of, wave_of
from pertoken.agent.load_probe.script import DEFAULT_CONTEXT, DEFAULT_SLOTS, SHARE_OF_CONTEXT, Step
from pertoken.agent.load_probe.server_watch import Sent, ServerWatch

BLOCKS = 24
"""Blocks of each server: short ones in turn, so that what disturbs the machine for a while disturbs both servers."""
MIN_WAVES, MAX_WAVES = 3, 200
"""Waves of a block: of three the median is not moved by one that was disturbed."""
WARM_UP_WAVES = 3
"""Waves before the first block, which are not counted: the server allocates and compiles in them."""
PROMPT_TOKENS = 256
GENERATED_TOKENS = 32
CLIENTS = 4
"""Requests of a wave at most: together they show what a server with batches costs."""


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


def step_of(slots: int | None, context: int | None) -> Step:
    """Return the work of one wave on a server with `slots` slots of `context` tokens; None where not known."""
    limit = int((context or DEFAULT_CONTEXT) * SHARE_OF_CONTEXT)
    generated = min(GENERATED_TOKENS, max(2, limit // 4))
    prompt = max(1, min(PROMPT_TOKENS, limit - generated))
    return Step(prompt, generated, min(CLIENTS, slots or DEFAULT_SLOTS), MAX_WAVES)


def order(servers: int) -> Iterator[int]:
    """Yield the server of each block: 0 1 1 0 0 1 1 0 …, so that a drift of the machine is no difference."""
    for number in range(BLOCKS * servers):
        yield (number + 1) // 2 % 2 if servers == 2 else 0


def measure(
    servers: Sequence[ServerUnderCheck],
    step: Step,
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


def _warmed(server: ServerUnderCheck, step: Step, clock: Callable[[], float]) -> float:
    """Return the seconds of the fastest wave after the first."""
    server.client.calibrate()
    taken_s = []
    for _ in range(WARM_UP_WAVES):
        began_s = clock()
        wave_of(server.client, step)
        taken_s.append(max(clock() - began_s, 1e-6))
    return min(taken_s[1:])


def _block(
    server: ServerUnderCheck, position: int, step: Step, waves: int, began_s: float, clock: Callable[[], float]
) -> WorkBlock:
    before = server.watch.state() if server.watch is not None else None
    started_s, wave_s, total = [], [], Sent()
    for _ in range(waves):
        at_s = clock()
        requests: Sequence[Completion] = wave_of(server.client, step)
        wave_s.append(clock() - at_s)
        started_s.append(at_s - began_s)
        total = total.plus(sent_of(requests))
    checked(server.watch, before, total)
    return WorkBlock(
        position, tuple(wave_s), tuple(started_s), total.prompt_tokens, total.cached_tokens, total.generated_tokens
    )
