"""Formats that weights and the KV cache may be stored in on a device."""

from pertoken.rule import Accelerator

SIXTEEN_BIT_OR_MORE = ("bf16", "fp16", "fp32")
FILE_FORMATS = ("int8", "int4")
"""Formats of GGUF files."""
FP8_KV = ("vllm", "dynamo-vllm", "nim", "sglang", "dynamo-sglang", "trtllm", "tgi")
"""Engines that store the cache in FP8, by their flags in the catalog."""
FP8_KV_VENDORS = {"tgi": ("nvidia",)}
"""Vendors on whose devices an engine supports an FP8 cache, where these are not `BOTH`."""
BOTH = ("nvidia", "amd")


def smaller_formats(engine: str, device: Accelerator, *, few: bool) -> list[str]:
    """Return the formats of fewer bits that an engine gains by on a device, 4-bit integers only for `few` requests."""
    if engine == "llama.cpp":
        return list(FILE_FORMATS)
    formats = []
    if device.fp8_flops is not None:
        formats.append("fp8")
    elif device.int8_flops is not None and device.int8_flops > device.fp16_flops:
        formats.append("int8")
    if device.fp4_flops is not None:
        formats.append("fp4")
    if few:
        formats.append("int4")
    return formats


def stores_kv_in_fp8(engine: str, device: Accelerator) -> bool:
    """Return whether the engine stores the KV cache in FP8 on a device that computes in it."""
    return engine in FP8_KV and device.fp8_flops is not None and device.vendor in FP8_KV_VENDORS.get(engine, BOTH)
