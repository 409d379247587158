"""Published facts of models beside their shapes: licence, release date, scores, evaluations of quantized weights."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache

from pertoken.catalog.offers import rows, toml_table

NEEDS_SCORE = 1 / 3
"""Share of the present parameters below which a replacement needs a published score beside the present one."""


@dataclass(frozen=True, slots=True)
class Licence:
    """Permissions of a licence; `licences.toml` explains each field."""

    key: str
    name: str
    commercial: bool
    restricted_use: bool
    source: str
    as_of: date
    monthly_users: int | None = None

    def narrower_than(self, other: Licence) -> bool:
        """Return whether it permits less than another one in any of its fields."""
        fewer_users = self.monthly_users is not None and self.monthly_users < (other.monthly_users or float("inf"))
        return self.commercial < other.commercial or fewer_users or (self.restricted_use and not other.restricted_use)

    @property
    def text(self) -> str:
        """Its name and what it limits."""
        limits = [] if self.commercial else ["no commercial use"]
        if self.monthly_users is not None:
            limits.append(f"up to {self.monthly_users / 1e6:.0f} million monthly users")
        limits += ["a policy of permitted uses"] if self.restricted_use else []
        return f"{self.name} ({', '.join(limits)})" if limits else self.name


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Published facts of a model of the catalog."""

    name: str
    licence: Licence
    released: date
    scores: Mapping[str, float]
    """By benchmark, percent; empty where none was found."""
    scores_source: str
    """Where they were read, or why there are none."""
    pruned_from: str | None
    """The model that its makers pruned and distilled it from."""
    distilled_from: frozenset[str]
    """Its teachers: models on whose outputs its makers trained it; empty where none is published."""


@dataclass(frozen=True, slots=True)
class QuantizedScore:
    """Published evaluation of a model with quantized weights, beside that with its own."""

    benchmark: str
    unquantized: float
    quantized: float
    source: str

    @property
    def text(self) -> str:
        """The evaluation as a phrase."""
        return f"{self.benchmark} {self.unquantized:g} → {self.quantized:g} ({self.source})"


@cache
def model_facts() -> Mapping[str, ModelFacts]:
    """Return the facts by the model's name in the catalog."""
    return {
        row["name"]: ModelFacts(
            row["name"],
            licences()[row["licence"]],
            date.fromisoformat(row["released"]),
            {
                name: float(score)
                for name, _, score in (pair.partition("=") for pair in row["scores"].split(";") if pair)
            },
            row["scores_source"],
            row["pruned_from"] or None,
            frozenset(row["distilled_from"].split(";")) - {""},
        )
        for row in rows("models.csv")
    }


@cache
def licences() -> Mapping[str, Licence]:
    """Return the licences by key."""
    return {row["key"]: Licence(**row) for row in toml_table("licences.toml")["licence"]}


@cache
def quantized_scores() -> Mapping[tuple[str, str], QuantizedScore]:
    """Return the evaluations of quantized weights by model and weight dtype."""
    return {
        (row["model"], row["weight_dtype"]): QuantizedScore(
            row["benchmark"], float(row["unquantized"]), float(row["quantized"]), row["source"]
        )
        for row in rows("quantized.csv")
    }


def licence_refusal(present: str, proposed: str) -> tuple[str, str] | None:
    """Return code and reason for a model whose licence permits less than that of the present one, or is unknown.

    None too where the present model is not in the catalog: nothing can be compared.
    """
    present_facts, after = model_facts().get(present), model_facts().get(proposed)
    if present_facts is None:
        return None
    if after is None:
        return "licence-unknown", f"the catalog has no licence of {proposed}"
    if after.licence.narrower_than(present_facts.licence):
        return (
            "narrower-licence",
            f"{proposed} is under the {after.licence.text}, which permits less than the {present_facts.licence.text} "
            f"of {present}",
        )
    return None


def replacement_refusal(present: str, proposed: str, size: float, *, beside: bool = False) -> tuple[str, str] | None:
    """Return code and reason for a model that is not proposed for requests of the present one; None for any other.

    `size`: its parameters over those of the present one. `beside`: the present one stays, so that its age is no reason.
    """
    refused = licence_refusal(present, proposed)
    if refused is not None:
        return refused
    present_facts, after = model_facts().get(present), model_facts().get(proposed)
    if not beside and present_facts is not None and after is not None and after.released < present_facts.released:
        return "older-model", f"{proposed} of {after.released} is older than {present} of {present_facts.released}"
    if size < NEEDS_SCORE and not common_scores(present, proposed):
        return (
            "no-published-score",
            f"{proposed} has {size:.0%} of the parameters of {present}, and no published score of both was found",
        )
    return None


def common_scores(present: str, proposed: str) -> Mapping[str, tuple[float, float]]:
    """Return the scores that are published of both models, by benchmark, in the order of the present model's."""
    present_facts, after = model_facts().get(present), model_facts().get(proposed)
    if present_facts is None or after is None:
        return {}
    return {name: (score, after.scores[name]) for name, score in present_facts.scores.items() if name in after.scores}


