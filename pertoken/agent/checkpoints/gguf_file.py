"""Header of a GGUF file, versions 2 and 3: its metadata and the shapes of its tensors, read once from front to back.

Format: github.com/ggml-org/ggml, docs/gguf.md. Everything is little-endian here; a big-endian file is refused.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from math import prod
from pathlib import Path

from pertoken.agent.checkpoints.bounded import MOST, FileRefused, opened, whole
from pertoken.agent.checkpoints.facts import Checkpoint, ShapeUnknown
from pertoken.agent.checkpoints.gguf_layers import cache_fields, n_layers

HEADER_LIMIT = 128_000_000
"""Bytes of one header. Vocabularies of 250,000 tokens with their merges take about 10 MB."""
MAX_ITEMS = 4_000_000
"""Keys, tensors and elements of arrays of strings, all together."""
MAX_FILES = 1000
_PLAIN = (0, 1, 32)
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_KEPT_ELEMENTS = 4096
"""Longer arrays are vocabularies; shorter ones may hold a value for each layer."""
_BLOCK = re.compile(r"blk\.(\d+)\.")
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
# `general.file_type`, as llama.cpp numbers them; a mixture of widths is called by that of most of its weights.
_DTYPES = {
    **{0: "fp32", 1: "fp16", 32: "bf16", 7: "int8", 2: "int4", 3: "int4"},
    **{14: "int4", 15: "int4", 25: "int4", 30: "int4", 38: "fp4"},
    **{8: "int5", 9: "int5", 16: "int5", 17: "int5", 18: "int6"},
    **{10: "int2", 21: "int2", 11: "int3", 12: "int3", 13: "int3"},
}


@dataclass(frozen=True, slots=True)
class Header:
    """Header of one file: metadata without long arrays, and elements by tensor."""

    metadata: Mapping[str, object]
    elements: Mapping[str, int]


def read_gguf(path: Path) -> Checkpoint:
    """Return the facts of the model in a GGUF file or in all its parts.

    Raises FileRefused if it is none or one of its parts is broken, OSError if one cannot be read.
    """
    header = read_header(path)
    metadata = header.metadata
    architecture = metadata.get("general.architecture")
    fields = {key.removeprefix(f"{architecture}."): value for key, value in metadata.items()}
    elements = dict(header.elements)
    for part in _other_parts(path, metadata.get("split.count")):
        elements |= read_header(part).elements
    facts: dict[str, object] = {"n_layers": n_layers(fields)}
    unknown: tuple[str, ...] = ()
    try:
        facts |= cache_fields(fields, architecture)
    except ShapeUnknown as error:
        unknown = (f"{error}",)
    facts |= _parameters(elements, fields)
    kind = metadata.get("general.file_type")
    dtype = _DTYPES.get(kind) if isinstance(kind, int) else None
    return Checkpoint(
        {name: value for name, value in facts.items() if value is not None},
        kind not in _PLAIN,
        dtype,
        unknown=unknown,
    )


def read_header(path: Path) -> Header:
    """Raises FileRefused, OSError."""
    with opened(path) as file:
        cursor = _Cursor(file, path)
        if cursor.take(4) != b"GGUF" or cursor.scalar("<I") not in (2, 3):
            raise FileRefused(f"{path.name}: neither a folder nor a GGUF file of version 2 or 3")
        n_tensors, n_keys = cursor.count(), cursor.count()
        metadata = {}
        for _ in range(n_keys):
            key = cursor.string()
            metadata[key] = cursor.value(cursor.scalar("<I"))
        return Header(metadata, dict(_tensors(cursor, n_tensors)))


def _tensors(cursor: "_Cursor", n: int) -> Iterator[tuple[str, int]]:
    for _ in range(n):
        name, n_dims = cursor.string(), cursor.scalar("<I")
        if n_dims > 8:
            raise cursor.refused("a tensor has an impossible shape")
        elements = prod(cursor.scalar("<Q") for _ in range(n_dims))
        if elements >= MOST:
            raise cursor.refused("a tensor has an impossible shape")
        cursor.take(4 + 8)  # its type and its place
        yield name, elements


def _parameters(elements: Mapping[str, int], fields: Mapping[str, object]) -> dict[str, object]:
    """Return experts and parameters without those of draft layers, which come last and are not run."""
    layers = n_layers(fields)
    counted = {
        name: count
        for name, count in elements.items()
        if layers is None or (block := _BLOCK.match(name)) is None or int(block[1]) < layers
    }
    total = sum(counted.values())
    routed = sum(count for name, count in counted.items() if "_exps." in name)
    number, active = whole(fields.get("expert_count")), whole(fields.get("expert_used_count"))
    if number is None:
        return {"params_total": total or None, "params_active": None if routed else total or None}
    facts: dict[str, object] = {"n_experts": number, "n_experts_active": active, "params_total": total or None}
    if routed and active is not None and active <= number:
        facts["params_active"] = total - routed + routed * active // number
    return facts


def _other_parts(path: Path, count: object) -> list[Path]:
    n = whole(count)
    if n is None or n == 1:
        return []
    named = _PART.search(path.name)
    if named is None or int(named[2]) != n or n > MAX_FILES:
        raise FileRefused(f"{path.name}: one of {n} parts, and its name does not give the others'")
    stem = path.name[: named.start()]
    parts = [path.with_name(f"{stem}-{i:05d}-of-{n:05d}.gguf") for i in range(1, n + 1)]
    return [part for part in parts if part != path]


class _Cursor:
    """Goes through a header; every length is checked before it is believed."""

    def __init__(self, file: BufferedReader, path: Path) -> None:
        self._file, self._path = file, path
        self._bytes = HEADER_LIMIT
        self._items = MAX_ITEMS

    def refused(self, why: str) -> FileRefused:
        return FileRefused(f"{self._path.name}: {why}")

    def take(self, n: int) -> bytes:
        if n > self._bytes:
            raise self.refused("its header is too long")
        self._bytes -= n
        content = self._file.read(n)
        if len(content) < n:
            raise self.refused("its header is cut")
        return content

    def scalar(self, form: str) -> int:
        number: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return number

    def count(self) -> int:
        """Return how many items follow."""
        n = self.scalar("<Q")
        if n > self._items:
            raise self.refused("its header has too many parts")
        self._items -= n
        return n

    def string(self) -> str:
        return self.take(self.scalar("<Q")).decode(errors="replace")

    def value(self, kind: int) -> object:
        """Return a value of this type; an array as a tuple, or None if it is long or of strings."""
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            if kind not in _SCALARS:
                raise self.refused("it has a value of no known type")
            return self.scalar(_SCALARS[kind])
        inner = self.scalar("<I")
        if inner == _STRING:
            for _ in range(self.count()):
                self.take(self.scalar("<Q"))
            return None
        if inner not in _SCALARS:
            raise self.refused("it has an array of no known type")
        n, size = self.scalar("<Q"), struct.calcsize(_SCALARS[inner])
        body = self.take(n * size)
        form = f"<{n}{_SCALARS[inner][1]}"
        return tuple(struct.unpack(form, body)) if n <= _KEPT_ELEMENTS else None
