"""Our words for what engines tell: one table that adapters map onto, rows are made from and the docs list."""

from collections.abc import Mapping

SAMPLE: Mapping[str, str] = {
    "prompt_tokens": "tokens of the prompts, cached ones included",
    "cached_tokens": "prompt tokens taken from the prefix cache",
    "computed_tokens": "prompt tokens that were computed: prompt minus cached",
    "generated_tokens": "tokens generated",
    "requests_finished": "requests that ended, as far as the engine counts them",
    "preemptions": "requests put back to the queue for want of KV cache",
}
"""Counters that are columns of `deployment_sample`."""

COUNTED: Mapping[str, str] = {
    "requests_failed": "requests refused, aborted or failed",
    "prefix_queries": "tokens looked up in the prefix cache",
    "prefix_hits": "tokens found there",
    "spec_drafts": "speculative drafts made",
    "spec_draft_tokens": "tokens in them",
    "spec_accepted_tokens": "tokens of them that were accepted",
    "gflop_per_gpu": "10^9 FLOPs of one GPU as the engine estimates them, summed over data-parallel ranks",
    "read_mb_per_gpu": "10^6 bytes read from the memory of one GPU, likewise",
    "write_mb_per_gpu": "10^6 bytes written to it, likewise",
    "asleep_ms": "time during which the engine slept, its weights not ready",
}
"""Counters that are metrics of `engine_counter_sample`, beside `WORD{reason="..."}` of requests."""

TIME: Mapping[str, str] = {
    "engine_ms": "time in which the engine computed, milliseconds",
    "prefill_ms": "time of requests in prefill, milliseconds; requests that run together overlap",
    "decode_ms": "time of requests in decode, milliseconds; requests that run together overlap",
    "steps": "steps of the engine; each gives every running request a token, or more with speculation",
}
"""Counters from which busy time is computed (`agent.rows.busy`). They are not stored as samples."""

GAUGES: Mapping[str, str] = {
    "running": "requests in the running batch",
    "waiting": "requests in the queue",
    "kv_use": "share of the KV cache in use, 0 to 1",
    "awake": "1, or 0 while the engine sleeps",
    "requests_per_step": "mean number of requests in a step since the engine started",
}

HISTOGRAMS: Mapping[str, str] = {
    "ttft_s": "time to first token, seconds",
    "tpot_s": "time per output token after it, seconds",
    "e2e_s": "time from arrival to the last token, seconds",
    "prompt_len": "tokens of each prompt",
    "generated_len": "tokens generated for each request",
}
