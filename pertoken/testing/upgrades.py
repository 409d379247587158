"""Typical situations in which engines got another version, or are of a line that gets none."""

from dataclasses import replace

from pertoken.evidence import Epoch
from pertoken.testing.builders import deployment, earlier, evidence, fleet
from pertoken.testing.load import CHAT, Load, regime_of, service_of
from pertoken.testing.regime import Regime, regime

STEADY = Load(
    2.0, 1200, 300, 0.12, 0.013, 0.6, cached_share=0.3, kv_use=0.15, preemptions=0, dram_active=0.45,
    tensor_active=0.25, device_util=0.8, power_w=430, device_memory=7.2e10,
)  # fmt: skip
"""Nothing waits and nothing is full."""


def _upgraded(name: str, meaning: str, *epochs: Epoch, versions: tuple[str, str] = ("0.32.0", "0.32.0")) -> Regime:
    """Return two replicas of an 8B that serve at some load after one or both got another engine version."""
    like = deployment("Llama-3.1-8B", weight_dtype="fp8", enable_prefix_caching=True)
    present = service_of(STEADY, 2, like)
    deployments = tuple(
        replace(deployment, engine_version=version)
        for deployment, version in zip(present.deployments, versions, strict=True)
    )
    measured = evidence(*epochs, **dict(STEADY.evidence.items()))
    return regime(fleet(replace(present, deployments=deployments)), {CHAT: measured}, name=name, meaning=meaning)


def upgraded_dearer() -> Regime:
    """Return both replicas on a newer version that costs more."""
    meaning = "Both replicas got a newer engine a week ago; at like load a token takes a third more device time since."
    return _upgraded("upgraded-dearer", meaning, earlier("0.31.0", (1.28, 1.33, 1.38)))


def upgraded_other_load() -> Regime:
    """Return both replicas on a newer version, under another load than before."""
    meaning = "Both replicas got a newer engine a week ago, and another load since: no hours of the two are alike."
    return _upgraded("upgraded-other-load", meaning, earlier("0.31.0"))


def upgraded_one() -> Regime:
    """Return one of two replicas on a newer version that costs less."""
    meaning = "One of two replicas got a newer engine a week ago; at like load it takes a fifth less device time since."
    before = replace(earlier("0.31.0", (0.77, 0.8, 0.83)), deployment_id=1)
    return _upgraded("upgraded-one", meaning, before, versions=("0.32.0", "0.31.0"))


def unmaintained() -> Regime:
    """Return a replica of an engine that gets no new features."""
    load = replace(STEADY, device_util=0.7)
    unknown = dict.fromkeys(("max_num_batched_tokens", "enable_chunked_prefill", "enforce_eager"))
    like = deployment(
        "Llama-3.1-8B", engine="tgi", engine_version="3.3.7", gpu_memory_utilization=None,
        enable_prefix_caching=None, **unknown,
    )  # fmt: skip
    meaning = "A replica of an engine that its makers only maintain; its page has no KV gauge and no prefix counters."
    return regime_of("unmaintained", meaning, load, fleet(service_of(load, 1, like)))
