"""Power and activity of devices, allocated to an engine or not."""

from dataclasses import dataclass

import numpy as np

from pertoken.catalog.market import Accelerator
from pertoken.demo.simulator.arrivals import Floats
from pertoken.demo.simulator.course import Course
from pertoken.forecast.power import Device, busy_w, full_w, idle_w

COLD_C, HOT_C = 29.0, 50.0
"""Temperature at 0 W, and the increase from 0 W to the power limit."""


@dataclass(frozen=True, slots=True)
class DeviceReadings:
    """Readings of one device: means over each step."""

    util: Floats
    memory_bytes: Floats
    power_w: Floats
    sm_clock_mhz: Floats
    temperature_c: Floats
    sm_active: Floats
    sm_occupancy: Floats
    tensor_active: Floats
    dram_active: Floats
    nvlink_mib_s: Floats


def working(
    rng: np.random.Generator,
    course: Course,
    accelerator: Accelerator,
    allocated_bytes: float,
    ranks: int,
    clock_mhz: float,
    watts: float,
) -> DeviceReadings:
    """Return the readings of one device of an engine; `watts` is its power as a multiple of the curve."""
    limit = accelerator.tdp_w or 300.0
    curve = Device(
        np.array(idle_w(accelerator.name, limit)), np.array(limit), np.array(full_w(accelerator.name, limit))
    )
    at_work = np.minimum(limit, busy_w(curve, np.clip(course.gemm_share, 1e-4, 1.0)) * watts)
    busy = course.busy
    power = float(curve.idle_w) * 1.35 * (1 - busy) + at_work * busy
    power = np.minimum(limit, power * (1 + 0.015 * rng.standard_normal(len(busy))))
    jitter = 1 + 0.02 * rng.standard_normal(len(busy))
    tokens_s = (course.generated_tokens + course.prompt_tokens - course.cached_tokens) / course.step_s
    return DeviceReadings(
        util=np.clip(busy * 0.985 * jitter, 0, 1),
        memory_bytes=np.full(len(busy), allocated_bytes),
        power_w=power,
        sm_clock_mhz=clock_mhz * np.clip(1 - 0.12 * np.maximum(0.0, power / limit - 0.85) / 0.15, 0.6, 1),
        temperature_c=COLD_C + HOT_C * power / limit,
        sm_active=np.clip(busy * (0.55 + 0.4 * course.memory_share) * jitter, 0, 1),
        sm_occupancy=np.clip(busy * 0.28 * jitter, 0, 1),
        tensor_active=np.clip(busy * course.gemm_share * jitter, 0, 1),
        dram_active=np.clip(busy * course.memory_share * jitter, 0, 1),
        nvlink_mib_s=tokens_s * (0.05 if ranks > 1 else 0.0),
    )


def idling(rng: np.random.Generator, steps: int, accelerator: Accelerator, clock_mhz: float) -> DeviceReadings:
    """Return the readings of an unallocated device."""
    limit = accelerator.tdp_w or 300.0
    power = idle_w(accelerator.name, limit) * (1 + 0.01 * rng.standard_normal(steps))
    nothing = np.zeros(steps)
    return DeviceReadings(
        util=nothing,
        memory_bytes=np.full(steps, 6.1e8),
        power_w=power,
        sm_clock_mhz=np.full(steps, 0.18 * clock_mhz),
        temperature_c=COLD_C + HOT_C * power / limit,
        sm_active=nothing,
        sm_occupancy=nothing,
        tensor_active=nothing,
        dram_active=nothing,
        nvlink_mib_s=nothing,
    )
