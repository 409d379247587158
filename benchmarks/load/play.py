"""A finite run of requests through one engine, step by step: ramp, full batch and drain.

A benchmark sends a number of requests and ends when the last one is answered. Above the capacity of the engine such a
run never reaches a steady state, so its figures are those of the run itself: requests wait for a place and for memory,
prompts are computed whole or in chunks, and a cache that overflows preempts the newest sequence, whose tokens are
computed again (recomputation, as vLLM and SGLang do). Steps in which nothing changes are taken together.
"""

import heapq
import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from benchmarks.load.engine import Engine
from pertoken.arrivals import Array


@dataclass(frozen=True, slots=True)
class Run:
    """Latencies of a finite run as its clients see them. Arrays have one entry per request, in order of arrival."""

    arrived_s: Array
    first_s: Array
    """When the first token came."""
    done_s: Array
    generated: Array
    running_s: float
    """Sequence-seconds in the batch."""
    busy_s: float
    """Seconds in which the engine computed."""
    preemptions: int

    @property
    def ttft_s(self) -> Array:
        """Seconds from arrival to first token."""
        return self.first_s - self.arrived_s

    @property
    def tpot_s(self) -> Array:
        """Mean seconds between tokens, of requests of at least two tokens."""
        several = self.generated > 1
        return (self.done_s - self.first_s)[several] / (self.generated[several] - 1)

    @property
    def elapsed_s(self) -> float:
        """Seconds from the start to the last token."""
        return float(self.done_s.max())

    @property
    def tok_s(self) -> float:
        """Generated tokens/s over the whole run."""
        return float(self.generated.sum()) / self.elapsed_s

    @property
    def running(self) -> float:
        """Mean sequences in the batch while the engine computed."""
        return self.running_s / self.busy_s


def arrivals(random: np.random.Generator, requests: int, per_s: float, burstiness: float = 1.0) -> Array:
    """Return arrival times of a run: random gaps, scaled so that the last request comes after `requests / per_s`.

    Gaps are exponential (Poisson) for a burstiness of 1, of a gamma distribution for others: below 1 they come in
    bursts. Load generators draw and scale them so (vLLM `vllm bench serve`, `get_request`).
    """
    at = np.cumsum(random.gamma(burstiness, 1.0, requests))
    scaled: Array = at * (requests / per_s / at[-1])
    return scaled


def play(engine: Engine, arrived_s: Array, prompt: Array, generated: Array) -> Run:
    """Play a run. Requests start in order of arrival, each as soon as the batch and the cache have room for its prompt.

    `prompt` and `generated` are tokens of each request; every request generates at least one.
    """
    return _Play(engine, arrived_s, prompt, generated).run()


