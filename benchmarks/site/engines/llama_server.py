"""llama.cpp (xllamacpp) as a server with the settings that a site changes: `... PORT SETTINGS`, ends with its input."""

import json
import os
import sys

from benchmarks.site.engines.server import ALIAS, ServerSettings

GGML_TYPES = {"fp16": 1, "int8": 8}
"""Of the cache, as ggml numbers them: F16 and Q8_0."""


def serve(port: int, settings: ServerSettings) -> None:
    """Be the server until standard input ends."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings.model
    params.model_alias = {ALIAS}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = settings.slots
    params.n_ctx = settings.context * settings.slots
    params.kv_unified = False
    params.endpoint_metrics = True
    params.warmup = True
    params.cache_ram_mib = 0
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED  # a Q8_0 cache needs it
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type(GGML_TYPES[settings.kv_dtype])
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads
    server = xllamacpp.Server(params)
    sys.stdin.read()
    del server
    os._exit(0)


if __name__ == "__main__":
    serve(int(sys.argv[1]), ServerSettings(**json.loads(sys.argv[2])))
