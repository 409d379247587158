"""A closed loop played step by step: what its clients see of a server whose steps take forecast times.

llama.cpp adds every prompt that has come by the start of a step to that step, and computes it whole beside the decode
of the others. A client sends its next request when its last one has ended, so it misses the step that begins then, and
is part of the following one. A round starts with all clients at once and is some requests long: it is played as it is.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pertoken.agent.load_probe import Completion

TURN_S = 0.005
"""From the last part of an output to the arrival of the client's next request: a judgement."""
START_S = 0.05
"""Between the first requests of two clients: the first is computed alone. Where all began at once, a server computed
their prompts together or one before the others as it happened: rounds of one configuration had a TTFT of 4.1 or of
3.1 s. Rounds with several clients differed by 17 % in tokens/s and 10 % in TPOT then, and by 7 and 5 % in the first run
with this delay (medians, 2 cores, seeds 90527 and 104729, 2026-11-27)."""
Lengths = tuple[int, int]
"""Prompt and generated tokens of a request."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Seconds of the steps of a server."""

    decode_s: Sequence[float]
    """Of a step without prompts, by the number of sequences in it; from 1 sequence on."""
    prompts_s: Sequence[tuple[float, float]]
    """Of a step with one prompt alone: (tokens, seconds), at least two, in order of tokens."""

    def prompt_s(self, tokens: float) -> float:
        """Return the seconds of one prompt, between and beyond those known."""
        pairs = list(pairwise(self.prompts_s))
        (few, short_s), (many, long_s) = next((pair for pair in pairs if tokens <= pair[1][0]), pairs[-1])
        return short_s + (long_s - short_s) * (tokens - few) / (many - few)

    def step_s(self, decoding: int, prompts: Sequence[int]) -> float:
        """Return the seconds of a step that decodes sequences and computes prompts, each a pass of its own."""
        decode_s = self.decode_s[decoding - 1] if decoding else 0.0
        return decode_s + sum(self.prompt_s(tokens) for tokens in prompts)


@dataclass(slots=True)
class _Request:
    client: int
    sent_s: float
    prompt: int
    generated: int
    part_s: list[float] = field(default_factory=list)

    def ended(self) -> Completion:
        return Completion(self.sent_s, tuple(self.part_s), self.prompt, 0, self.generated)


def play(steps: Steps, asked: Sequence[Sequence[Lengths]]) -> list[list[Completion]]:
    """Return the completions of clients that ask for outputs of these lengths, each when its last one has ended."""
    coming = [(client * START_S, client) for client in range(len(asked))]
    waiting: list[_Request] = []
    decoding: list[_Request] = []
    done: list[list[Completion]] = [[] for _ in asked]
    now_s = 0.0
    while coming or decoding:
        if not decoding:
            now_s = max(now_s, coming[0][0])
        while coming and coming[0][0] <= now_s:
            sent_s, client = heapq.heappop(coming)
            waiting.append(_Request(client, sent_s, *asked[client][len(done[client])]))
        now_s += steps.step_s(len(decoding), [request.prompt for request in waiting])
        decoding += waiting
        waiting = []
        for request in decoding:
            request.part_s.append(now_s)
        for request in [request for request in decoding if len(request.part_s) >= request.generated]:
            decoding.remove(request)
            done[request.client].append(request.ended())
            if len(done[request.client]) < len(asked[request.client]):
                heapq.heappush(coming, (now_s + TURN_S, request.client))
    return done
