"""Metrics that probes read of a device, with their columns, plausible ranges and roll-ups."""

from dataclasses import dataclass
from enum import Enum

from pertoken.units import RATIO


class RollUp(Enum):
    """Ways in which roll-ups keep the values of ticks."""

    GAUGE = "sum and number of samples"
    COUNTER = "sum of what a counter rose by"
    NOTHING = "nothing: the value is kept as long as ticks are"


@dataclass(frozen=True, slots=True)
class Plausible:
    """The range in which a value is believed, both ends included, in the unit of the reading; outside it is unknown."""

    low: int
    high: int
    unit: str
    source: str
    """Why these limits."""
    limited_by: str | None = None
    """Another value of the same reading that this one cannot exceed..."""
    times: int = 1
    """...this many times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMetric:
    """A value of a device: what a probe reads, how it is stored, what becomes of it."""

    stored: str
    """Column of `device_sample`, which names the scale of the stored integer."""
    label: str
    unit: str
    """In which people and rules see it."""
    per_unit: float = 1
    """Stored value of one unit."""
    plausible: Plausible
    roll_up: RollUp = RollUp.GAUGE
    read: str | None = None
    """Name of the value in a reading where it is not `stored`: of a counter, the absolute count."""
    series: str | None = None
    """Evidence series that it is, without scale; of a gauge only."""
    meaning: str = ""
    """Of that series."""
    summed: bool = False
    """Whether the values of several devices add up; else their mean is taken."""
    remedy: str = ""
    """How to have it measured where it is missing."""
    heading: str | None = None
    """Of a share that tables and the plot of activity show: its short label there."""
    since: str | None = None
    """Telemetry revision that added its columns, such as `0010`; they come last then. None: the first one."""

    @property
    def reading(self) -> str:
        """Name of the value in a reading."""
        return self.read or self.stored


MAX_MEMORY_BYTES = 2**50
MEMORY_SOURCE = "1 PiB: sixteen times the largest host; an hour of such values at 1 s still adds up in 64 bits"
MAX_POWER_MW = 10_000_000
"""10 kW: four times the largest module that is sold (GB200: 2.7 kW)."""
POWER_LIMITS = 3
"""Times the power limit that a power, or energy over its time, is believed at most: spikes reach about twice."""
POWER_SOURCE = "10 kW: four times the largest module that is sold (GB200: 2.7 kW)"
_POWER = Plausible(0, MAX_POWER_MW, "mW", POWER_SOURCE, "power_limit_mw", POWER_LIMITS)
_HUNDREDTHS = "hundredths of a percent"
_OF_TIME = Plausible(0, RATIO, _HUNDREDTHS, "a share of time is between 0 and 100 %")
_OF_COUNTERS = Plausible(0, 10_100, _HUNDREDTHS, "101 %: two hardware counters that are not read at one instant")
_LINK = Plausible(0, 10**7, "MiB/s", "about 10 TB/s: ten times NVLink 5 in one direction")
_CLOCK = "three times the fastest that is sold"
_REASONS = "NVML defines 9 bits (nvml.h 12.9); 16 leave room for more"
_ERRORS = Plausible(0, 10**9, "errors", "a billion: no memory with more errors serves")
READABLE_REMEDY = "needs a readable accelerator: `pertoken doctor` names the missing driver or right"
ACTIVITY_REMEDY = "needs an NVIDIA GPU of Hopper or newer (GPM), not shared by virtual machines"


def _activity(stored: str, label: str, series: str, meaning: str, heading: str | None = None) -> DeviceMetric:
    return DeviceMetric(
        stored=stored,
        label=label,
        unit="ratio",
        per_unit=1e4,
        plausible=_OF_COUNTERS,
        series=series,
        meaning=meaning,
        remedy=ACTIVITY_REMEDY,
        heading=heading,
    )


def _of_ticks(stored: str, label: str, unit: str, per_unit: float, plausible: Plausible) -> DeviceMetric:
    return DeviceMetric(
        stored=stored, label=label, unit=unit, per_unit=per_unit, plausible=plausible, roll_up=RollUp.NOTHING
    )


DEVICE = (
    DeviceMetric(
        stored="util_1e4",
        label="device utilization",
        unit="ratio",
        per_unit=1e4,
        plausible=_OF_TIME,
        series="device_util",
        heading="util",
        meaning="time the driver saw a kernel running (not how full it was)",
        remedy=READABLE_REMEDY,
    ),
    DeviceMetric(
        stored="memory_used_bytes",
        label="device memory in use",
        unit="bytes",
        plausible=Plausible(0, MAX_MEMORY_BYTES, "bytes", MEMORY_SOURCE, "memory_bytes"),
        series="device_memory",
        meaning="device memory in use, all devices together",
        summed=True,
        remedy=READABLE_REMEDY,
    ),
    DeviceMetric(
        stored="power_mw",
        label="power",
        unit="W",
        per_unit=1e3,
        plausible=_POWER,
        series="power_w",
        meaning="power drawn by the devices together",
        summed=True,
        remedy=READABLE_REMEDY,
    ),
    _of_ticks("power_instant_mw", "instant power", "W", 1e3, _POWER),
    _of_ticks("power_module_mw", "module power", "W", 1e3, Plausible(0, MAX_POWER_MW, "mW", POWER_SOURCE)),
    _of_ticks("power_memory_mw", "memory power", "W", 1e3, _POWER),
    DeviceMetric(
        stored="energy_counter_mj",
        read="energy_mj",
        label="energy",
        unit="J",
        per_unit=1e3,
        plausible=Plausible(0, 2**53, "mJ", "28 years at 10 kW"),
        roll_up=RollUp.COUNTER,
    ),
    DeviceMetric(
        stored="sm_clock_mhz",
        label="SM clock",
        unit="MHz",
        plausible=Plausible(0, 10_000, "MHz", _CLOCK),
        series="sm_clock_mhz",
        meaning="clock of the SMs",
        remedy=READABLE_REMEDY,
    ),
    _of_ticks("memory_clock_mhz", "memory clock", "MHz", 1, Plausible(0, 50_000, "MHz", _CLOCK)),
    DeviceMetric(
        stored="temperature_c",
        label="temperature",
        unit="°C",
        plausible=Plausible(0, 150, "°C", "silicon is shut down below 130 °C"),
        series="temperature_c",
        meaning="temperature of the devices",
        remedy=READABLE_REMEDY,
    ),
    _of_ticks("throttle_reasons", "throttle reasons", "", 1, Plausible(0, 2**16 - 1, "", _REASONS)),
    _activity("sm_active_1e4", "SM active", "sm_active", "SMs that were busy, of all the devices' SMs", "SM"),
    _activity("sm_occupancy_1e4", "SM occupancy", "sm_occupancy", "warps active in the SMs, of those they could hold"),
    _activity("tensor_active_1e4", "tensor cores active", "tensor_active", "time the tensor cores were computing"),
    _activity(
        "dram_active_1e4", "memory bandwidth in use", "dram_active", "memory bandwidth used, of what there is", "mem BW"
    ),
    DeviceMetric(stored="nvlink_rx_mib_s", label="NVLink received", unit="bytes/s", per_unit=2**-20, plausible=_LINK),
    DeviceMetric(stored="nvlink_tx_mib_s", label="NVLink sent", unit="bytes/s", per_unit=2**-20, plausible=_LINK),
    DeviceMetric(
        stored="ecc_corrected",
        label="corrected memory errors",
        unit="errors",
        plausible=_ERRORS,
        roll_up=RollUp.COUNTER,
    ),
    DeviceMetric(
        stored="ecc_uncorrected",
        label="uncorrected memory errors",
        unit="errors",
        plausible=_ERRORS,
        roll_up=RollUp.COUNTER,
    ),
)
"""In the order of their columns. Beside what an energy counter rose by stands the energy by power, its check."""

LATER = tuple(sorted((metric for metric in DEVICE if metric.since is not None), key=lambda metric: metric.since or ""))
"""Metrics whose columns a later revision added, in the order in which these were added."""
DEVICE_COLUMNS = tuple(
    name
    for metric in (*(metric for metric in DEVICE if metric.since is None), *LATER)
    for name in (metric.stored, *(("energy_integral_mj",) if metric.stored == "energy_counter_mj" else ()))
)
"""Columns of `device_sample` that hold what was read of a device."""


def rolled(roll_up: RollUp) -> tuple[DeviceMetric, ...]:
    """Return the device metrics of which roll-ups keep this."""
    return tuple(metric for metric in DEVICE if metric.roll_up is roll_up)
