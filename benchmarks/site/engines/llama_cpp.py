"""llama.cpp (xllamacpp)."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.site import models
from benchmarks.site.engines.engine import DENSE_RATES, MIXTURE_RATES, Engine
from benchmarks.site.engines.server import Command, ServerSettings
from benchmarks.site.models import FORMATS, SHAPES, Shape

PROGRAM = "benchmarks.site.engines.llama_server"


def _write_gguf(folder: Path, shape: Shape, dtype: str) -> Path:
    return models.write(folder / f"{shape.name}-{dtype}.gguf", shape, dtype)


def _llama_command(settings: ServerSettings) -> Command:
    return Command((sys.executable, "-m", PROGRAM, "{port}", json.dumps(asdict(settings))), 120.0)


LLAMA_CPP = Engine(
    name="llama.cpp",
    weight_dtypes=tuple(FORMATS),
    kv_dtypes=("fp16", "int8"),
    format_changes=(
        ("weights",),
        ("other weights",),
        ("threads",),
        ("kv",),
        ("weights", "threads"),
        ("other weights", "kv"),
        ("kv",),
        ("threads",),
    ),
    shapes=SHAPES,
    rates_shapes=(DENSE_RATES, MIXTURE_RATES),
    n=16,
    minutes=18.0,
    start_s=3.0,
    stays=False,
    write=_write_gguf,
    command=_llama_command,
)
