"""Headers of safetensors files: names, dtypes and shapes of tensors. Format: huggingface.co/docs/safetensors."""

from dataclasses import dataclass
from math import prod
from pathlib import Path
from struct import unpack

from pertoken.agent.checkpoints.bounded import MOST, FileRefused, opened, parse_json, read_json

INDEX = "model.safetensors.index.json"
INDEX_LIMIT = 64_000_000
HEADER_LIMIT = 64_000_000
"""Bytes of all headers together; the largest models have about 100,000 tensors of 150 bytes each."""
MAX_FILES = 2000
BITS = {
    **{"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8},
    **{"I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8},
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor as it is stored."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def stored(self) -> int:
        """Elements as stored: quantized weights may be several in one."""
        return prod(self.shape)


def read_tensors(folder: Path) -> tuple[Tensor, ...] | None:
    """Return tensors of all safetensors files of a model; None if it has none.

    Raises FileRefused if one of the files is missing or broken: a sum over the others would be a wrong number.
    """
    tensors: list[Tensor] = []
    left = HEADER_LIMIT
    for path in _files(folder):
        listed, header_bytes = _header(path, left)
        tensors += listed
        left -= header_bytes
    return tuple(tensors) or None


def _files(folder: Path) -> list[Path]:
    if not (folder / INDEX).exists():
        whole = folder / "model.safetensors"
        return [whole] if whole.exists() else []
    index = read_json(folder / INDEX, INDEX_LIMIT)
    files = index.get("weight_map") if isinstance(index, dict) else None
    names = set(files.values()) if isinstance(files, dict) and all(isinstance(f, str) for f in files.values()) else {""}
    if len(names) > MAX_FILES or any(not name.endswith(".safetensors") or "/" in name for name in names):
        raise FileRefused(f"{INDEX}: does not name the files of a model")
    return [folder / name for name in sorted(names)]


def _header(path: Path, limit: int) -> tuple[list[Tensor], int]:
    with opened(path) as file:
        head = file.read(8)
        length = unpack("<Q", head)[0] if len(head) == 8 else MOST
        if length > limit:
            raise FileRefused(f"{path.name}: its header is too long, or no header")
        body = file.read(length)
    table = parse_json(body, path, limit)
    if len(body) < length or not isinstance(table, dict):
        raise FileRefused(f"{path.name}: not a whole safetensors header")
    return [_tensor(name, row, path) for name, row in table.items() if name != "__metadata__"], length


def _tensor(name: str, row: object, path: Path) -> Tensor:
    dtype, shape = (row.get("dtype"), row.get("shape")) if isinstance(row, dict) else (None, None)
    if not isinstance(dtype, str) or not isinstance(shape, list) or len(shape) > 8:
        raise FileRefused(f"{path.name}: not a safetensors header")
    if not all(isinstance(n, int) and 0 <= n < MOST for n in shape) or prod(shape) >= MOST:
        raise FileRefused(f"{path.name}: a tensor has an impossible shape")
    return Tensor(name, dtype, tuple(shape))
