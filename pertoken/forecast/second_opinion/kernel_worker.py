"""Answers for operating points from NVIDIA's kernel-measured tables (PyPI package aiconfigurator), one JSON per line.

Run by path with the Python of any environment that has the package; it imports nothing else of pertoken, so that
environment needs nothing else. Reads one JSON object per line from standard input, the keyword arguments of
`estimate` below, and writes one per line: `{"tok_s": …, "batch": …, "version": …}` or `{"reason": …}`. Ends with its
standard input.
"""

import json
import logging
import os
import sys
from functools import cache
from typing import Any, TextIO

MOST = 2048
"""Sequences tried first where as many as fit shall run: TensorRT-LLM's default limit, the highest of the engines."""
MEMORY_SHARE = 0.9
"""Of device memory, as the engines take by default."""


class DoesNotFit(Exception):
    """The sequences do not fit into the memory of the devices."""


@cache
def _version(system: str, engine: str) -> str:
    """Newest measured tables of this system and engine; finding them reads hundreds of YAML files, so once."""
    from aiconfigurator_core.sdk.perf_database import get_latest_database_version

    version = get_latest_database_version(system=system, backend=engine)
    if version is None:
        raise ValueError(f"no kernel tables for {engine} on {system}")
    return str(version)


def _tok_s(batch: int, question: dict[str, Any]) -> float:
    from aiconfigurator.cli.api import cli_estimate

    try:
        estimate = cli_estimate(batch_size=batch, free_gpu_memory_fraction=MEMORY_SHARE, **question)
    except RuntimeError as error:
        if str(error).startswith("OOM"):
            raise DoesNotFit(str(error)) from error
        raise
    if estimate.kv_cache_warning:
        raise DoesNotFit(estimate.kv_cache_warning)
    return float(estimate.tokens_per_second)


def estimate(
    *,
    model: str,
    system: str,
    engine: str,
    tp: int,
    pp: int,
    attention_dp: int,
    ep: int,
    batch: float | None,
    prompt_len: float,
    generated_len: float,
    modes: dict[str, str],
) -> dict[str, Any]:
    """Output tokens/s of all ranks with `batch` requests there, None for as many as fit; more than fit do not run.

    `modes`: precision of gemm, moe and kvcache as the package names them; one not given follows the checkpoint.
    """
    version = _version(system, engine)
    question = {
        "model_path": model,
        "system_name": system,
        "backend_name": engine,
        "backend_version": version,
        "isl": max(1, round(prompt_len)),
        "osl": max(2, round(generated_len)),
        "tp_size": tp,
        "pp_size": pp,
        "attention_dp_size": attention_dp,
        "moe_tp_size": max(1, tp * attention_dp // ep),
        "moe_ep_size": ep,
        **{f"{part}_quant_mode": mode for part, mode in modes.items()},
    }
    asked = MOST if batch is None else max(1, round(batch / attention_dp))
    try:
        return {"tok_s": _tok_s(asked, question), "batch": asked * attention_dp, "version": version}
    except DoesNotFit:
        fits, tok_s = _most(asked, question)
    return {"tok_s": tok_s, "batch": fits * attention_dp, "version": version}


def _most(too_many: int, question: dict[str, Any]) -> tuple[int, float]:
    """Return the maximum of sequences that fit, within a tenth, and their tokens/s. Raises DoesNotFit if none fits."""
    fits, tok_s = 1, _tok_s(1, question)
    while too_many > 1.1 * fits + 1:
        middle = max(fits + 1, round((fits * too_many) ** 0.5))
        try:
            fits, tok_s = middle, _tok_s(middle, question)
        except DoesNotFit:
            too_many = middle
    return fits, tok_s


def serve(questions: TextIO, answers: TextIO) -> None:
    """Answer every question until they end."""
    for line in questions:
        try:
            answer = estimate(**json.loads(line))
        except Exception as error:  # the package raises its own and plain ones alike; all mean: no answer here
            answer = {"reason": (str(error).strip() or type(error).__name__).splitlines()[0][:160]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    # The package prints notices to standard output; answers keep the real one to themselves.
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    sys.stdout = sys.stderr
    logging.disable(logging.CRITICAL)
    serve(sys.stdin, replies)
