"""Deployments that could serve a model: every accelerator, number of tensor-parallel ranks, and weight format."""

from collections.abc import Iterable, Iterator

from pertoken.catalog.engine_lines import runs
from pertoken.catalog.market import Accelerator, Market
from pertoken.forecast.formats import defaults
from pertoken.savings.size.workload import Workload
from pertoken.state.deployment import Deployment, Placement
from pertoken.state.model import WEIGHT_BYTES, Model

ENGINE = "vllm"
"""Engine that is sized: it runs on NVIDIA and AMD devices, and the forecast was fitted on it."""
MAX_BATCHED_TOKENS = 8192
"""Prompt tokens of one engine step. Source: vLLM 0.32 `engine/arg_utils.py`, its default on devices of 70 GiB or more;
it is stated in the proposed flags, so that smaller devices use it too."""
FORMATS = tuple(WEIGHT_BYTES)
"""Names of weight formats that can be asked for."""


def formats(accelerator: Accelerator) -> tuple[str, ...]:
    """Return the weight formats worth sizing on an accelerator, 16-bit first.

    8-bit formats only where its matrix units compute in them; INT4 everywhere, since it is unpacked to 16 bits.
    `size` leaves out those that the engine does not run.
    """
    dtypes = ["bf16" if runs(ENGINE, "bf16", accelerator.arch) else "fp16"]
    if accelerator.fp8_flops is not None:
        dtypes.append("fp8")
    elif accelerator.int8_flops is not None and accelerator.int8_flops > accelerator.fp16_flops:
        dtypes.append("int8")
    dtypes.append("int4")
    if accelerator.fp4_flops is not None:
        dtypes.append("fp4")
    return tuple(dtypes)


def layouts(
    model: Model, dtypes: Iterable[str] | None, accelerators: Iterable[Accelerator], workload: Workload, market: Market
) -> Iterator[Deployment]:
    """Yield deployments of one replica each: layouts whose memory cannot hold the weights are left out.

    `dtypes`: weight formats to use; None for those of `formats`.
    """
    wanted = None if dtypes is None else tuple(dtypes)
    for accelerator in accelerators:
        for dtype in formats(accelerator) if wanted is None else wanted:
            for ranks in market.ranks(model, dtype, accelerator):
                yield Deployment(
                    model,
                    ENGINE,
                    tp=ranks,
                    pp=1,
                    dp=1,
                    weight_dtype=dtype,
                    max_num_seqs=defaults().max_num_seqs,
                    max_num_batched_tokens=MAX_BATCHED_TOKENS,
                    max_model_len=workload.longest,
                    gpu_memory_utilization=defaults().gpu_memory_utilization,
                    enable_prefix_caching=workload.cached_share > 0,
                    placement=Placement(accelerator=accelerator.name),
                )
