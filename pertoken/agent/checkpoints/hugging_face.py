"""A model as a folder: `config.json` and safetensors files, as Hugging Face lays them out.

Names of fields are those of `transformers` configurations; a field known by several names is taken by the first.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pertoken.agent.checkpoints.bounded import FileRefused, read_json
from pertoken.agent.checkpoints.config_layers import cache_fields, first, layer_count
from pertoken.agent.checkpoints.experts import Experts, experts_of
from pertoken.agent.checkpoints.facts import Checkpoint, ShapeUnknown
from pertoken.agent.checkpoints.parameters import parameters
from pertoken.agent.checkpoints.safetensors_file import BITS, Tensor, read_tensors

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
    experts = Experts()
    try:
        experts = experts_of(text)
        if experts.count != 1:
            facts |= {"n_experts": experts.count, "n_experts_active": experts.active}
    except ShapeUnknown as error:
        experts = Experts(None, None)
        unknown.append(f"{error}")
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
    """Return the parameters in a tensor, of which packed integers hold several. Raises ShapeUnknown."""
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
    """Return what a `quantization_config` makes of the weights; None if it is not understood."""
    method = str(settings.get("quant_method", ""))
    if method == "fp8" and settings.get("weight_block_size"):
        return "fp8_block"
    if method in _FIXED:
        return _FIXED[method]
    if method == "modelopt":
        return {"FP8": "fp8", "NVFP4": "fp4", "W4A16_AWQ": "int4"}.get(str(settings.get("quant_algo")))
    if method == "bitsandbytes":
        return (
            "int4" if settings.get("load_in_4bit") is True else "int8" if settings.get("load_in_8bit") is True else None
        )
    if method == "compressed-tensors":
        groups = settings.get("config_groups")
        named = groups.values() if isinstance(groups, dict) else ()
        weights = [name.get("weights") for name in named if isinstance(name, dict)]
        sizes = {(_bits(weight), str(weight.get("type"))) if isinstance(weight, dict) else None for weight in weights}
        return _sized(*(sizes.pop() or (None, ""))) if len(sizes) == 1 else None
    if method in ("awq", "gptq", "auto_awq", "auto_gptq", "auto-round"):
        return _sized(settings.get("bits"), "int")
    return None


def _bits(weights: Mapping[str, object]) -> int | None:
    bits = weights.get("num_bits")
    return bits if isinstance(bits, int) else None


def _sized(bits: object, kind: str) -> str | None:
    return _SIZED.get((bits, kind)) if isinstance(bits, int) else None


def _only_dtype(tensors: Sequence[Tensor]) -> str | None:
    """Return the dtype of all matrices, if they have one."""
    dtypes = {tensor.dtype for tensor in tensors if len(tensor.shape) > 1}
    return DTYPES.get(dtypes.pop()) if len(dtypes) == 1 else None
