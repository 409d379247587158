"""Damaged copies of real inputs, and the bounds within which each is read."""

import random
import signal
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

MAX_CPU_S = 20.0
"""CPU time of one input of some kilobytes, which takes milliseconds."""
DEEP = 100_000
"""Levels of nesting, far beyond Python's limit of recursion."""
BYTES = (
    b"\0",
    b"\xff",
    b"\n",
    b'"',
    b"'",
    b"\\",
    b",",
    b"=",
    b"{",
    b"}",
    b"[",
    b"]",
    b"-",
    b"1e999",
    b"NaN",
    b"9" * 400,
)
TEXTS = (
    "",
    "\0",
    "NaN",
    "Infinity",
    "-1",
    "1e999",
    "9" * 400,
    "٣",
    "\x1b[31m",
    "\ud800",
    "a" * 10_000,
    "0x10",
    "1_0",
    " ",
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**63, 10**400, 0.5, 1e308, float("nan"), float("inf")),
    *(*TEXTS, [], {}, [[]], [None], {"a": None}, [1, 2, 3], {"data": [{}]}),
)


def damaged(body: bytes, seed: object, copies: int, pieces: Sequence[bytes] = BYTES) -> Iterator[bytes]:
    """Yield copies with one to four faults each: flipped bits, cuts, insertions, repeated stretches."""
    chance = random.Random(str(seed))
    for _ in range(copies):
        copy = bytearray(body)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(copy) + 1)
            match chance.randrange(5):
                case 0 if at < len(copy):
                    copy[at] ^= 1 << chance.randrange(8)
                case 1:
                    del copy[at : at + chance.randint(1, 200)]
                case 2:
                    copy[at:at] = chance.choice(pieces)
                case 3:
                    other = chance.randrange(len(copy) + 1)
                    copy[at:at] = copy[other : other + chance.randint(1, 400)]
                case _:
                    del copy[at:]
        yield bytes(copy)


def altered(value: Any, seed: object, copies: int) -> Iterator[Any]:
    """Yield copies of a JSON value in which one to three parts are replaced by something else."""
    chance = random.Random(str(seed))
    for _ in range(copies):
        copy = value
        for _ in range(chance.randint(1, 3)):
            copy = _altered(copy, chance)
        yield copy


def _altered(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict) and value and chance.random() < 0.85:
        name = chance.choice(list(value))
        return {**value, name: _altered(value[name], chance)}
    if isinstance(value, list) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        return [*value[:at], _altered(value[at], chance), *value[at + 1 :]]
    return chance.choice(VALUES)


@contextmanager
def bounded(max_bytes: int | None = None) -> Iterator[None]:
    """Fail a block that uses more CPU than any input is worth, or more memory than `max_bytes` at once."""

    def too_long(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"an input took more than {MAX_CPU_S:g} s of CPU")

    before = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_CPU_S)
    if max_bytes is not None:
        tracemalloc.start()
    try:
        yield
        if max_bytes is not None:
            assert tracemalloc.get_traced_memory()[1] < max_bytes, "an input took more memory than it is worth"
    finally:
        if max_bytes is not None:
            tracemalloc.stop()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def read_or_refused(read: Callable[[], Any], error: type[Exception]) -> bool:
    """Return whether an input was read; its refusal is one message of bounded length."""
    with bounded():
        try:
            read()
        except error as refusal:
            assert str(refusal) and len(str(refusal)) < 20_000, str(refusal)[:200]
            return False
    return True