class _Play:
    def __init__(self, engine: Engine, arrived_s: Array, prompt: Array, generated: Array) -> None:
        self.engine = engine
        self.arrived: list[float] = np.asarray(arrived_s, dtype=float).tolist()
        self.prompt: list[int] = np.asarray(prompt, dtype=int).tolist()
        self.generated: list[int] = np.maximum(np.asarray(generated, dtype=int), 1).tolist()
        n = len(self.arrived)
        self.first, self.done = [math.nan] * n, [math.nan] * n
        self.waiting = deque(range(n))
        self.prefilling: deque[int] = deque()
        self.compute = list(self.prompt)
        """Prompt tokens that are left to compute; after a preemption its generated ones too."""
        self.made = [0] * n
        """Tokens that a waiting request has generated."""
        self.ends: list[tuple[int, int]] = []
        """Decoding sequences: (count of decode steps at the end, request)."""
        self.order: list[int] = []
        """Requests in the order in which they last started to decode."""
        self.now, self.steps, self.cached = 0.0, 0, 0
        self.running_s, self.busy_s, self.preemptions = 0.0, 0.0, 0

    def run(self) -> Run:
        """Play all requests to their end."""
        while self.waiting or self.prefilling or self.ends:
            if not self.prefilling and not self.ends and self.arrived[self.waiting[0]] > self.now:
                self.now = self.arrived[self.waiting[0]]
            self._admit()
            if self.prefilling:
                self._step_with_prompts()
            else:
                self._decode()
            if self.cached > self.engine.kv_tokens:
                self._preempt()
        return Run(
            np.array(self.arrived),
            np.array(self.first),
            np.array(self.done),
            np.array(self.generated, dtype=float),
            self.running_s,
            self.busy_s,
            self.preemptions,
        )

    def _admit(self) -> None:
        """Start waiting requests while the batch, the cache and the tokens of a step have room."""
        engine = self.engine
        places = engine.limit - len(self.ends) - len(self.prefilling)
        budget = engine.step_tokens - sum(self.compute[sequence] for sequence in self.prefilling)
        while self.waiting and places > 0 and self.arrived[self.waiting[0]] <= self.now:
            tokens = self.compute[self.waiting[0]]
            busy = self.ends or self.prefilling
            if (busy and self.cached + tokens + 1 > engine.kv_tokens) or (self.prefilling and tokens > budget):
                return
            self.prefilling.append(self.waiting.popleft())
            self.cached += tokens
            budget -= tokens
            places -= 1

    def _step_with_prompts(self) -> None:
        """Compute the prompts that fit in one step, beside a token of each sequence if the engine mixes them."""
        engine, left, computed, finished = self.engine, self.engine.step_tokens, 0, []
        while self.prefilling:
            first = self.prefilling[0]
            whole = self.compute[first] <= left or (engine.whole_prompts and not computed)
            if engine.whole_prompts and not whole:
                break
            part = self.compute[first] if whole else int(left)
            self.compute[first] -= part
            computed, left = computed + part, left - part
            if self.compute[first]:
                break
            finished.append(self.prefilling.popleft())
        decoding = len(self.ends) if engine.mixed else 0
        self._pass(
            engine.prompt_step_s(decoding, computed),
            len(self.ends) + len(self.prefilling) + len(finished),
        )
        if decoding:
            self._advance(1)
        for sequence in finished:
            if self.made[sequence] == 0:
                self.first[sequence], self.made[sequence] = self.now, 1
                self.cached += 1
            if self.made[sequence] >= self.generated[sequence]:
                self._finish(sequence)
            else:
                heapq.heappush(self.ends, (self.steps + self.generated[sequence] - self.made[sequence], sequence))
                self.order.append(sequence)

    def _decode(self) -> None:
        """Decode until a sequence ends, the next request can start, or the cache is full."""
        n, engine = len(self.ends), self.engine
        seconds = engine.step_s[n]
        steps = self.ends[0][0] - self.steps
        if self.waiting and n < engine.limit:
            until = self.arrived[self.waiting[0]] - self.now
            if until > 0:
                steps = min(steps, math.ceil(until / seconds))
        if engine.kv_tokens < math.inf:
            steps = min(steps, max(1, int((engine.kv_tokens - self.cached) // n) + 1))
        self._pass(steps * seconds, n)
        self._advance(steps)

    def _advance(self, steps: int) -> None:
        self.steps += steps
        self.cached += steps * len(self.ends)
        while self.ends and self.ends[0][0] <= self.steps:
            self._finish(heapq.heappop(self.ends)[1])

    def _finish(self, request: int) -> None:
        self.done[request] = self.now
        self.cached -= self.prompt[request] + self.generated[request]

    def _pass(self, seconds: float, running: int) -> None:
        self.now += seconds
        self.busy_s += seconds
        self.running_s += seconds * running

    def _preempt(self) -> None:
        """Put the newest sequences back to the queue until the cache fits: their tokens are computed again."""
        ends = {request: end for end, request in self.ends}
        while self.cached > self.engine.kv_tokens and len(ends) > 1:
            newest = self.order.pop()
            if newest not in ends:
                continue
            left = ends.pop(newest) - self.steps
            self.made[newest] = self.generated[newest] - left
            self.compute[newest] = self.prompt[newest] + self.made[newest]
            self.cached -= self.compute[newest]
            self.waiting.appendleft(newest)
            self.preemptions += 1
        self.ends = [(end, request) for request, end in ends.items()]
        heapq.heapify(self.ends)
