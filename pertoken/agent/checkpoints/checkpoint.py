"""Shape and weight types of a served model, read from the headers of its files; tensors are never read."""

from __future__ import annotations

import pwd
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from struct import unpack

from pertoken.agent.checkpoints.config_json import cache_fields, first, layer_count, parameters
from pertoken.agent.checkpoints.facts import (
    MOST,
    Checkpoint,
    Experts,
    FileRefused,
    ShapeUnknown,
    experts_of,
    opened,
    parse_json,
    read_json,
)
from pertoken.agent.checkpoints.gguf import read_gguf
from pertoken.agent.host.processes import environment

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
    limit = HEADER_LIMIT
    for path in _files(folder):
        listed, header_bytes = _header(path, limit)
        tensors += listed
        limit -= header_bytes
    return tuple(tensors) or None


def _files(folder: Path) -> list[Path]:
    if not (folder / INDEX).exists():
        single = folder / "model.safetensors"
        return [single] if single.exists() else []
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


CONFIG_LIMIT = 4_000_000
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "BF16": "bf16", "F16": "fp16", "F32": "fp32"}
_FIXED = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "fp4", "nvfp4": "fp4"}
_SIZED = {(4, "int"): "int4", (8, "int"): "int8", (8, "float"): "fp8", (4, "float"): "fp4"}
_BITS = {"int4": 4, "fp4": 4, "int8": 8}
"""Bits of a parameter in a packed integer. FP8 has a type of its own: integers beside it are something else."""
_TEXT = ("text_config", "llm_config", "language_config", "thinker_config")

# Tensors beside the weights: scales, zero points and orders of quantized ones, and tables that are computed.
_BESIDE = re.compile(
    r"(scales?(_inv|_2)?|_scales|zeros|zero_point|g_idx|weight_shape|absmax|quant_map|quant_state\..*|inv_freq|SCB)$"
)

# Tensors of layers that only draft: those of their own name, and those numbered after the last layer of the text model.
_DRAFT = re.compile(r"(^|\.)(mtp|mtp_\w+|nextn\w*|eagle\w*|medusa\w*|draft_\w+)\.")
_LAYER = re.compile(r"^(?:model\.|language_model\.|text_model\.|transformer\.)*(?:layers|h)\.(\d+)\.")


def read_folder(folder: Path) -> Checkpoint:
    """Return the facts of the model in `folder`.

    Raises FileRefused for a broken file, OSError if there is no `config.json` that can be read.
    """
    config = read_json(folder / "config.json", CONFIG_LIMIT)
    if not isinstance(config, dict):
        raise FileRefused("config.json: not a configuration")
    text = _text_model(config)
    quantization = _quantization(folder, config, text)
    tensors = read_tensors(folder)
    if quantization is not None:
        dtype = _quantized_dtype(quantization)
    else:
        named = first({**config, **text}, ("torch_dtype", "dtype"))
        dtype = DTYPES.get(str(named)) if named else _only_dtype(tensors or ())
    facts: dict[str, object] = {"n_layers": layer_count(text)}
    unknown: list[str] = []
    try:
        experts = experts_of(text)
    except ShapeUnknown as error:
        experts = Experts(None, None)
        unknown.append(f"{error}")
    if experts.count not in (None, 1):
        facts |= {"n_experts": experts.count, "n_experts_active": experts.active}
    try:
        facts |= cache_fields(text)
    except ShapeUnknown as error:
        unknown.append(f"{error}")
    try:
        facts |= _parameters(text, experts, tensors, quantization is not None, dtype)
    except ShapeUnknown as error:
        unknown.append(f"{error}")
    return Checkpoint(
        {name: value for name, value in facts.items() if value is not None},
        quantization is not None,
        dtype,
        unknown=tuple(dict.fromkeys(unknown)),
    )


def _text_model(config: Mapping[str, object]) -> Mapping[str, object]:
    """Return the configuration of the language model within that of a model of several modalities."""
    while inner := next((value for name in _TEXT if isinstance(value := config.get(name), dict)), None):
        config = inner
    return config


def _parameters(
    text: Mapping[str, object], experts: Experts, tensors: Sequence[Tensor] | None, quantized: bool, dtype: str | None
) -> dict[str, object]:
    """Return parameters a forward pass may use, and those it uses for one token; the latter is None where unknown.

    Raises ShapeUnknown if a tensor is not understood, or without tensors a type of model.
    """
    if tensors is None:
        return parameters(text)
    total = routed = 0
    for tensor in tensors:
        if _is_counted(text, tensor):
            count = _stored(tensor, quantized, dtype)
            total += count
            routed += count if ".experts." in tensor.name else 0
    return {"params_total": total, "params_active": experts.active_parameters(total, routed)}


def _is_counted(text: Mapping[str, object], tensor: Tensor) -> bool:
    layers, layer = layer_count(text), _LAYER.search(tensor.name)
    drafts = layers is not None and layer is not None and int(layer[1]) >= layers
    return not (drafts or _DRAFT.search(tensor.name) or _BESIDE.search(tensor.name) or tensor.dtype == "F8_E8M0")


def _stored(tensor: Tensor, quantized: bool, dtype: str | None) -> int:
    """Return the parameters in a tensor; packed integers hold several. Raises ShapeUnknown."""
    bits, packed = BITS.get(tensor.dtype), tensor.dtype[0] in "IU"
    if bits is None or tensor.dtype == "BOOL" or (packed and (not quantized or dtype not in _BITS)):
        raise ShapeUnknown(f"parameters are not counted: {tensor.name[:80]} is stored as {tensor.dtype[:20]}")
    return tensor.stored * bits // _BITS[str(dtype)] if packed else tensor.stored


