"""Weight formats that each engine runs on each architecture: `engine_formats.toml`, each row with source and date."""

import tomllib
from functools import cache
from importlib.resources import files

from pertoken.catalog.knobs import like


def runs(engine: str, weight_dtype: str, arch: str) -> bool:
    """Return whether a row lists that the engine runs weights of this dtype on an architecture of the catalog."""
    return (like(engine), weight_dtype, arch.removesuffix("+Grace")) in _combinations()


def not_run(engine: str, weight_dtype: str | None, arch: str | None) -> str | None:
    """Return why a combination is refused, as a sentence; None for one that runs, or of which a part is unknown."""
    if weight_dtype is None or arch is None or runs(engine, weight_dtype, arch):
        return None
    return f"no source lists that {engine} runs {weight_dtype} weights on {arch}"


@cache
def _combinations() -> frozenset[tuple[str, str, str]]:
    rows = tomllib.loads(files("pertoken.catalog").joinpath("engine_formats.toml").read_text(encoding="utf-8"))["runs"]
    return frozenset(
        (engine, weight_dtype, arch)
        for row in rows
        for engine in row["engines"]
        for weight_dtype in row["formats"]
        for arch in row["architectures"]
    )
