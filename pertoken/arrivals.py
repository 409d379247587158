"""Load of a deployment: arrivals of requests, and lengths of prompts and answers."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

POINTS = 16
"""Equally likely values that stand for a distribution: enough for its 95th percentile, few enough for a search."""


@dataclass(frozen=True)
class Lengths:
    """A distribution of tokens per request: `POINTS` equally likely values, rising."""

    tokens: Array
    """Shape (POINTS,); (n, POINTS) where `joined` holds a distribution of each of n candidates."""

    @cached_property
    def mean(self) -> float:
        """Tokens."""
        return float(self.tokens.mean())

    @property
    def rows(self) -> Array:
        """Shape (1, POINTS), or (n, POINTS) for a distribution of each candidate."""
        return np.atleast_2d(self.tokens)

    @property
    def second_moment(self) -> float:
        """Mean of the square, tokens²."""
        return float(np.square(self.tokens).mean())

    def scaled_to(self, mean: float) -> "Lengths":
        """Return the same shape around another mean. Raises ValueError for a mean that is not above 0."""
        if not mean > 0:
            raise ValueError("a mean length is above 0 tokens")
        return Lengths(np.maximum(1.0, self.tokens * (mean / self.mean)))


def joined(lengths: Sequence[Lengths]) -> Lengths:
    """Return the distributions of several candidates, one row each."""
    return Lengths(np.stack([length.tokens for length in lengths]))


def fixed(tokens: float) -> Lengths:
    """Return the lengths of requests that are all this long."""
    return Lengths(np.full(POINTS, float(tokens)))


def from_sample(tokens: Sequence[float] | Array) -> Lengths:
    """Return the lengths of observed requests. Raises ValueError if there are none."""
    rising = np.sort(np.asarray(tokens, dtype=float))
    if not len(rising):
        raise ValueError("no request was seen")
    if len(rising) % POINTS == 0:
        return Lengths(np.maximum(1.0, rising.reshape(POINTS, -1).mean(axis=1)))
    slices = np.array_split(rising, POINTS) if len(rising) >= POINTS else [rising]
    means = np.array([part.mean() for part in slices])
    return Lengths(np.maximum(1.0, means if len(means) == POINTS else np.quantile(rising, _MIDDLES)))


def from_quantiles(shares: Sequence[float], tokens: Sequence[float]) -> Lengths:
    """Return a distribution from some of its quantiles, linear in log tokens between them.

    Raises ValueError unless both rise, shares from 0 to 1.
    """
    if len(shares) < 2 or shares[0] != 0 or shares[-1] != 1:
        raise ValueError("quantiles begin at share 0 and end at share 1")
    if not np.all(np.diff(shares) > 0) or not np.all(np.diff(tokens) >= 0) or tokens[0] <= 0:
        raise ValueError("quantiles rise and are above 0 tokens")
    return from_sample(np.exp(np.interp(_FINE, shares, np.log(tokens))))


def from_buckets(upper: Sequence[float], counts: Sequence[float]) -> Lengths:
    """Return the lengths in a histogram of an engine: requests per bucket (not cumulative), upper bounds in tokens.

    The last bound may be infinite; its requests are taken to be up to twice the bound before. Raises ValueError if it
    is empty or the lists differ in length.
    """
    if len(upper) != len(counts) or not sum(counts) > 0:
        raise ValueError("a histogram has a count for each bound, and at least one request")
    edges = [1.0]
    for bound in upper:
        edges.append(max(edges[-1], bound if np.isfinite(bound) else 2 * edges[-1]))
    passed = np.concatenate([[0.0], np.cumsum(counts) / sum(counts)])
    first = int(np.argmax(passed > 0)) - 1
    shares, tokens = [0.0], [edges[first]]
    for share, edge in zip(passed[first + 1 :], edges[first + 1 :], strict=True):
        if share > shares[-1]:
            shares.append(float(share))
            tokens.append(edge)
    shares[-1] = 1.0
    return from_quantiles(shares, tokens)


@cache
def typical(service: str) -> tuple[Lengths, Lengths]:
    """Prompt and answer lengths of a published production trace: `conversation` or `code`.

    Where only means were measured, their shape scaled to those means stands in. Raises KeyError for another service.
    """
    table = tomllib.loads(files("pertoken").joinpath("lengths.toml").read_text(encoding="utf-8"))
    row, shares = table["services"][service], table["shares"]
    return from_quantiles(shares, row["prompt_tokens"]), from_quantiles(shares, row["generated_tokens"])


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A load: requests come independently of each other (Poisson), each with a length of its own."""

    requests_per_s: float | Array
    """One rate, or one for each candidate that is asked about."""
    prompt: Lengths
    generated: Lengths

    @property
    def context(self) -> float:
        """Mean tokens of a running sequence: a longer answer runs longer, so it is seen more often.

        E[prompt] + E[answer²] / (2 E[answer]), by the time each spends running.
        """
        return self.prompt.mean + self.generated.second_moment / (2 * self.generated.mean)


def mixed(arrivals: Sequence[Arrivals]) -> Arrivals:
    """Return all requests together: their rates added up, and lengths in proportion to the rates.

    Raises ValueError where nothing arrives.
    """
    rates = np.array([float(arrival.requests_per_s) for arrival in arrivals])
    if not rates.sum() > 0:
        raise ValueError("no request arrives")
    copies = np.maximum(np.rint(64 * rates / rates.sum()), rates > 0).astype(int)
    prompt, generated = (
        from_sample(np.concatenate([np.repeat(length.tokens, n) for length, n in zip(lengths, copies, strict=True)]))
        for lengths in ([arrival.prompt for arrival in arrivals], [arrival.generated for arrival in arrivals])
    )
    return Arrivals(float(rates.sum()), prompt, generated)


_MIDDLES = (np.arange(POINTS) + 0.5) / POINTS
_FINE = (np.arange(64 * POINTS) + 0.5) / (64 * POINTS)
