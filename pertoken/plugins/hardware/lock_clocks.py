"""Rule: lock lower SM clocks while decode waits on memory."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import owned_devices
from pertoken.rule import Deployment, Evidence, Fleet, Market, Proposal, Skip, option, propose, rule, skip

STEP_MHZ = 15
"""Step of the clocks of NVIDIA devices."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the defaults are judgement, within the measurements of Sources 1 and 2."""

    clock_share: float = option(0.7, "clock to lock over the highest observed one", low=0.3, high=1)
    below_limit: float = option(
        0.6, "power (p95) over the limit of the device at or above which decode does not wait on memory", low=0, high=1
    )
    memory_busy: float = option(
        0.5, "memory bandwidth used (p50) at or above which decode waits on memory", low=0, high=1
    )
    products: float = option(0.2, "tensor-core time (p50) above which a lower clock slows prefill", low=0, high=1)


@rule("lock-clocks")
def lock_clocks(
    seen: Evidence, now: Deployment, fleet: Fleet, market: Market, options: Options
) -> Iterator[Proposal | Skip]:
    """Lock lower SM clocks on owned devices while decode waits on memory.

    ## Why it saves
    Steps that wait on memory do not get faster with the SM clock, but SM power rises steeply with it. A lower clock
    saves up to a third of the energy of decode at nearly the same speed.
    ## When it is wrong
    On rented devices it saves $0: the price includes the electricity. Electricity is 1 to 3 % of the cost of owned
    hardware, so expect kilowatt-hours rather than dollars. Prefill needs the clock: the time to first token rises.
    ## How to apply
    As root, while the engine serves: `nvidia-smi -i UUID -lgc MHZ,MHZ`, undone by `nvidia-smi -i UUID -rgc`; a reboot
    undoes it too. `nvidia-smi -q -d SUPPORTED_CLOCKS` lists the clocks. AMD: `rocm-smi --setperfdeterminism MHZ`.
    ## Sources
    1. (measured) "The Illusion of Power Capping in LLM Decode", arXiv 2605.11999 (H200): decode draws 137 to 300 of 700
       W; a locked clock saves up to 32 % of its energy, a power cap nothing.
    2. (measured) arXiv 2501.08219: 42 % less energy at 1 to 6 % more latency at the lowest clocks.
    3. (code) NVIDIA NVML documentation: locked clocks on Volta and newer, as root, until the driver is loaded again.
    4. (calculated) 0.7 kW at a PUE of 1.3 and $0.08 per kWh are $0.073 an hour.
    """
    device = owned_devices(now, fleet, market)
    if isinstance(device, Skip):
        yield device
        return
    if now.sm_clock_mhz is not None:
        yield skip("clock-locked", f"its clocks are already locked at {now.sm_clock_mhz} MHz")
        return
    limit_w = now.power_cap_w or device.tdp_w or 0.0
    power_w = seen.power_w.p95 / len(now.device_ids)
    if power_w >= options.below_limit * limit_w:
        yield skip(
            "power-near-limit",
            f"a device draws {power_w:.0f} W (p95), at or above {options.below_limit:.0%} of its {limit_w:.0f} W: it "
            "needs the clock",
        )
        return
    memory, products = seen.dram_active.p50, seen.tensor_active.p50
    if memory < options.memory_busy or products > options.products:
        yield skip(
            "not-memory-bound",
            f"memory is {memory:.0%} busy and the tensor cores {products:.0%} (p50), not {options.memory_busy:.0%} or "
            f"more and {options.products:.0%} or less",
        )
        return
    highest = seen.sm_clock_mhz.max
    clock = int(options.clock_share * highest) // STEP_MHZ * STEP_MHZ
    if not 100 <= clock < highest:
        yield skip("clock-low", f"its clocks reach {highest:.0f} MHz: there is no lower one to lock")
        return
    yield propose(now.but(sm_clock_mhz=clock), risk="latency", effort="low", excludes=("cap-power",))
