"""The model that is asked about, by a name of the catalog."""

from difflib import get_close_matches

from pertoken.catalog.market import Market
from pertoken.errors import BadInput
from pertoken.state.model import Model

NEAR = 3
"""Names that are suggested for one that is not known."""


def known_model(name: str, market: Market) -> Model:
    """Return the shape of a model. Raises BadInput with near names for one that the catalog does not know."""
    model = market.model(name)
    if model is not None:
        return model
    near = near_names(name, [model.name for model in market.models])
    nearest = f"; near: {', '.join(near)}" if near else ""
    raise BadInput(
        f"{name}: not in the catalog of models{nearest}. For another model name a folder with its config.json, as "
        "published on Hugging Face: its shape is read from it (and from its safetensors files, where they are there)"
    )


def near_names(name: str, names: list[str]) -> list[str]:
    """Return names like this one, the most alike first; the organization before the slash counts for nothing."""
    by_key = {name.rsplit("/", 1)[-1].casefold(): name for name in names}
    key = name.rstrip("/").rsplit("/", 1)[-1].casefold()
    return [by_key[match] for match in get_close_matches(key, list(by_key), n=NEAR)]
