"""Image encoders of models: how many tokens of a prompt an image becomes, and what encoding it takes."""

import math
import statistics
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


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
        whole = math.ceil if self.edge is not None else round
        return max(1, whole(width * scale / side)), max(1, whole(height * scale / side))


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
    table = tomllib.loads(files("pertoken.catalog").joinpath("images.toml").read_text(encoding="utf-8"))
    return tuple(
        (
            tuple(row["words"]),
            ImageEncoder(**{field: value for field, value in row.items() if field not in ("words", "source", "as_of")}),
        )
        for row in table["encoders"]
    )
