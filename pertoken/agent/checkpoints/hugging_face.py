"""A model as a folder: `config.json` and safetensors files, as Hugging Face lays them out.

Names of fields are those of `transformers` configurations; a field known by several names is taken by the first.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pertoken.agent.checkpoints.bounded import FileRefused, read_json, whole
from pertoken.agent.checkpoints.parameters import parameters
from pertoken.agent.checkpoints.safetensors_file import BITS, Tensor, read_tensors

CONFIG_LIMIT = 4_000_000
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
_HEADS = ("num_attention_heads", "n_head")
_KV_HEADS = ("num_key_value_heads", "multi_query_group_num", "num_kv_heads")
_WIDTH = ("hidden_size", "n_embd")
_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
_EXPERTS_ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk")
_CACHES_EVERY_TOKEN = {"full_attention", "sliding_attention", "chunked_attention"}
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "BF16": "bf16", "F16": "fp16", "F32": "fp32"}
_FIXED = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "fp4", "nvfp4": "fp4"}
_SIZED = {(4, "int"): "int4", (8, "int"): "int8", (8, "float"): "fp8", (4, "float"): "fp4"}
_BITS = {"int4": 4, "fp4": 4, "int8": 8, "fp8": 8, "fp8_block": 8}
# Tensors beside the weights: scales, zero points and orders of quantized ones, and tables that are computed.
_BESIDE = re.compile(
    r"(scales?(_inv|_2)?|_scales|zeros|zero_point|g_idx|weight_shape|absmax|quant_map|quant_state\..*|inv_freq|SCB)$"
)
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")


def read_folder(folder: Path) -> tuple[dict[str, object], bool, str | None]:
    """Return (fields of `Model`, whether it is quantized, weight dtype) of the model in `folder`.

    Raises FileRefused for a broken file, OSError if there is no `config.json` that can be read.
    """
    config = read_json(folder / "config.json", CONFIG_LIMIT)
    if not isinstance(config, dict):
        raise FileRefused("config.json: not a configuration")
    text = next((config[name] for name in ("text_config", "llm_config") if isinstance(config.get(name), dict)), config)
    quantization = _quantization(folder, config, text)
    tensors = read_tensors(folder)
    if quantization is not None:
        dtype = _quantized_dtype(quantization)
    else:
        named = _first({**config, **text}, ("torch_dtype", "dtype"))
        dtype = DTYPES.get(str(named)) if named else _only_dtype(tensors or ())
    facts = {**_shape(text), **_parameters(text, tensors, quantization is not None, dtype)}
    return {name: value for name, value in facts.items() if value is not None}, quantization is not None, dtype


def _shape(text: Mapping[str, object]) -> dict[str, object]:
    n_experts = whole(_first(text, _EXPERTS))
    moe = n_experts is not None and n_experts > 1
    n_kv_heads, head_dim = _cached(text)
    return {
        "n_layers": whole(_first(text, _LAYERS)),
        "n_kv_heads": n_kv_heads,
        "head_dim": head_dim,
        "n_experts": n_experts if moe else None,
        "n_experts_active": whole(_first(text, _EXPERTS_ACTIVE)) if moe else None,
    }


def _cached(text: Mapping[str, object]) -> tuple[int | None, int | None]:
    """Return (KV heads, head size); unknown where only some layers keep keys and values of every token."""
    kinds = text.get("layer_types")
    hybrid = isinstance(kinds, list) and not all(str(kind) in _CACHES_EVERY_TOKEN for kind in kinds)
    if hybrid or "full_attention_interval" in text or "attn_layer_period" in text or "hybrid_override_pattern" in text:
        return None, None
    rank, rope = whole(text.get("kv_lora_rank")), whole(text.get("qk_rope_head_dim"))
    if rank is not None:
        # MLA keeps one compressed vector and the rotated part of the key, where others keep a key and a value.
        return (1, (rank + rope) // 2) if rope is not None and (rank + rope) % 2 == 0 else (None, None)
    heads, width = whole(_first(text, _HEADS)), whole(_first(text, _WIDTH))
    head_dim = whole(text.get("head_dim"))
    if head_dim is None and heads and width and width % heads == 0:
        head_dim = width // heads
    single = text.get("multi_query") is True and not text.get("new_decoder_architecture")
    return whole(_first(text, _KV_HEADS)) or (1 if single else heads), head_dim


def _parameters(
    text: Mapping[str, object], tensors: tuple[Tensor, ...] | None, quantized: bool, dtype: str | None
) -> dict[str, object]:
    """Return parameters a forward pass may use, and those it uses for one token; absent if a tensor is not
    understood."""
    if tensors is None:
        return parameters(text)
    layers, extra = whole(_first(text, _LAYERS)), whole(text.get("num_nextn_predict_layers"))
    total = routed = 0
    for tensor in tensors:
        layer = _LAYER.search(tensor.name)
        drafts = extra is not None and layers is not None and layer is not None and int(layer[1]) >= layers
        if drafts or _BESIDE.search(tensor.name):
            continue
        bits = BITS.get(tensor.dtype)
        packed = tensor.dtype[0] in "IU"
        if bits is None or tensor.dtype == "BOOL" or (packed and not quantized):
            return {}
        count = tensor.stored
        if packed:
            if dtype is None:
                return {}
            count = count * bits // _BITS[dtype]
        total += count
        routed += count if ".experts." in tensor.name else 0
    n, k = whole(_first(text, _EXPERTS)), whole(_first(text, _EXPERTS_ACTIVE))
    if n is None or n == 1:
        return {"params_total": total, "params_active": total}
    if not routed or k is None or k > n:
        return {"params_total": total}
    return {"params_total": total, "params_active": total - routed + routed * k // n}


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


def _first(config: Mapping[str, object], names: Sequence[str]) -> object:
    return next((config[name] for name in names if config.get(name) is not None), None)
