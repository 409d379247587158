"""Rule: restart an engine that holds its devices and requests but gives no token."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.rule import Deployment, Evidence, Fleet, Proposal, Skip, option, propose, rule, skip


@dataclass(frozen=True)
class Options:
    """What a person may set; the defaults are judgement (Sources, 3)."""

    observed_h: float = option(0.9, "of the last hour, what must have been observed", low=0.05, high=1)
    device_busy: float = option(
        0.5, "time in which its devices ran kernels from which they count as busy", low=0.01, high=1
    )


@rule("stuck-engine", window="1h")
def stuck_engine(seen: Evidence, now: Deployment, fleet: Fleet, options: Options) -> Iterator[Proposal | Skip]:
    """Restart a server that answers its health checks but gives no tokens for the requests that it holds.

    ## Why it saves
    After a failed collective or a dead rank a server may answer its health checks for days while no request ever ends.
    Its devices are paid for all that time, and clients wait. A restart serves them again.
    ## When it is wrong
    A server that nobody asks, or that was put to sleep on purpose, gives no tokens either: it is not stuck. Neither is
    one that loads its weights or compiles, which ends within the hour. Keep its log and stacks before you restart it
    (`py-spy dump`, `nvidia-smi`, kernel log for Xids): the cause comes back.
    ## How to apply
    Take it out of the load balancer, restart its service, container or pod, and send one request before you let clients
    back in. Let the health check ask for a token, not for a page.
    ## Sources
    1. vllm-project/vllm#2731, #39863 and #42897: health and metrics answer, requests run or wait, and no token comes
       until a restart. Users' reports.
    2. arXiv 2605.23918: a loaded server draws 26 to 66 W more per device than an empty one, whatever it does.
    3. One hour, nine tenths of it observed, and half of the time busy are judgement.
    """
    asleep = seen.asleep.mean if seen.has("asleep") else 0.0
    planned = _planned_hours(now, fleet)
    if asleep > 0:
        yield skip("asleep", f"it slept for {asleep:.0%} of the time, as somebody asked it to")
        return
    if planned:
        yield skip("asleep", f"it is to sleep or be off in {planned} hours of the week: silence may be planned")
        return
    tokens = seen.generated_tok_s.max + (seen.prompt_tok_s.max if seen.has("prompt_tok_s") else 0.0)
    observed_h = seen.observed_h.mean
    if tokens > 0:
        yield skip("serves", f"it served up to {tokens:.3g} tokens/s")
        return
    if observed_h < options.observed_h:
        yield skip(
            "observed-briefly",
            f"it gave no token, but only {observed_h:.2f} h were observed, of {options.observed_h:g} h that are needed",
        )
        return
    held = max((getattr(seen, name).max for name in ("running", "waiting") if seen.has(name)), default=0.0)
    busy = seen.device_util.mean if _devices_are_its_own(now, fleet) and seen.has("device_util") else 0.0
    if held >= 1 or busy >= options.device_busy:
        yield propose(now.restarted(), risk="availability", effort="medium")
    elif seen.waiting.max < 1:  # blocked where nobody can see whether requests wait
        yield skip(
            "nothing-asked",
            "it gave no token in the last hour, but 0 requests ran or waited: see whether it is needed at all",
        )


def _planned_hours(now: Deployment, fleet: Fleet) -> int:
    """Return the hours of the week in which a service of it is to sleep or be off."""
    names = {name for name, _ in now.serves}
    schedules = [each.schedule for each in fleet.services if each.name in names]
    return max((len(each.asleep | each.off) for each in schedules), default=0)


def _devices_are_its_own(now: Deployment, fleet: Fleet) -> bool:
    """Return whether it runs on accelerators that no other deployment uses: only then is their work its own."""
    holders = {each.deployment_id for device in now.device_ids for each in fleet.deployments_by_device.get(device, ())}
    shared = bool(holders - {now.deployment_id})
    return now.accelerator is not None and bool(now.device_ids) and not shared