def _quantization(folder: Path, config: Mapping[str, object], text: Mapping[str, object]) -> dict[str, object] | None:
    beside = folder / "hf_quant_config.json"
    for quantization in (config.get("quantization_config"), text.get("quantization_config")):
        if isinstance(quantization, dict):
            return quantization
    settings = read_json(beside, CONFIG_LIMIT) if beside.exists() else None
    inner = settings.get("quantization") if isinstance(settings, dict) else None
    return {"quant_method": "modelopt", **inner} if isinstance(inner, dict) else None


def _quantized_dtype(settings: Mapping[str, object]) -> str | None:
    """Return the weight dtype of a `quantization_config`; None if it is not understood."""
    method = str(settings.get("quant_method", ""))
    if method == "fp8" and settings.get("weight_block_size"):
        return "fp8_block"
    if method in _FIXED:
        return _FIXED[method]
    if method == "modelopt":
        return {"FP8": "fp8", "NVFP4": "fp4", "W4A16_AWQ": "int4"}.get(str(settings.get("quant_algo")))
    if method == "bitsandbytes":
        loads = {"load_in_4bit": "int4", "load_in_8bit": "int8"}
        return next((dtype for name, dtype in loads.items() if settings.get(name) is True), None)
    if method == "compressed-tensors":
        groups = settings.get("config_groups")
        listed = list(groups.values()) if isinstance(groups, dict) else []
        weights = [group.get("weights") for group in listed if isinstance(group, dict)]
        dtypes = {
            _sized(weight.get("num_bits"), str(weight.get("type"))) if isinstance(weight, dict) else None
            for weight in weights
        }
        return dtypes.pop() if len(dtypes) == 1 else None
    if method in ("awq", "gptq", "auto_awq", "auto_gptq", "auto-round"):
        return _sized(settings.get("bits"), "int")
    return None


def _sized(bits: object, kind: str) -> str | None:
    return _SIZED.get((bits, kind)) if isinstance(bits, int) else None


def _only_dtype(tensors: Sequence[Tensor]) -> str | None:
    """Return the dtype of all matrices, if they have one."""
    dtypes = {tensor.dtype for tensor in tensors if len(tensor.shape) > 1}
    return DTYPES.get(dtypes.pop()) if len(dtypes) == 1 else None


_VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME")
"""Variables of huggingface_hub for the folder of its models; the first that is set decides."""


def read_checkpoint(path: str, pid: int) -> Checkpoint:
    """Return the model at `path` as the process `pid` sees it: a GGUF file, a folder, or a repository id in its cache.

    It never fails: a file that is too large, broken or no file at all becomes the reason.
    """
    checkpoint = _read(_candidates(path, pid), path)
    return checkpoint or Checkpoint(reason=f"{path}: not found among the files of process {pid}")


def read_files(path: Path) -> Checkpoint:
    """Read the model in a GGUF file or folder of this process. As `read_checkpoint`, it never fails."""
    return _read([path], str(path)) or Checkpoint(reason=f"{path}: no such file or folder")


def _read(candidates: Iterable[Path], path: str) -> Checkpoint | None:
    """Return the first candidate that exists; None if there is none."""
    try:
        for candidate in candidates:
            if candidate.is_dir():
                return read_folder(candidate)
            if candidate.is_file():
                return read_gguf(candidate)
    except FileRefused as error:
        return Checkpoint(reason=f"{path}: {error}")
    except OSError as error:
        return Checkpoint(reason=f"{path}: cannot be read here: {error.strerror}")
    return None


def _candidates(path: str, pid: int) -> list[Path]:
    """Return the possible paths of a model, under the root of its process: a container has files of its own."""
    root = Path(f"/proc/{pid}/root")
    path = path.removeprefix("hf://")
    if path.startswith("/"):
        return [root / path[1:]]
    candidates = [Path(f"/proc/{pid}/cwd") / path]
    if path.count("/") == 1:
        candidates += _snapshot(root / _hub(pid).lstrip("/") / f"models--{path.replace('/', '--')}")
    return candidates


def _hub(pid: int) -> str:
    """Return the cache of huggingface_hub in the process's own file system."""
    variables = environment(pid, _VARIABLES)
    if cache := variables.get("HF_HUB_CACHE") or variables.get("HUGGINGFACE_HUB_CACHE"):
        return cache
    home = variables.get("HOME") or _home(pid)
    return f"{variables.get('HF_HOME') or (variables.get('XDG_CACHE_HOME') or f'{home}/.cache') + '/huggingface'}/hub"


def _snapshot(repository: Path) -> list[Path]:
    """Return the served revision: the only one, else the one of `main`; among others it is unknown."""
    snapshots = list((repository / "snapshots").glob("*"))
    if len(snapshots) == 1:
        return snapshots
    try:
        with opened(repository / "refs/main") as file:
            main = file.read(41).decode(errors="replace").strip()
    except (OSError, FileRefused):
        return []
    return [snapshot for snapshot in snapshots if snapshot.name == main]


def _home(pid: int) -> str:
    """Return home folder of the process's user."""
    try:
        return pwd.getpwuid(Path(f"/proc/{pid}").stat().st_uid).pw_dir
    except KeyError:
        return "/root"
