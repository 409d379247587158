"""Rule: serve with as many replicas as the load needs."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import alike, missed_objective
from pertoken.rule import Evidence, Proposal, Service, Skip, counted, option, propose, rule, skip


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the defaults are judgement, those on batches from Sources, 1."""

    idle_busy: float = option(
        0.3, "maximum busy share (p95) of replicas that count as idle, regardless of batch size", low=0, high=1
    )
    batch_room: float = option(
        0.25, "maximum running requests (p95) over the batch limit of nearly empty batches", low=0, high=1
    )
    kv_room: float = option(
        0.4, "KV cache in use (p95) at or above which the requests of another replica may not fit", low=0, high=1
    )
    queue: float = option(1.0, "waiting requests (p95) at or above which no replica can be spared", low=0)
    observed_h: float = option(20.0, "minimum observed hours, so that the busiest hour of a day is included", low=0)


@rule("scale-replicas")
def scale_replicas(seen: Evidence, service: Service, options: Options) -> Iterator[Proposal | Skip]:
    """Serve with the fewest replicas that sustain the load.

    ## Why it saves
    An idle replica costs as much as a busy one, and a step for two requests takes about as long as a step for twenty.
    The same requests in fewer, fuller batches free whole hosts.
    ## When it is wrong
    The window may have missed the busiest hour of the week. Replicas may exist for failures or for other zones: set
    `min_replicas` and `spare_replicas` in [services."NAME"]. Fuller batches make every token slightly slower.
    ## How to apply
    Drain one replica at a time, watch the latency, then give its host back. In Kubernetes: `replicas` of the workload,
    and the bounds of its autoscaler.
    ## Sources
    1. (calculated) Batch model of decode: below a quarter of the possible batch, and without a queue, a step reads the
       weights for too few requests. The thresholds are judgement.
    2. (vendor) caleta.io, one H100: $9.71 per million output tokens at batch 1, $0.34 at 32, $0.095 at 128.
    3. (measured) arXiv 2605.23918: an idle device draws little, so only a released instance lowers the bill.
    4. The rule does not choose the number of replicas: the forecast finds the fewest that keep the objectives at p95
       demand.
    """
    replicas = len(service.deployments)
    fewest = max(1, service.min_replicas) + service.spare_replicas
    if replicas <= fewest:
        spare = f", {service.spare_replicas} of them spare" if service.spare_replicas else ""
        yield skip("at-minimum", f"it has {counted(replicas, 'replica')} and keeps at least {fewest}{spare}")
        return
    if not alike(service):
        yield skip("replicas-differ", f"its {replicas} replicas differ in model, engine, device or role")
        return
    if refusal := _why_keep(seen, service, options):
        yield refusal
        return
    yield propose(service.resized(), risk="latency", effort="low", excludes=("route-requests",))


def _why_keep(seen: Evidence, service: Service, options: Options) -> Skip | None:
    observed_h, busy = seen.observed_h.mean, seen.busy.p95
    if observed_h < options.observed_h:
        return skip("observed-briefly", f"only {observed_h:.1f} of {options.observed_h:g} h were observed")
    if busy <= 0:
        return skip("no-load", "it was busy 0 % of the time (p95): a schedule or releasing it saves more")
    if missed := missed_objective(seen, service):
        return skip("slo-missed", missed)
    if seen.waiting.p95 >= options.queue:
        reason = f"{seen.waiting.p95:.1f} requests wait (p95), {options.queue:g} or more: none can be spared"
        return skip("requests-wait", reason)
    if busy <= options.idle_busy:
        return None
    limits = [deployment.max_num_seqs for deployment in service.deployments if deployment.max_num_seqs is not None]
    if len(limits) < len(service.deployments):
        return skip(
            "busy",
            f"its replicas are busy {busy:.0%} of the time (p95), more than {options.idle_busy:.0%}, and their "
            "batch limit is not known",
        )
    filled = seen.running.p95 / sum(limits)
    if filled > options.batch_room:
        return skip(
            "busy",
            f"its replicas are busy {busy:.0%} of the time (p95) and batches are {filled:.0%} full: above "
            f"{options.idle_busy:.0%} and {options.batch_room:.0%} none idles",
        )
    if seen.kv_use.p95 >= options.kv_room:
        return skip(
            "kv-cache-full",
            f"its KV caches are {seen.kv_use.p95:.0%} full (p95), at or above {options.kv_room:.0%}: the requests of "
            "another replica may not fit",
        )
    return None
