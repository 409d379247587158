"""vLLM built for CPUs, in the environment that `python -m tests.vllm` prepares."""

import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path

from benchmarks.site.engines.engine import DENSE_RATES, Engine
from benchmarks.site.engines.server import ALIAS, Command, ServerSettings
from benchmarks.site.models import SHAPES, Shape
from tests.vllm import FOLDER, OFFLINE

MODEL = Path(__file__).with_name("vllm_model.py")
"""Program that writes a model, for the Python of that environment."""
CACHE_GIB = 1
"""Memory it may take for its cache, before the number of blocks is set."""
BLOCK = 128
"""Tokens of a block of the cache on CPUs."""


def _write_for_vllm(folder: Path, shape: Shape, dtype: str) -> Path:
    path = folder / f"{shape.name}-{dtype}"
    if not (path / "config.json").exists():
        python = FOLDER / "bin" / "python"
        if not python.exists():
            raise SystemExit("there is no vLLM for CPUs here; prepare it first: python -m tests.vllm")
        subprocess.run([python, "-P", MODEL, path, json.dumps(asdict(shape)), dtype], check=True)
    return path


def _vllm_command(settings: ServerSettings) -> Command:
    options = {
        "host": "127.0.0.1",
        "port": "{port}",
        "served-model-name": ALIAS,
        "dtype": "bfloat16",
        "max-model-len": str(settings.context),
        "max-num-seqs": str(settings.slots),
        # Prompts that come together are computed in one step, as `play` assumes.
        "max-num-batched-tokens": str(settings.context * settings.slots),
        # Its cache holds all slots and no more: the servers of all configurations are in memory at once.
        "num-gpu-blocks-override": str(settings.slots * (settings.context // BLOCK + 1)),
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    cores = sorted(os.sched_getaffinity(0))[: settings.threads]
    environment = {
        **OFFLINE,
        "VLLM_CPU_KVCACHE_SPACE": str(CACHE_GIB),
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
    }
    vllm = str(FOLDER / "bin" / "vllm")
    return Command((vllm, "serve", settings.model, *words, "--enforce-eager"), 400.0, environment, keeps_log=True)


VLLM = Engine(
    name="vllm",
    weight_dtypes=("bf16", "int8"),
    kv_dtypes=("bf16",),
    format_changes=(("weights",), ("threads",), ("weights", "threads")),
    shapes=tuple(shape for shape in SHAPES if not shape.experts)[:2],
    rates_shapes=(DENSE_RATES,),
    n=4,
    minutes=40.0,
    start_s=65.0,
    stays=True,
    write=_write_for_vllm,
    command=_vllm_command,
)
