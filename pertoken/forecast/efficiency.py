"""Efficiencies of serving engines on their hardware, and the model's error: one table, fitted from measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.formats import constants, engine_class, hardware_tag, kernel_family, kernel_maker
from pertoken.forecast.terms import PREFILL, TERMS, seconds, total


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Logarithms of how much longer a term takes than at its listed rate (or than its unit, for overheads)."""

    base: Array
    """Shape (number of `TERMS`,): a dense model in 16 bits on Hopper under TensorRT-LLM."""
    by_tag: Array
    """Shape (number of tags, number of `TERMS`): added where the tag holds."""

    def log_scale(self, tags: Array) -> Array:
        """Return the logarithms for candidates with these tags, shape (n, number of `TERMS`)."""
        return self.base + rows_times(tags, self.by_tag)


def rows_times(rows: Array, by: Array) -> Array:
    """Return the matrix product of `rows`, shape (n, m), and `by`, shape (m, k).

    It is added up in the same order for any n: a row's last digits do not depend on other rows, as they do in
    a BLAS library. A contiguous `by` makes the sum over m the outer loop, whatever its memory layout was.
    """
    return np.asarray(np.einsum("ij,jk->ik", rows, np.ascontiguousarray(by)))


@dataclass(frozen=True, slots=True)
class Deviation:
    """Expected deviation of one deployment from the table before anything was measured on it, in log times."""

    names: tuple[str, ...]
    """Groups of terms that deviate together; last `common`, all of them."""
    groups: Array
    """Shape (len(names), number of `TERMS`): 1 where a term belongs to the group."""
    sd: Array
    """Shape (len(names),)."""
    noise: float
    """Standard deviation of one measurement."""
    misfit: float
    """Standard deviation of the error of a sum of terms: of the log time of a part of a step or of a step on CPUs, of a
    log latency in a queue, and as a share of a log-ratio."""


table = partial(constants, "efficiency")
"""Returns the whole table, as `efficiency.toml` has it."""


@cache
def tag_names() -> tuple[str, ...]:
    """Return every tag that adjusts a term, in the order of the columns of `Candidates.tags`."""
    return tuple(table()["tags"])


def tag_row(held: Iterable[str], values: Mapping[str, float] | None = None) -> tuple[float, ...]:
    """Return the tags of one candidate as a row: 1 for each in `held`, and the `values` of graded ones.

    Raises ValueError for a name that is no tag.
    """
    values_by_tag = {**dict.fromkeys(held, 1.0), **(values or {})}
    if unknown := sorted(values_by_tag.keys() - set(tag_names())):
        raise ValueError(f"not a tag of the efficiency table: {', '.join(unknown)}")
    return tuple(values_by_tag.get(name, 0.0) for name in tag_names())


@cache
def efficiency() -> Efficiency:
    """Return the fitted constants."""
    rows = table()["terms"]
    base = np.array([rows[rows[term].get("like", term)]["base"] for term in TERMS], dtype=float)
    by_tag = np.zeros((len(tag_names()), len(TERMS)))
    for column, term in enumerate(TERMS):
        for tag, value in rows[term].get("by", {}).items():
            by_tag[tag_names().index(tag), column] = value
    return Efficiency(base, by_tag)


@cache
def deviation() -> Deviation:
    """Deviations of single deployments, as the table has them."""
    row = table()["deviation"]
    groups = np.array([[float(term in group["terms"]) for term in TERMS] for group in row["groups"].values()])
    sd = np.array([row["sd"][group["sd"]] for group in row["groups"].values()])
    return Deviation(tuple(row["groups"]), groups, sd, row["noise"], row["misfit"])


@dataclass(frozen=True, slots=True)
class Intervals:
    """Half widths of 80 % intervals of logarithms."""

    floor: float
    """Of a change of one measured kind that nothing marks as new, and of a rate where nothing was measured."""
    log_sd: float
    """Factor on the uncertainty that calibration leaves."""
    disagreement: float
    """Factor on the difference between the calibrated log-ratio and that of the table alone."""
    unmeasured: float
    """Minimum of a change of a kind or to kernels that no public pairs cover."""
    measured: frozenset[str]
    """Kinds of change that public pairs cover."""

    def half_width(self, kinds: Iterable[str], log_sd: Array | float, disagreement: Array | float = 0.0) -> Array:
        """Return half widths of log-ratios changed in these ways; 0 for no change.

        The floors of several kinds count as independent. The uncertainty and the disagreement count once, for the whole
        change.
        """
        kinds = frozenset(kinds)
        if not kinds:
            return np.zeros(np.shape(log_sd))
        novelty = (self.log_sd * np.asarray(log_sd)) ** 2 + (self.disagreement * np.asarray(disagreement)) ** 2
        total = np.sqrt(len(kinds) * self.floor**2 + novelty)
        return np.asarray(np.maximum(total, 0.0 if kinds <= self.measured else self.unmeasured))


