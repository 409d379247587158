"""Rule: schedule no replicas, or sleeping ones, in the hours of the week without requests."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import served_tok_s
from pertoken.rule import Evidence, Proposal, Schedule, Service, Skip, asleep, counted, off, option, propose, rule, skip

WEEK = 168
SLEEPS = ("vllm", "dynamo-vllm", "nim", "sglang", "dynamo-sglang", "llama.cpp", "ollama")
"""Engines that release device memory without a restart (Sources, 3 and 4)."""
PAID_ANYWAY = ("owned", "reserved")


@dataclass(frozen=True)
class Options:
    """Settings of the rule; `idle_share` is common practice (Sources, 1), the others are judgement."""

    idle_share: float = option(
        0.3, "minimum share of the hours of a week without requests for a schedule to pay", low=0, high=1
    )
    observed_h: float = option(150.0, "minimum observed hours: a week except gaps", low=0)
    quiet: float = option(
        0.25, "maximum tokens/s over those of the busiest hour for an hour with the fewest replicas", low=0, high=1
    )
    lead_h: int = option(
        1,
        "minimum whole hours at the end of each pause for starting again (or the measured start, if longer)",
        low=0,
        high=24,
    )


@rule("scale-to-zero", window="28d", series=("observed_h", "generated_tok_s", "prompt_tok_s", "load_s"))
def scale_to_zero(seen: Evidence, service: Service, options: Options) -> Iterator[Proposal | Skip]:
    """Turn a service off, or put it to sleep, in the hours of the week without requests.

    ## Why it saves
    A server without requests at night costs the same per hour. Hours in which its hosts are given back leave the bill.
    Hours in which it sleeps free its devices for other services.
    ## When it is wrong
    A single week may contain a holiday: look at several. A request in an off hour waits for the start, which takes
    minutes where the objective is a second. Instances that were given back may be unavailable in the morning. Owned or
    reserved instances cost the same while they are off. Idle power is a small part of the price: an idle device that
    stays rented saves next to nothing.
    ## How to apply
    Start with a schedule: a systemd timer (`OnCalendar=`) on the host, or a Kubernetes CronJob that scales to 0 and
    back, an hour before the first request. vLLM `--enable-sleep-mode` with `POST /sleep?level=1` and `POST /wake_up`;
    SGLang `--enable-memory-saver` with `/release_memory_occupation`; llama.cpp `--sleep-idle-seconds`; Ollama
    `OLLAMA_KEEP_ALIVE`. Scale on demand (KEDA, Knative, SkyServe) only where the start is within the TTFT objective.
    ## Sources
    1. (calculated) idle in more than 30 % of the hours; the saving is the share of hours, in whole hours.
    2. (measured) arXiv 2605.23918: a loaded device draws 26 to 66 W more than an empty one; only a released one saves
       dollars.
    3. (code) vLLM 0.32 sleep mode and its endpoints; llama.cpp `--sleep-idle-seconds`.
    4. (unverified) SGLang's memory saver and Ollama's keep-alive. Verify them in your version.
    """
    observed_h = seen.observed_h.mean
    if observed_h < options.observed_h:
        yield skip("observed-briefly", f"only {observed_h:.0f} of {options.observed_h:g} h were observed")
        return
    if service.schedule != Schedule():
        hours = len(service.schedule.off | service.schedule.asleep) + len(service.schedule.replicas)
        yield skip("scheduled", f"it already has a schedule for {hours} hours of the week")
        return
    rates = served_tok_s(seen)
    busiest = max((rate for rate in rates if rate is not None), default=0.0)
    if busiest <= 0:
        yield skip("no-load", f"it served 0 tokens in {observed_h:.0f} h: release or restart it first")
        return
    requests_per_s = service.demand.requests_by_hour_of_week
    silent = frozenset(hour for hour in range(WEEK) if rates[hour] == 0 and not requests_per_s[hour])
    lead_h = max(options.lead_h, math.ceil(seen.load_s.p95 / 3600) if seen.has("load_s") else 0)
    pauses = _without_lead(silent, lead_h)
    enough = options.idle_share * WEEK
    if len(pauses) >= enough and service.min_replicas <= 1:
        yield from _paused(service, pauses)
        return
    observed_rates = ((hour, rate) for hour, rate in enumerate(rates) if rate is not None)
    quiet = _without_lead(frozenset(hour for hour, rate in observed_rates if rate <= options.quiet * busiest), lead_h)
    fewest = max(1, service.min_replicas) + service.spare_replicas
    if len(quiet) < enough:
        yield skip(
            "served-most-hours",
            f"{len(silent)} of {WEEK} hours of the week had no requests, and {len(quiet)} had few: below "
            f"{options.idle_share:.0%} a schedule does not pay",
        )
    elif len(service.deployments) <= fewest:
        yield skip(
            "at-minimum", f"it has {counted(len(service.deployments), 'replica')} and keeps at least {fewest} of them"
        )
    else:
        few = Schedule(replicas=tuple((hour, fewest) for hour in sorted(quiet)))
        yield propose(service.scheduled(few), risk="availability", effort="medium")


def _without_lead(hours: frozenset[int], lead_h: int) -> frozenset[int]:
    """Return the hours without the last `lead_h` of each interval, in which the service starts again."""
    return frozenset(hour for hour in hours if all((hour + ahead) % WEEK in hours for ahead in range(1, lead_h + 1)))


def _paused(service: Service, hours: frozenset[int]) -> Iterator[Proposal | Skip]:
    engines = dict.fromkeys(deployment.engine for deployment in service.deployments)
    paid = [
        purchase
        for purchase in PAID_ANYWAY
        if any(replica.placement.purchase == purchase for replica in service.deployments)
    ]
    unable = [engine for engine in engines if engine not in SLEEPS]
    if not paid:
        yield propose(service.scheduled(off(hours)), risk="availability", effort="medium")
    if not unable:
        yield propose(service.scheduled(asleep(hours)), risk="latency", effort="low")
    elif paid:
        yield skip(
            "engine-cannot",
            f"{len(hours)} hours of the week have no requests, but its devices are {' and '.join(paid)} and "
            f"{', '.join(unable)} cannot release their memory to other services",
        )
