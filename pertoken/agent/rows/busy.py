"""Busy time: how long an engine worked between two readings, by its own time counters.

Engines report the time of their work in one of two forms (`metrics.ENGINE_TIMES`):

- Engine time: seconds in which the engine computed. It is the busy time itself.
- Request time: prefill and decode time, summed over requests. Requests that run together overlap, so this sum is an
  upper bound. Decode time is divided by the mean number of requests in a step (generated tokens without accepted
  drafts, over steps) where the engine counts its steps. The quotient is still an upper bound as long as steps with
  more requests take no less time; on llama.cpp it agrees with wall time within 2 %.

Time can be counted late: llama.cpp counts the decode time of a request when the request ends, so a reading can show
30 s of work counted within 1 s. A `Stretch` therefore adds up work since the last reading in which nothing ran. What
does not fit into one reading's time is reported by the readings after it, so that the sum over time is right. A stretch
never reports more than its observed time: that is the cap on time that overlaps.

Where the engine counts both prefill and decode time, busy time is split into these kinds of work. Each is an upper
bound: requests that run together make both of them longer, and a step may hold both. Where the two exceed the busy time
they overlap; where they fall short of it, the remainder is work on neither (lookup and transfer of cached tokens).

A stretch is kept in memory only: it changes with every tick in which anything runs, and storing it would be a row more
in each. A restart of the agent within a stretch loses what is not reported yet: busy time may be too small by that, and
is never too large.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, floor

from pertoken.provenance import Provenance


@dataclass(frozen=True, slots=True)
class Stretch:
    """Work of one engine since the last reading in which nothing ran. Times in milliseconds."""

    possible_ms: float = 0.0
    """Observed time: the engine cannot have worked longer."""
    owed_ms: float = 0.0
    """Work of the stretch before that its readings had no time left for; part of `possible_ms`."""
    owed_prefill_ms: float = 0.0
    owed_decode_ms: float = 0.0
    """Of `owed_ms`, at most."""
    engine_ms: float = 0.0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    request_steps: float = 0.0
    """Steps summed over requests: generated tokens less accepted drafts."""
    steps: float = 0.0
    reported_ms: int = 0
    reported_prefill_ms: int = 0
    reported_decode_ms: int = 0
    provenance: Provenance = Provenance.COUNTER
    """Of the work so far."""

    @property
    def worked_ms(self) -> float:
        """Busy time by the counters, before the cap."""
        return self.owed_ms + (self.engine_ms or self.prefill_ms + self.decode_ms / self._overlap)

    @property
    def _overlap(self) -> float:
        """Mean requests in a step; 1 where steps are not counted."""
        return max(1.0, self.request_steps / self.steps) if self.steps else 1.0

    def split(self, reported_ms: int) -> tuple[int, int]:
        """Return how much of the time reported so far was prefill and decode, each at most."""
        worked_ms = min(self.possible_ms, self.worked_ms)
        if not worked_ms:
            return 0, 0
        prefill_ms = self.owed_prefill_ms + self.prefill_ms
        decode_ms = self.owed_decode_ms + self.decode_ms / self._overlap
        prefill, decode = (reported_ms * min(1.0, ms / worked_ms) for ms in (prefill_ms, decode_ms))
        return floor(prefill), ceil(decode)

    @property
    def settled(self) -> bool:
        """Whether counted work has its time: a counter that is printed with few digits moves late, in large steps."""
        return not self.request_steps or self.engine_ms + self.prefill_ms + self.decode_ms > 0


@dataclass(frozen=True, slots=True)
class Busy:
    """Busy time of one reading. `ms` is None where the engine works but exposes no time."""

    ms: int | None
    provenance: Provenance
    stretch: Stretch
    """What the next reading continues."""
    prefill_ms: int | None = None
    decode_ms: int | None = None
    """Of `ms`, at most; None where the engine does not count both."""


NO_WORK = Busy(0, Provenance.COUNTER, Stretch())


def busy(
    stretch: Stretch,
    deltas: Mapping[str, int | None],
    *,
    observed_ms: int,
    elapsed_ms: int,
    running: float | None,
    waiting: float | None,
    exact: bool,
) -> Busy:
    """Return the busy time of a reading that continues `stretch`; `ms` is at most `observed_ms`.

    `deltas`: increases of the engine's counters by word since its last usable page, `elapsed_ms` ago. Only
    `observed_ms` of that time count: work is taken to be spread evenly over it. `running`, `waiting`: requests at this
    reading. `exact`: whether what the counters add up to cannot overlap.
    """
    part = min(1.0, observed_ms / elapsed_ms) if elapsed_ms > 0 else 1.0

    def delta(word: str) -> float:
        return (deltas.get(word) or 0) * part

    steps = max(0.0, delta("generated_tokens") - delta("spec_accepted_tokens"))
    now = replace(
        stretch,
        possible_ms=stretch.possible_ms + observed_ms,
        engine_ms=stretch.engine_ms + delta("engine_ms"),
        prefill_ms=stretch.prefill_ms + delta("prefill_ms"),
        decode_ms=stretch.decode_ms + delta("decode_ms"),
        request_steps=stretch.request_steps + steps,
        steps=stretch.steps + delta("steps"),
    )
    timed = {word for word in ("engine_ms", "prefill_ms", "decode_ms") if deltas.get(word) is not None}
    # Prefill time alone is all the work there is as long as nothing was generated.
    counts_time = bool(timed - {"prefill_ms"}) or (bool(timed) and not now.request_steps)
    if not exact and any(map(delta, timed)):
        now = replace(now, provenance=Provenance.BOUND)
    signs = (running, deltas.get("computed_tokens"), deltas.get("generated_tokens"))
    if not counts_time and (any(signs) or all(sign is None for sign in signs)):
        return Busy(None, Provenance.BOUND, now)
    unreported_ms = min(now.possible_ms, now.worked_ms) - now.reported_ms
    ms = max(0, min(floor(unreported_ms), observed_ms))
    prefill_ms, decode_ms = now.split(now.reported_ms + ms)
    prefill_ms = max(0, min(ms, prefill_ms - now.reported_prefill_ms))
    decode_ms = max(0, min(ms, decode_ms - now.reported_decode_ms))
    idle = not (any(signs) if running is None else running or waiting)
    if idle and now.settled:
        owed_ms = max(0.0, unreported_ms - ms)
        origin = now.provenance if owed_ms else Provenance.COUNTER
        worked_ms = now.reported_ms + ms + owed_ms
        prefill_end_ms, decode_end_ms = now.split(ceil(worked_ms))
        left = Stretch(
            possible_ms=owed_ms,
            owed_ms=owed_ms,
            owed_prefill_ms=min(owed_ms, max(0, prefill_end_ms - now.reported_prefill_ms - prefill_ms)),
            owed_decode_ms=min(owed_ms, max(0, decode_end_ms - now.reported_decode_ms - decode_ms)),
            provenance=origin,
        )
    else:
        left = replace(
            now,
            reported_ms=now.reported_ms + ms,
            reported_prefill_ms=now.reported_prefill_ms + prefill_ms,
            reported_decode_ms=now.reported_decode_ms + decode_ms,
        )
    provenance = now.provenance if ms else Provenance.COUNTER
    if not {"prefill_ms", "decode_ms"} <= timed:
        return Busy(ms, provenance, left)
    return Busy(ms, provenance, left, prefill_ms, decode_ms)