@cache
def intervals() -> Intervals:
    """Return the widths of the table."""
    row = table()["interval"]
    return Intervals(**{**row, "measured": frozenset(row["measured"])})


@cache
def kernel_path(engine: str, format_name: str, arch: str) -> str:
    """Return the name of the kernels that multiply weights of a format under an engine on an architecture.

    Weights in 16 bits are multiplied by the kernels of the hardware's maker whatever the engine. On every architecture
    with a prior these are one path: they reach alike shares of listed rates.
    """
    maker = kernel_maker(arch)
    made_by = "" if maker == "nvidia" else f" {maker}"
    if format_name in ("bf16", "fp16"):
        return "16-bit" if hardware_tag(arch) is not None else f"16-bit{made_by}"
    return f"{engine_class(engine)} {kernel_family(engine, format_name)}{made_by}"


def path_sources(path: str) -> int:
    """Return how many public sources the table's kernels of this path were fitted on; 0 for none."""
    count: int = table()["paths"].get(path, 0)
    return count


PREFILL_AT = tuple(map(TERMS.index, PREFILL))
"""Places of the terms of prompts."""


@dataclass(frozen=True, slots=True)
class Steady:
    """One row for each candidate."""

    running: Array
    token_s: Array
    """Seconds from one token of a sequence to its next, each carrying its share of others' prefills."""
    term_s: Array
    """The same by term, shape (n, number of `TERMS`)."""

    @property
    def tok_s(self) -> Array:
        """Generated tokens/s of the whole deployment."""
        return self.running / self.token_s

    @property
    def shares(self) -> Array:
        """Share of each term in the time, shape (n, number of `TERMS`); rows sum to 1."""
        return self.term_s / self.token_s[:, None]


def steady(c: Candidates, table: Efficiency, running: Array, shift: Array | float = 0.0) -> Steady:
    """Steady state with `running` sequences, shape (n,).

    `shift` is added to the logarithm of each term's time: the calibration, shape (n, number of `TERMS`).
    """
    return steady_scaled(c, running, time_scale(c, table, shift))


def slowed(state: Steady, factor: Array) -> Steady:
    """Return a steady state in which a token takes `factor` times as long, shape (n,), and each term of it."""
    return Steady(state.running, state.token_s * factor, state.term_s * factor[:, None])


def time_scale(c: Candidates, table: Efficiency, shift: Array | float = 0.0) -> Array:
    """Return the factor on the listed time of each term, shape (n, number of `TERMS`); `shift` as for `steady`."""
    return np.asarray(np.exp(table.log_scale(c.tags) + shift))


def steady_scaled(c: Candidates, running: Array, scale: Array) -> Steady:
    """Return `steady` with the factors of `time_scale`, which are the same for any number of sequences."""
    term_s = seconds(c, running) * scale
    return Steady(running, total(term_s), term_s)


def first_token_weights(c: Candidates) -> Array:
    """Return how often each term of a step of one sequence is in its time to first token, shape (n, number of `TERMS`).

    A step carries one token's share of a prefill; pipeline stages are passed one after another.
    """
    steps = np.maximum(c.generated_len, 1.0) / np.maximum(c.accepted_len, 1.0)
    weights = np.ones((len(c), len(TERMS)))
    weights[:, PREFILL_AT] = (steps * c.pp)[:, None]
    return weights * c.accepted_len[:, None]


def first_token_scaled(c: Candidates, scale: Array) -> Array:
    """Return the seconds to the first token of a request without queueing: its prefill and one step, shape (n,).

    `scale`: the factors of `time_scale`.
    """
    return total(seconds(c, np.ones(len(c))) * scale * first_token_weights(c))
