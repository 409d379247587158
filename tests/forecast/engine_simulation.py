"""The reference for the queueing model: a continuous-batching engine played step by step.

Requests come in order; one is admitted when the batch has a place and the KV cache room for its prompt. A step decodes
one token of each sequence whose prompt is computed, and computes at most `chunk` prompt tokens in order of arrival. A
cache that overflows preempts the newest sequence, which computes its tokens again.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pertoken.arrivals import Array


@dataclass(slots=True)
class Request:
    arrived_s: float
    prompt: int
    generated: int
    to_compute: int = 0
    first_s: float = float("nan")
    done_s: float = float("nan")


@dataclass(frozen=True, slots=True)
class Seen:
    ttft_s: Array
    tpot_s: Array
    """Of requests of at least two tokens."""
    running: float
    """Mean over time."""
    tok_s: float


def simulate(
    requests: list[Request],
    limit: int,
    decode_s: Callable[[int], float],
    prefill_s: Callable[[int], float],
    chunk: int = 10**9,
    kv_tokens: float = float("inf"),
    settle: float = 0.1,
) -> Seen:
    """Return the latencies of the simulated requests, without the first `settle`."""
    waiting = deque(requests)
    prefilling: deque[Request] = deque()
    decoding: list[tuple[int, int, Request]] = []
    now, step, running_s, cached, started = 0.0, 0, 0.0, 0.0, 0
    while waiting or prefilling or decoding:
        if not prefilling and not decoding and waiting[0].arrived_s > now:
            now = waiting[0].arrived_s
        while waiting and waiting[0].arrived_s <= now and len(prefilling) + len(decoding) < limit:
            if cached + waiting[0].prompt + 1 > kv_tokens and (prefilling or decoding):
                break
            admitted = waiting.popleft()
            admitted.to_compute = admitted.prompt
            cached += admitted.prompt
            prefilling.append(admitted)
        budget, computed, finished = chunk - len(decoding), 0, []
        while prefilling and budget > 0:
            part = min(budget, prefilling[0].to_compute)
            prefilling[0].to_compute -= part
            budget -= part
            computed += part
            if prefilling[0].to_compute:
                break
            finished.append(prefilling.popleft())
        taken = (decode_s(len(decoding)) if decoding else 0.0) + (prefill_s(computed) if computed else 0.0)
        now += taken
        running_s += taken * (len(decoding) + len(prefilling) + len(finished))
        cached += len(decoding) + len(finished)
        step += 1
        while decoding and decoding[0][0] <= step:
            _, _, done = heapq.heappop(decoding)
            done.done_s = now
            cached -= done.prompt + done.generated
        for request in finished:
            request.first_s = now
            if request.generated <= 1:
                request.done_s = now
                cached -= request.prompt + 1
            else:
                started += 1
                heapq.heappush(decoding, (step + request.generated - 1, started, request))
        while cached > kv_tokens and len(decoding) > 1:
            newest = max(decoding, key=lambda entry: entry[1])
            decoding.remove(newest)
            heapq.heapify(decoding)
            left = newest[0] - step
            victim = newest[2]
            cached -= victim.prompt + victim.generated - left
            waiting.appendleft(victim)
    kept = requests[int(settle * len(requests)) :]
    several = [request for request in kept if request.generated > 1]
    return Seen(
        np.array([request.first_s - request.arrived_s for request in kept]),
        np.array([(request.done_s - request.first_s) / (request.generated - 1) for request in several]),
        running_s / now,
        sum(request.generated for request in requests) / now,
    )
