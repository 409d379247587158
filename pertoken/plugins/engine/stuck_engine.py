"""Rule: restart an engine that occupies devices and has requests but generates no token."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.rule import Deployment, Evidence, Fleet, Proposal, Skip, option, propose, rule, skip


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the defaults are judgement (Sources, 3)."""

    observed_h: float = option(
        0.5,
        "minimum observed part of the last hour, hours, where its requests are not known",
        low=0.05,
        high=1,
    )
    device_busy: float = option(
        0.5, "share of time with kernels running at or above which its devices count as busy", low=0.01, high=1
    )


@rule("stuck-engine", window="1h")
def stuck_engine(seen: Evidence, now: Deployment, fleet: Fleet, options: Options) -> Iterator[Proposal | Skip]:
    """Restart a server that passes its health checks but has generated no token for its requests for five minutes.

    ## Why it saves
    After a failed collective or a dead rank a server may pass its health checks for days while no request ever ends.
    Its devices are paid for all that time, and clients wait. A restart makes it serve again.
    ## When it is wrong
    A server without requests, or one that was put to sleep on purpose, generates no tokens either and is not stuck. The
    same holds for a server that loads its weights or compiles, which ends within the hour. Save its log and stacks
    before you restart it (`py-spy dump`, `nvidia-smi`, kernel log for Xids): the cause may come back.
    ## How to apply
    Take it out of the load balancer, restart its service, container or pod, and send one request before you route
    clients to it again. Make the health check request a token, not a page.
    ## Sources
    1. vllm-project/vllm#2731, #39863 and #42897: health and metrics respond, requests run or wait, and no token comes
       until a restart. Users' reports.
    2. arXiv 2605.23918: a loaded server draws 26 to 66 W more per device than an empty one, whatever it does.
    3. Five minutes as in the list of troubles of the moment; where its requests are not known, half an hour of the last
       one observed, and half of the time busy. All are judgement.
    """
    asleep = seen.asleep.mean if seen.has("asleep") else 0.0
    planned = _planned_hours(now, fleet)
    if asleep > 0:
        yield skip("asleep", f"it slept for {asleep:.0%} of the time, on request")
        return
    if planned:
        yield skip("asleep", f"its schedule has {planned} hours of the week asleep or off: silence may be planned")
        return
    if seen.has("stuck_h") and seen.stuck_h.mean > 0:
        yield propose(now.restarted(), risk="availability", effort="medium")
        return
    tokens = seen.generated_tok_s.max + (seen.prompt_tok_s.max if seen.has("prompt_tok_s") else 0.0)
    observed_h = seen.observed_h.mean
    busy = seen.device_util.mean if _devices_are_its_own(now, fleet) and seen.has("device_util") else 0.0
    if tokens > 0:
        yield skip("serves", f"it served up to {tokens:,.1f} tokens/s")
    elif observed_h < options.observed_h:
        yield skip(
            "observed-briefly",
            f"it generated no token, but only {observed_h:.2f} of the required {options.observed_h:g} h were observed",
        )
    elif busy >= options.device_busy:
        yield propose(now.restarted(), risk="availability", effort="medium")
    elif seen.stuck_h.mean == 0:  # blocked where its requests are not measured
        yield skip(
            "nothing-asked",
            "it generated no token in the last hour, but 0 requests ran or waited: check whether it is needed at all",
        )


def _planned_hours(deployment: Deployment, fleet: Fleet) -> int:
    """Return in how many hours of the week a service of this deployment is scheduled to sleep or to be off."""
    names = {name for name, _ in deployment.serves}
    schedules = [service.schedule for service in fleet.services if service.name in names]
    return max((len(schedule.asleep | schedule.off) for schedule in schedules), default=0)


def _devices_are_its_own(present: Deployment, fleet: Fleet) -> bool:
    """Return whether it has accelerators for itself: only then is their utilization its own."""
    users = {
        deployment.deployment_id
        for device in present.device_ids
        for deployment in fleet.deployments_by_device.get(device, ())
    }
    shared = bool(users - {present.deployment_id})
    return present.accelerator is not None and bool(present.device_ids) and not shared
