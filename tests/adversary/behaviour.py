"""Behaviour of a scripted engine: the load it serves, and the lies of its page."""

import json
from dataclasses import asdict, dataclass
from typing import Literal, get_args

Lie = Literal[
    "none",
    "one_less",
    "far",
    "alternating",
    "beyond_int64",
    "nan",
    "overflow",
    "missing",
    "twice",
    "cut",
    "large",
    "half",
]
"""What is wrong with the counters of a page:

- `one_less`: every second pair of pages shows one token less; `far`: 5 * 10^17 more;
- `alternating`: two pages 0 and two 10^18 in turn; `beyond_int64`: 2^63; `nan`: NaN; `overflow`: 1e400;
- `missing`: no generated tokens; `twice`: each series twice, with different values;
- `cut`: half of a page; `large`: more bytes than a page may have;
- `half`: half of each count.
"""

LIES: tuple[Lie, ...] = tuple(lie for lie in get_args(Lie) if lie not in ("none", "half"))
"""Those of random worlds: with another one, every seed would be another world."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Of one scripted engine from now on."""

    model: str
    prompt_tok_s: float = 0.0
    generated_tok_s: float = 0.0
    busy: float = 0.0
    """Part of its time in which it computes."""
    lie: Lie = "none"
    delay_s: float = 0.0
    """Before each answer."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Behaviour":
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Served:
    """The truth of one model in one process: tokens served and seconds computed."""

    prompt: int = 0
    cached: int = 0
    generated: int = 0
    busy_s: float = 0.0

    def __add__(self, other: "Served") -> "Served":
        return Served(
            self.prompt + other.prompt,
            self.cached + other.cached,
            self.generated + other.generated,
            self.busy_s + other.busy_s,
        )
