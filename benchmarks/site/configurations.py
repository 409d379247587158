"""Configurations of a site, drawn from a seed: two models, half with other loads and half with other formats."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.site.engines.engine import Engine
from benchmarks.site.engines.llama_cpp import LLAMA_CPP
from benchmarks.site.models import Shape
from pertoken.forecast.served import Load
from pertoken.state.deployment import Deployment, Placement

SLOTS = (1, 2, 4, 8)
CONTEXTS = (256, 512, 1024)
MAX_PREFILL = 3e11
"""Prompt tokens of all clients together, times parameters of a token: more would take a slow machine half a minute, and
then three rounds do not fit into the time."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """Knobs of a server, and the requests of its clients in a closed loop."""

    shape: Shape
    weight_dtype: str
    kv_dtype: str
    slots: int
    threads: int
    context: int
    """Tokens of each slot."""
    clients: int
    prompt: int
    """Mean tokens of a prompt."""
    generated: int
    engine: Engine = LLAMA_CPP

    def same_format(self, other: "Configuration") -> bool:
        """Return whether weights, cache and threads are alike: only slots, context and load may differ."""
        mine, its = (
            (configuration.weight_dtype, configuration.kv_dtype, configuration.threads)
            for configuration in (self, other)
        )
        return self.shape == other.shape and mine == its

    @property
    def label(self) -> str:
        """It in one line."""
        engine = "" if self.engine is LLAMA_CPP else f"{self.engine.name} "
        return (
            f"{engine}{self.shape.name} {self.weight_dtype} kv {self.kv_dtype}, {self.threads} threads, "
            f"{self.slots} slots of {self.context}, {self.clients} clients, {self.prompt}+{self.generated} tokens"
        )

    def deployment(self) -> Deployment:
        """Return it as the forecast takes it."""
        return Deployment(
            self.shape.model(),
            self.engine.name,
            placement=Placement(accelerator=cpu_name(self.threads)),
            weight_dtype=self.weight_dtype,
            kv_dtype=self.kv_dtype,
            max_num_seqs=self.slots,
            max_model_len=self.context,
            tp=1,
            gpu_memory_utilization=0.9,
        )

    def load(self) -> Load:
        """Return what its clients ask for."""
        return Load(0.0, float(self.prompt), float(self.generated), float(self.clients))


def cpu_name(threads: int) -> str:
    """Return the catalog name of this machine's CPUs with a number of threads."""
    return f"CPU with {threads} threads"


def base(shape: Shape, weight_dtype: str, threads: int, engine: Engine = LLAMA_CPP) -> Configuration:
    """Return the configuration that is probed."""
    kv_dtype, prompt = engine.kv_dtypes[0], shape.context // 4
    return Configuration(shape, weight_dtype, kv_dtype, 4, threads, shape.context, 4, prompt, 32, engine)


def control(probed: Configuration) -> Configuration:
    """Return the configuration that is probed, as it is served in each round: its error is drift, or the probe's."""
    return _with_short_prompts(probed)


def _with_short_prompts(of: Configuration) -> Configuration:
    most = int(MAX_PREFILL / of.shape.params(of.shape.used) / of.clients)
    return replace(of, prompt=max(1, min(of.prompt, most)))


def draw(
    shapes: Sequence[Shape], seed: int, n: int = 16, threads: int = 2, engine: Engine = LLAMA_CPP
) -> tuple[list[Configuration], list[Configuration]]:
    """Return the configurations that are probed, one for each of two models, and `n` others to predict."""
    random = np.random.default_rng(seed)
    first = shapes[int(random.integers(0, max(1, len(shapes) // 2)))]
    second = shapes[int(random.integers(len(shapes) // 2, len(shapes)))]
    # Both models have one format, so that the changes below give each other one at least twice.
    dtype = engine.weight_dtypes[int(random.integers(0, len(engine.weight_dtypes)))]
    bases = [base(shape, dtype, threads, engine) for shape in (first, second)]
    slots = random.permutation(np.resize(SLOTS, n))
    contexts = random.permutation(np.resize(CONTEXTS, n))
    changes = random.permutation(len(engine.format_changes))
    configurations = []
    for place in range(n):
        of = bases[place % 2]
        context = min(int(contexts[place]), of.shape.context)
        generated = int(random.integers(24, 49))
        prompt = int(random.integers(context // 8, context // 2))
        one = replace(of, slots=int(slots[place]), context=context, prompt=prompt, generated=generated)
        one = replace(one, clients=int(random.integers(max(1, one.slots // 2), one.slots + 1)))
        one = _with_short_prompts(one)
        if place >= n // 2:
            one = changed(one, engine.format_changes[changes[place % len(changes)]], threads)
        configurations.append(one)
    return bases, configurations


def changed(of: Configuration, what: Sequence[str], threads: int) -> Configuration:
    """Return a configuration with another format: `weights`, `other weights`, `kv` or `threads` of it changed."""
    others = [dtype for dtype in of.engine.weight_dtypes if dtype != of.weight_dtype]
    changes: dict[str, dict[str, object]] = {
        "weights": {"weight_dtype": others[0]},
        "other weights": {"weight_dtype": others[-1]},
        "kv": {"kv_dtype": of.engine.kv_dtypes[-1]},
        # Where there is one thread alone, as in a run on a shared machine, the cache changes instead.
        "threads": {"threads": threads - 1} if threads > 1 else {"kv_dtype": of.engine.kv_dtypes[-1]},
    }
    merged = {name: value for part in what for name, value in changes[part].items()}
    return replace(of, **merged)  # type: ignore[arg-type]
