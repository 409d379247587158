"""Engines that a finite run is played on: what their steps take, and how much they start at once."""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.capacity import MIN_FREE_FRACTION, profiled_bytes
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.capacity import free_bytes
from pertoken.forecast.efficiency import PREFILL_AT, Efficiency, tag_names, time_scale
from pertoken.forecast.formats import defaults
from pertoken.forecast.latency import DECODE_AT
from pertoken.forecast.terms import OVERHEAD_S, TERMS, kv_bytes_per_token, parts, prefill_seconds, seconds, total

WEIGHTS_AT = tuple(map(TERMS.index, ("weights", "experts")))
PREFILL_FLOPS, SEQUENCES = TERMS.index("prefill_flops"), TERMS.index("sequences")
LAYERS, KV_CACHE = TERMS.index("layers"), TERMS.index("kv_cache")


@dataclass(frozen=True, slots=True)
class Engine:
    """One replica. Seconds; lists have an entry for 0, 1, 2, ... decoding sequences, up to the batch limit."""

    step_s: Sequence[float]
    """Seconds of a decode step by batch; the first entry is the overhead of a step that only prefills."""
    weights_s: Sequence[float]
    """The part of `step_s` that reads weights: the products of prompts hide it."""
    prompt_weights_s: float
    """Reading the weights of a step with prompts: all experts of a mixture."""
    prefill_s: float
    """Products of one prompt token."""
    prompt_launch_s: float = 0.0
    """What a step with prompts takes beside its products."""
    mixed_s: float = 0.0
    """What each decoding sequence adds to a step with prompts: its cache is read more than once there."""
    kv_tokens: float = math.inf
    """Tokens that the KV cache holds."""
    step_tokens: float = math.inf
    """Prompt tokens of one step; a single whole prompt may be longer."""
    whole_prompts: bool = True
    """Whether a prompt is computed in one step; else in chunks of `step_tokens`."""
    mixed: bool = True
    """Whether sequences go on generating in a step that computes prompts; else they wait for it."""

    @property
    def limit(self) -> int:
        """Most sequences that run at once."""
        return len(self.step_s) - 1

    def prompt_step_s(self, decoding: int, tokens: int) -> float:
        """Return the seconds of a step that computes a number of prompt tokens beside a number of sequences."""
        beside = self.step_s[decoding] - self.weights_s[decoding] + decoding * self.mixed_s + self.prompt_launch_s
        return beside + max(self.prompt_weights_s, tokens * self.prefill_s)

    def slower(self, times: float) -> "Engine":
        """Return the same engine with all times multiplied by a factor."""
        return replace(
            self,
            step_s=[seconds * times for seconds in self.step_s],
            weights_s=[seconds * times for seconds in self.weights_s],
            prompt_weights_s=self.prompt_weights_s * times,
            prefill_s=self.prefill_s * times,
            prompt_launch_s=self.prompt_launch_s * times,
            mixed_s=self.mixed_s * times,
        )


def request_s() -> float:
    """Return the seconds of a request outside the engine's steps, on client and server."""
    return float(_table()["request"]["seconds"])


