"""Rule: go back to the engine version that cost less per token."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import DOCTOR, interval, is_newer, judged, percent
from pertoken.rule import Deployment, Epoch, Evidence, Proposal, Service, Skip, option, propose, rule, skip


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the default is judgement (Sources, 4)."""

    dearer: float = option(0.05, "minimum increase of device time per token since the upgrade", low=0.0, high=10.0)


@rule("pin-engine")
def pin_engine(seen: Evidence, service: Service, options: Options) -> Iterator[Proposal | Skip]:
    """Return to the engine version that needed less device time per token, and pin it.

    ## Why it saves
    New versions can regress: a changed default, a kernel that is slower on this device, a scheduler that batches less.
    Where this deployment's own history shows that a token took less device time before the upgrade at like load, the
    earlier version serves the same load with fewer devices.
    ## When it is wrong
    Another flag, driver or kind of device that changed at the same time may be the cause: the rule refuses then. It
    also refuses where load, lengths or cache hits differed. The newer version may contain fixes that you need,
    including security fixes: read its release notes, and look for a flag that restores the old behaviour before you
    stay on an old version.
    ## How to apply
    Install the named version, or set the image's tag to it, and restart one replica. Compare it for some days, then pin
    the version for all replicas. vLLM: `pip install vllm==VERSION`, image `vllm/vllm-openai:vVERSION`. SGLang: `pip
    install sglang==VERSION`, image `lmsysorg/sglang:vVERSION`.
    ## Sources
    1. Your own telemetry: device time per token in hours matched by hour of the week, load, mix and cache hits.
    2. Users report two to five times lower throughput between minor versions of vLLM, in its issue tracker.
    3. Abadie and Imbens, J. Bus. Econ. Stat. 29, 2011: matching, corrected for the load differences that remain.
    4. The minimum increase of 5 % is judgement: below it, going back is not worth a restart.
    """
    versions = {deployment.engine_version for deployment in service.deployments}
    if None in versions:
        yield skip(
            "version-unknown", f"the engine version of its {len(service.deployments)} replicas is not known: {DOCTOR}"
        )
        return
    cheaper: dict[int, Epoch] = {}
    refused: dict[str, str] = {}
    for replica in service.deployments:
        for epoch in judged(epoch for epoch in seen.epochs if epoch.deployment_id == replica.deployment_id):
            refusal = _refusal(epoch, replica, options.dearer)
            if refusal is not None:
                refused.setdefault(refusal.code, refusal.reason)
            elif replica.deployment_id not in cheaper or _ratio(epoch) > _ratio(cheaper[replica.deployment_id]):
                cheaper[replica.deployment_id] = epoch
    if cheaper:
        yield from _proposals(service, cheaper, versions)
        return
    for code, reason in refused.items():
        yield skip(code, reason)
    if not refused:
        yield skip("one-version", "it ran 1 engine version in the recorded part of the last eight weeks")


def _proposals(service: Service, cheaper: dict[int, Epoch], versions: set[str | None]) -> Iterator[Proposal]:
    """Yield one change of all replicas if they run one version, else one for each replica with a cheaper epoch."""
    if len(versions) == 1:
        epoch = max(cheaper.values(), key=_ratio)
        pinned = service.but(engine_version=epoch.engine_version)
        yield propose(pinned.expecting(*_expected(epoch)), risk="availability", effort="medium")
        return
    for replica in service.deployments:
        if (cheaper_epoch := cheaper.get(replica.deployment_id)) is not None:
            yield propose(
                replica.but(engine_version=cheaper_epoch.engine_version).expecting(*_expected(cheaper_epoch)),
                risk="availability",
                effort="medium",
            )


def _ratio(epoch: Epoch) -> float:
    return epoch.present.ratio[1] if epoch.present.ratio is not None else 0.0


def _expected(epoch: Epoch) -> tuple[float, float, float, str]:
    """Return tokens per device-second of an epoch over the present ones (low, likely, high), with the source."""
    assert epoch.present.ratio is not None
    return (*epoch.present.ratio, f"its own epoch of version {epoch.engine_version} at like load ({interval(epoch)})")


def _refusal(epoch: Epoch, replica: Deployment, min_increase: float) -> Skip | None:
    """Return why an earlier epoch supports no other version; None if it supports one."""
    version = epoch.engine_version
    if version == replica.engine_version:
        return skip("one-version", f"its earlier epochs ran {version}, too")
    if is_newer(version, replica.engine_version):
        return skip("newer-before", f"{version}, which ran before, is newer than {replica.engine_version}")
    others = [change for change in epoch.changed if change != "engine_version"]
    if others:
        return skip("more-changed", f"between {version} and {replica.engine_version} {', '.join(others)} also changed")
    ratio = epoch.present.ratio
    if ratio is None:
        code = epoch.present.code or "not-measured"
        return skip(code, f"{version} cannot be compared with {replica.engine_version}: {epoch.present.reason}")
    if ratio[0] <= 1 or ratio[1] < 1 + min_increase:
        figures = f"{percent(ratio[1])} device time per token than {version} at like load ({interval(epoch)})"
        return skip("not-dearer", f"{replica.engine_version} takes {figures}")
    return None
