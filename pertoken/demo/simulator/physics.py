"""True speed of one engine: the forecast's terms at drawn efficiencies instead of fitted ones.

The deviation of an engine from the fitted table is drawn from the table's own uncertainty. A draw is kept if it is
physical: no hardware term is faster than its listed rate, and the whole step deviates from the table as deployments
outside the fit do (`[interval] absolute`).
"""

from dataclasses import dataclass, replace

import numpy as np

from pertoken.catalog.market import Market
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.capacity import fitting_sequences, held_tokens, kv_tokens
from pertoken.forecast.efficiency import deviation, efficiency, intervals, table
from pertoken.forecast.served import Load, resolve
from pertoken.forecast.terms import TERMS, prefill_seconds, seconds, total
from pertoken.state.deployment import Deployment

TRIES = 4000
Z_80 = 1.2816
BISECTIONS = 40
_LISTED = np.array([table()["terms"][name]["unit"] == "listed rate" for name in TERMS])
_PREFILL = [TERMS.index(name) for name in ("prefill_flops", "prefill_attention", "requests")]
_MEMORY = [TERMS.index(name) for name in ("weights", "experts", "kv_cache")]
_GEMM = [TERMS.index(name) for name in ("decode_flops", "prefill_flops", "prefill_attention")]


@dataclass(frozen=True, slots=True)
class Truth:
    """True efficiencies of one engine, hidden from the advisor."""

    deviation: Array
    """Logarithm of each term's time over the table's, shape (number of `TERMS`,)."""
    by_version: tuple[tuple[str, float], ...] = ()
    """Logarithm of all times by engine version."""
    by_format: tuple[tuple[str, float], ...] = ()
    """Logarithm of all times by weight format: the deviation of this host's kernels from the table."""
    power: float = 1.0
    """Power as a multiple of the curve."""

    def shift(self, deployment: Deployment) -> Array:
        """Return the logarithms to add to the table's for a deployment."""
        version = dict(self.by_version).get(deployment.engine_version or "", 0.0)
        return self.deviation + version + dict(self.by_format).get(deployment.weight_dtype or "", 0.0)


def draw(rng: np.random.Generator, deployment: Deployment, load: Load, market: Market) -> Array:
    """Return a physical deviation of an engine from the table, shape (number of `TERMS`,)."""
    known = deviation()
    c = resolve([deployment], [load], market)
    scale = efficiency().log_scale(c.tags)[0]
    term_s = seconds(c, np.array([max(1.0, load.running)]))[0]
    fitted_s = (term_s * np.exp(scale)).sum()
    bound = intervals().floor
    drawn = (rng.standard_normal((TRIES, len(known.sd))) * known.sd) @ known.groups
    off = np.log((term_s * np.exp(scale + drawn)).sum(axis=1) / fitted_s)
    likely = np.exp(-0.5 * (off / (bound / Z_80)) ** 2)  # as often as deployments outside the fit deviate as much
    faster = (_LISTED & (term_s > 0) & (scale + drawn < np.minimum(scale, 0.0))).any(axis=1)
    kept = np.flatnonzero((rng.random(TRIES) < likely) & ~faster)
    return np.asarray(drawn[kept[0]]) if len(kept) else np.zeros(len(TERMS))


@dataclass(frozen=True, slots=True)
class Engine:
    """True speed of a deployment, for any number of instants."""

    c: Candidates
    """One row for each instant."""
    scale: Array
    """Factor on the listed time of each term, shape (number of `TERMS`,) or one row for each instant."""

    def terms_s(self, running: Array) -> Array:
        """Return the seconds of each term in one step with `running` sequences."""
        return np.asarray(seconds(self.c, running) * self.scale)

    def token_s(self, running: Array) -> Array:
        """Return the seconds from one token of a sequence to its next."""
        return total(self.terms_s(running))

    def prefill_s(self) -> Array:
        """Return the seconds of a request's prefill, alone."""
        parts = prefill_seconds(self.c, 1.0)
        return np.asarray(sum(part * self.scale[..., at] for part, at in zip(parts, _PREFILL, strict=True)))

    @property
    def slots(self) -> Array:
        """Largest number of running sequences: the batch limit, or the capacity of the KV cache."""
        return np.asarray(np.maximum(1.0, np.minimum(fitting_sequences(self.c), self.c.max_num_seqs * self.c.dp)))

    @property
    def limited_by_cache(self) -> Array:
        """Whether the KV cache limits `slots`."""
        return np.asarray(fitting_sequences(self.c) < self.c.max_num_seqs * self.c.dp)

    def cache_use(self, running: Array) -> Array:
        """Return the share of the KV cache in use by `running` sequences."""
        return np.asarray(np.minimum(1.0, running * held_tokens(self.c) / np.maximum(kv_tokens(self.c), 1.0)))

    def memory_share(self, running: Array) -> Array:
        """Return the share of the listed memory bandwidth used while busy."""
        return np.asarray(seconds(self.c, running)[:, _MEMORY].sum(axis=1) / self.token_s(running))

    def gemm_share(self, running: Array) -> Array:
        """Return the share of the listed FLOP/s used while busy."""
        return np.asarray(seconds(self.c, running)[:, _GEMM].sum(axis=1) / self.token_s(running))

    def running(self, tok_s: Array) -> tuple[Array, Array]:
        """Return (mean running sequences, its share of the slots' rate) at this many generated tokens/s.

        Arrivals are random: the mean number of running sequences is the tokens per second times the seconds of a token
        in the batch that runs while there is any. It is at most `slots`."""
        slots = self.slots
        peak = slots / self.token_s(slots)
        low, high = np.full(len(slots), -14.0), np.log(slots)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            offered = np.exp(middle)
            enough = offered >= tok_s * self.token_s(np.minimum(slots, while_any(offered)))
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.where(tok_s > 0, np.minimum(np.exp(high), slots), 0.0), tok_s / peak


def while_any(offered: Array) -> Array:
    """Return the mean of a Poisson number of requests given that there is at least one."""
    return np.asarray(offered / np.maximum(-np.expm1(-offered), 1e-9))


def engine(
    deployment: Deployment, truth: Truth, market: Market, prompt_len: Array, generated_len: Array, cached: Array
) -> Engine:
    """Return the true speed of a deployment at instants with these mean lengths and cached shares."""
    n = len(prompt_len)
    candidate = resolve([deployment], [Load(1.0, 1.0, 1.0, 1.0)], market)
    columns = candidate.take(np.zeros(n, dtype=np.intp))
    cached_share = 0.0 if deployment.enable_prefix_caching is False else cached
    columns = replace(
        columns,
        prompt_len=prompt_len,
        generated_len=generated_len,
        cached_share=np.broadcast_to(np.asarray(cached_share, dtype=float), (n,)).copy(),
    )
    return Engine(columns, np.exp(efficiency().log_scale(candidate.tags)[0] + truth.shift(deployment)))
