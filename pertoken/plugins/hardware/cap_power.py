"""Rule: cap the power of devices that compute near their power limit."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import owned_devices
from pertoken.rule import Deployment, Evidence, Fleet, Market, Proposal, Skip, option, propose, rule, skip

MIN_W = 50
"""Lowest proposed cap, watts."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the defaults are judgement, within Sources 1 and 2."""

    near_limit: float = option(
        0.8, "power (p95) over the limit of the device at or above which a cap has an effect", low=0, high=1
    )
    cap_share: float = option(0.75, "cap over the limit of the device", low=0.4, high=0.99)
    site_w: float = option(0.0, "watts per device within the site's power budget; 0 for no budget", low=0)
    products: float = option(
        0.3, "tensor-core time (p50) below which steps wait on memory rather than on GEMM", low=0, high=1
    )
    queue: float = option(1.0, "waiting requests (p95) at or above which it must not become slower", low=0)


@rule("cap-power")
def cap_power(
    seen: Evidence, now: Deployment, fleet: Fleet, market: Market, options: Options
) -> Iterator[Proposal | Skip]:
    """Cap the power of owned devices that compute near their power limit.

    ## Why it saves
    The last tenth of the clock takes far more than a tenth of the power: where prefill keeps a device at its limit, a
    cap of three quarters costs little speed. A site with a power budget can run more devices under a cap.
    ## When it is wrong
    On rented devices it saves $0: the price includes the electricity. Decode waits on memory and stays far below any
    cap: lock the clocks instead. A service with a queue becomes slower. Electricity is 1 to 3 % of the cost of owned
    hardware.
    ## How to apply
    As root, while the engine serves: `nvidia-smi -i UUID -pl WATTS`. Undo it with the default limit that `nvidia-smi -q
    -d POWER` shows; a reboot undoes it too. Other vendors: use their own tool.
    ## Sources
    1. (measured) "The Illusion of Power Capping in LLM Decode", arXiv 2605.11999 (H200): caps never bind in decode.
    2. (measured) noonghunna/club-3090, RTX 3090 under 42 caps: the relation of power, clock and speed in the forecast.
    3. (calculated) 0.7 kW at a PUE of 1.3 and $0.08 per kWh are $0.073 an hour.
    """
    device = owned_devices(now, fleet, market)
    if isinstance(device, Skip):
        yield device
        return
    limit_w = device.tdp_w or 0.0
    if now.power_cap_w is not None and now.power_cap_w < limit_w:
        yield skip("capped-already", f"its devices are already capped at {now.power_cap_w} of {limit_w:.0f} W")
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
    """Return why a cap without a site budget saves nothing or is too slow; None if it may be proposed."""
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
        reason = f"{seen.waiting.p95:.1f} requests wait (p95), {options.queue:g} or more: it must not become slower"
        return skip("requests-wait", reason)
    return None