def replacement_notes(present: str, proposed: str) -> tuple[str, ...]:
    """Return what is published of a model that would replace the present one: evaluation and licence."""
    scores = common_scores(present, proposed)
    present_facts, after = model_facts().get(present), model_facts().get(proposed)
    if scores and present_facts is not None and after is not None:
        figures = ", ".join(f"{name} {old:g} → {new:g}" for name, (old, new) in scores.items())
        sources = "; ".join(dict.fromkeys((present_facts.scores_source, after.scores_source)))
        evaluation = f"published evaluation: {figures} ({sources}; settings may differ)"
    else:
        evaluation = f"no published evaluation of both {present} and {proposed} was found"
    if after is None:
        return evaluation, f"the licence of {proposed} is not known"
    student = (f"{proposed} is a published student of {present}",) if present in after.distilled_from else ()
    licence = f"licence of {proposed}, released {after.released}: {after.licence.text}"
    if present_facts is None:
        return evaluation, f"{licence}; that of {present} is not known"
    permits = "less than" if after.licence.narrower_than(present_facts.licence) else "what"
    return (
        evaluation,
        f"{licence}, which permits {permits} the {present_facts.licence.name} of {present} does",
        *student,
    )


def quantized_note(model: str, weight_dtype: str) -> str:
    """Return the published evaluation of a model with weights of a dtype, or that none was found."""
    score = quantized_scores().get((model, weight_dtype))
    if score is None:
        return (
            f"no published evaluation of {model} with {weight_dtype} weights was found: evaluate it on your own tasks"
        )
    return f"published evaluation of {weight_dtype} weights: {score.text}"


@dataclass(frozen=True, slots=True)
class ImageEncoder:
    """Encoder of a model as `images.toml` has it."""

    layers: int
    hidden: int
    intermediate: int
    matrices: int
    """Of a feed-forward block."""
    patch: int
    """Pixels a side."""
    merge: int
    """Patches a side that become one token."""
    min_pixels: int = 1
    max_pixels: int | None = None
    edge: int | None = None
    """Longest side in pixels."""
    square: int | None = None
    """Side in pixels to which every image is scaled."""
    row_ends: bool = False
    """Whether a token ends each row of tokens."""

    def tokens(self, width: int, height: int) -> int:
        """Return the prompt tokens of an image of this many pixels."""
        columns, rows = self._grid(width, height)
        return rows * (columns + self.row_ends)

    def flops(self, width: int, height: int) -> float:
        """Return the FLOPs of encoding an image: 2 per parameter and patch, and attention between all its patches."""
        columns, rows = self._grid(width, height)
        patches = columns * rows * self.merge**2
        params = self.layers * self.hidden * (4 * self.hidden + self.matrices * self.intermediate)
        return 2.0 * params * patches + 4.0 * self.layers * self.hidden * patches**2

    def _grid(self, width: int, height: int) -> tuple[int, int]:
        """Return the columns and rows of tokens of an image."""
        if width < 1 or height < 1:
            raise ValueError(f"an image has at least one pixel, not {width} x {height}")
        side = self.patch * self.merge
        if self.square is not None:
            return self.square // side, self.square // side
        scale = 1.0
        if self.edge is not None:
            scale = min(1.0, self.edge / max(width, height))
        elif self.max_pixels is not None:
            area = width * height
            scale = math.sqrt(min(max(area, self.min_pixels), self.max_pixels) / area)
        rounded = math.ceil if self.edge is not None else round
        return max(1, rounded(width * scale / side)), max(1, rounded(height * scale / side))


@cache
def image_encoder(model: str) -> ImageEncoder | None:
    """Return the encoder of a model by its name; None where the table has none."""
    name = model.lower()
    return next((encoder for words, encoder in _table() if any(word in name for word in words)), None)


@cache
def typical_flops(width: int, height: int) -> float:
    """Return the FLOPs of encoding an image with the median of the encoders in the table, for a model that it lacks."""
    return statistics.median(encoder.flops(width, height) for _, encoder in _table())


@cache
def _table() -> tuple[tuple[tuple[str, ...], ImageEncoder], ...]:
    """Return the words and the encoder of each row of `images.toml`."""
    described = ("words", "source", "as_of")
    return tuple(
        (row["words"], ImageEncoder(**{field: value for field, value in row.items() if field not in described}))
        for row in toml_table("images.toml")["encoders"]
    )


EVERY_LAYER, LATENT, LAYER_LISTS = "every_layer", "latent", "layer_lists"


def cache_kind(file_kind: str, model_type: object) -> str | None:
    """Return `every_layer`, `latent` or `layer_lists` of a model type; None for one that is not listed.

    `file_kind`: `config` for a config.json, `gguf` for a GGUF file.
    """
    name = str(model_type).removesuffix("_text")
    return next((kind for kind, types in _types(file_kind).items() if name in types), None)


@cache
def _types(file_kind: str) -> dict[str, frozenset[str]]:
    return {kind: frozenset(row[file_kind]) for kind, row in toml_table("model_types.toml").items()}
