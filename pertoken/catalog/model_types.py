"""Model types by how their layers keep a KV cache."""

import tomllib
from functools import cache
from importlib.resources import files

EVERY_LAYER, LATENT, LAYER_LISTS = "every_layer", "latent", "layer_lists"


def cache_kind(file_kind: str, model_type: object) -> str | None:
    """Return `every_layer`, `latent` or `layer_lists` of a model type; None for one that is not listed.

    `file_kind`: `config` for a config.json, `gguf` for a GGUF file.
    """
    name = str(model_type).removesuffix("_text")
    return next((kind for kind, types in _types(file_kind).items() if name in types), None)


@cache
def _types(file_kind: str) -> dict[str, frozenset[str]]:
    text = files("pertoken.catalog").joinpath("model_types.toml").read_text(encoding="utf-8")
    return {kind: frozenset(row[file_kind]) for kind, row in tomllib.loads(text).items()}
