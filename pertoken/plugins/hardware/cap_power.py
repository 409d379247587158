"""Rule: cap the power of devices that compute products near their limit."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.hardware.electricity import owned_devices
from pertoken.rule import Deployment, Evidence, Fleet, Market, Proposal, Skip, option, propose, rule, skip

MIN_W = 50
"""Lowest cap that is proposed."""


@dataclass(frozen=True)
class Options:
    """What a person may set; the defaults are judgement, within Sources 1 and 2."""

    near_limit: float = option(
        0.8, "power (p95) over the limit of the device from which a cap binds at all", low=0, high=1
    )
    cap_share: float = option(0.75, "cap over the limit of the device", low=0.4, high=0.99)
    site_w: float = option(0.0, "watts that the site's power budget leaves each device; 0 for no budget", low=0)
    products: float = option(
        0.3, "time of the tensor cores (p50) below which it is memory that steps wait on, not products", low=0, high=1
    )
    queue: float = option(1.0, "waiting requests (p95) from which it cannot be slowed", low=0)


@rule("cap-power")
def cap_power(
    seen: Evidence, now: Deployment, fleet: Fleet, market: Market, options: Options
) -> Iterator[Proposal | Skip]:
    """Cap the power of owned devices that compute products near their limit.

    ## Why it saves
    The last tenth of the clock takes far more than a tenth of the power: where prompts keep a device at its limit, a
    cap of three quarters costs little speed. A site with a power budget holds more devices under a cap.
    ## When it is wrong
    On rented devices it saves $0: the price includes the electricity. Decode waits on memory and stays far below any
    cap: lock the clocks instead. A service whose requests wait becomes slower. Of owned hardware electricity is 1 to
    3 % of the cost.
    ## How to apply
    As root, while the engine serves: `nvidia-smi -i UUID -pl WATTS`; undone with the default limit that
    `nvidia-smi -q -d POWER` shows. A reboot undoes it too. Other vendors: their own tool.
    ## Sources
    1. [M] "The Illusion of Power Capping in LLM Decode", arXiv 2605.11999 (H200): caps never bind in decode.
    2. [M] noonghunna/club-3090, RTX 3090 under 42 caps: the forecast's relation of power, clock and speed.
    3. [A] 0.7 kW at a PUE of 1.3 and $0.08 per kWh are $0.073 an hour.
    """
    device = owned_devices(now, fleet, market)
    if isinstance(device, Skip):
        yield device
        return
    limit_w = device.tdp_w or 0.0
    if now.power_cap_w is not None and now.power_cap_w < limit_w:
        yield skip("capped-already", f"its devices are capped at {now.power_cap_w} of {limit_w:.0f} W already")
        return
    power_w = seen.power_w.p95 / len(now.device_ids)
    over_budget = 0 < options.site_w < power_w
    refusal = None if over_budget else _why_not(seen, power_w, limit_w, options)
    if refusal:
        yield refusal
        return
    cap = max(MIN_W, int(options.site_w if over_budget else options.cap_share * limit_w))
    yield propose(now.but(power_cap_w=cap), risk="latency", effort="low", excludes=("lock-clocks",))


def _why_not(seen: Evidence, power_w: float, limit_w: float, options: Options) -> Skip | None:
    """Return why a cap that no site asks for saves nothing, or slows what has no time left."""
    if power_w < options.near_limit * limit_w:
        return skip(
            "cap-never-binds",
            f"a device draws {power_w:.0f} W (p95), below {options.near_limit:.0%} of its {limit_w:.0f} W: a cap would "
            "not bind",
        )
    if seen.tensor_active.p50 < options.products:
        return skip(
            "memory-bound",
            f"the tensor cores compute {seen.tensor_active.p50:.0%} of the time (p50), below {options.products:.0%}: "
            "steps wait on memory, where locked clocks save more",
        )
    if seen.waiting.p95 >= options.queue:
        reason = f"{seen.waiting.p95:.1f} requests wait (p95), {options.queue:g} or more: it cannot be slowed"
        return skip("requests-wait", reason)
    return None