def engines(c: Candidates, table: Efficiency, step_tokens: float, shift: Array | float = 0.0) -> list[Engine]:
    """Return one replica of each candidate under its lengths, up to its `max_num_seqs`.

    `step_tokens`: most prompt tokens of one step. `shift`: as for `steady`. A mean context stands for those of all
    running sequences.
    """
    separate = np.copy(c.whole_prompts)
    alike = replace(c, whole_prompts=np.zeros(len(c)))
    scale = with_first_token(alike, time_scale(alike, table), math.exp(table.base[SEQUENCES])) * np.exp(shift)
    prefill_s = prefill_seconds(alike, 1.0)
    products = prefill_s[0] * scale[:, PREFILL_AT[0]] + prefill_s[1] * scale[:, PREFILL_AT[1]]
    computed = np.maximum(alike.prompt_len * (1 - alike.cached_share), 1.0)
    always, experts = parts(alike)
    ranks = alike.tp * np.where(alike.shared_experts > 0, alike.dp, 1.0)
    stored_s = alike.weight_bits / 8 / alike.memory_bytes_per_s
    weights = (
        always * stored_s / alike.tp * scale[:, WEIGHTS_AT[0]] + experts * stored_s / ranks * scale[:, WEIGHTS_AT[1]]
    )
    launch = _table()["prompt_step"]["seconds_per_layer"] * alike.n_layers * np.exp(_row_of(shift, LAYERS, len(c)))
    again = np.where(_reads_per_head(alike), _query_heads(alike) - 1, 0.0)
    free = free_bytes(alike) + defaults().reserved_bytes - profiled_bytes(alike, step_tokens)
    tokens = np.maximum(free, MIN_FREE_FRACTION * alike.memory_bytes) / kv_bytes_per_token(alike)
    mixes = ~_tagged(alike, _table()["separate_prompts"]["engines"])
    engines = []
    for row in range(len(c)):
        one = alike.take(np.array([row]))
        running = np.concatenate([[1.0], np.arange(1.0, max(1.0, one.max_num_seqs[0]) + 1)])
        term_s = seconds(one.spread(), running[None] * one.dp[0])[0] * scale[row]
        engines.append(
            Engine(
                step_s=total(np.take(term_s, DECODE_AT, axis=-1)).tolist(),
                weights_s=total(np.take(term_s, WEIGHTS_AT, axis=-1)).tolist(),
                prompt_weights_s=float(weights[row]),
                prefill_s=float(products[row] / computed[row]),
                prompt_launch_s=float(launch[row]),
                mixed_s=float(again[row] * term_s[0, KV_CACHE]),
                kv_tokens=float(tokens[row]),
                step_tokens=step_tokens,
                whole_prompts=bool(separate[row]),
                mixed=bool(mixes[row]),
            )
        )
    return engines


def with_first_token(c: Candidates, scale: Array, least: float) -> Array:
    """Return factors of `time_scale` that split time between prompts and sequences as times to first token show.

    Throughput is fitted without them, so a part of what prompts take is in the time per sequence there. It moves to the
    prompts, as much as rows of usual lengths held; the factor of sequences does not fall below `least`.
    """
    known = _table()["prefill"]
    listed = prefill_seconds(c, 1.0)[0] / np.maximum(c.prompt_len * (1 - c.cached_share), 1.0)
    moved = np.copy(scale)
    moved[:, PREFILL_FLOPS] = np.maximum(scale[:, PREFILL_FLOPS], known["times_listed"])
    more = (moved[:, PREFILL_FLOPS] - scale[:, PREFILL_FLOPS]) * listed * known["prompt_per_generated"]
    left = np.maximum(scale[:, SEQUENCES] - more / OVERHEAD_S["sequences"], least)
    moved[:, SEQUENCES] = np.minimum(scale[:, SEQUENCES], left)
    return moved


def _query_heads(c: Candidates) -> Array:
    """Query heads of each cache head: their width over the cached one. MLA caches none by heads."""
    width = c.kv_values / (2 * c.attending_layers)
    return np.asarray(np.where(c.n_kv_heads > 1, np.maximum(c.hidden_size / width, 1.0), 1.0))


def _reads_per_head(c: Candidates) -> NDArray[np.bool_]:
    rule = _table()["mixed_attention"]
    return _tagged(c, [rule["engine"]]) & _tagged(c, rule["hardware"])


def _tagged(c: Candidates, names: Sequence[str]) -> NDArray[np.bool_]:
    """Return whether any of these tags holds, shape (n,)."""
    return np.asarray((c.tags[:, [tag_names().index(name) for name in names]] > 0).any(axis=1))


def _row_of(shift: Array | float, place: int, n: int) -> Array:
    return np.broadcast_to(np.asarray(shift, dtype=float), (n, len(TERMS)))[:, place]


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "first_token.toml").read_text(encoding="utf-8"))
