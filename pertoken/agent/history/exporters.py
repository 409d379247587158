"""Exporters of device metrics: one table for each maps its names onto `metrics.DEVICE`.

Values of the profiling fields need `DCGM_FI_PROF_*` to be switched on in dcgm-exporter. A MIG instance repeats energy,
power, clock and temperature of its whole card, so those are read of any instance and counted once.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pertoken.units import RATIO

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class DeviceSeries:
    """A value of a `DeviceReading`, and where an exporter has it: the first name that is there is taken."""

    reading: str
    names: tuple[str, ...]
    scale: float = 1
    """Value of the reading for 1 of the exporter's units."""
    of_card: bool = False
    """Whether a MIG instance repeats the value of its whole card."""


@dataclass(frozen=True, slots=True)
class Exporter:
    """One exporter, as a table."""

    kind: str
    source: str
    """Where its names come from."""
    uuid: str
    """Label that holds the UUID."""
    uuid_prefix: str
    """What the driver's UUIDs have before those of the label."""
    series: tuple[DeviceSeries, ...]
    memory: tuple[str, ...]
    """Series whose sum is the memory of a device, in units of `memory_scale` bytes."""
    memory_scale: int
    name: str = ""
    """Label with the product's name, on the series or on `info`."""
    driver: str = ""
    """Label with the driver's version."""
    slot: str = ""
    host: str = ""
    """Label with the host's name."""
    instance_id: str = ""
    """Label that is set on the series of a MIG instance."""
    info: str | None = None
    """Series that carries name and driver where the others do not."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all series read."""
        own = (name for one in self.series for name in one.names)
        return tuple(dict.fromkeys((*own, *self.memory, *((self.info,) if self.info else ()))))


DCGM = Exporter(
    kind="dcgm-exporter",
    source="NVIDIA/dcgm-exporter etc/default-counters.csv and dcp-metrics-included.csv (4.x)",
    uuid="UUID",
    uuid_prefix="",
    name="modelName",
    driver="DCGM_FI_DRIVER_VERSION",
    slot="gpu",
    host="Hostname",
    instance_id="GPU_I_ID",
    memory=("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED"),
    memory_scale=_MIB,
    series=(
        DeviceSeries("util_1e4", ("DCGM_FI_DEV_GPU_UTIL",), RATIO / 100),
        DeviceSeries("memory_used_bytes", ("DCGM_FI_DEV_FB_USED",), _MIB),
        DeviceSeries("power_mw", ("DCGM_FI_DEV_POWER_USAGE",), 1000, of_card=True),
        DeviceSeries("energy_mj", ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",), of_card=True),
        DeviceSeries("sm_clock_mhz", ("DCGM_FI_DEV_SM_CLOCK",), of_card=True),
        DeviceSeries("memory_clock_mhz", ("DCGM_FI_DEV_MEM_CLOCK",), of_card=True),
        DeviceSeries("temperature_c", ("DCGM_FI_DEV_GPU_TEMP",), of_card=True),
        DeviceSeries(
            "throttle_reasons", ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"), of_card=True
        ),
        DeviceSeries("sm_active_1e4", ("DCGM_FI_PROF_SM_ACTIVE",), RATIO),
        DeviceSeries("sm_occupancy_1e4", ("DCGM_FI_PROF_SM_OCCUPANCY",), RATIO),
        DeviceSeries("tensor_active_1e4", ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",), RATIO),
        DeviceSeries("dram_active_1e4", ("DCGM_FI_PROF_DRAM_ACTIVE",), RATIO),
        DeviceSeries("nvlink_rx_mib_s", ("DCGM_FI_PROF_NVLINK_RX_BYTES",), 1 / _MIB),
        DeviceSeries("nvlink_tx_mib_s", ("DCGM_FI_PROF_NVLINK_TX_BYTES",), 1 / _MIB),
    ),
)
NVIDIA_GPU_EXPORTER = Exporter(
    kind="nvidia_gpu_exporter",
    source="utkuozdemir/nvidia_gpu_exporter METRICS.md (1.x)",
    uuid="uuid",
    uuid_prefix="GPU-",
    name="name",
    driver="driver_version",
    memory=("nvidia_smi_memory_total_bytes",),
    memory_scale=1,
    info="nvidia_smi_gpu_info",
    series=(
        DeviceSeries("util_1e4", ("nvidia_smi_utilization_gpu_ratio",), RATIO),
        DeviceSeries("memory_used_bytes", ("nvidia_smi_memory_used_bytes",)),
        DeviceSeries("power_mw", ("nvidia_smi_power_draw_watts",), 1000),
        DeviceSeries("sm_clock_mhz", ("nvidia_smi_clocks_current_sm_clock_hz",), 1e-6),
        DeviceSeries("memory_clock_mhz", ("nvidia_smi_clocks_current_memory_clock_hz",), 1e-6),
        DeviceSeries("temperature_c", ("nvidia_smi_temperature_gpu",)),
    ),
)
EXPORTERS: Mapping[str, Exporter] = {exporter.kind: exporter for exporter in (DCGM, NVIDIA_GPU_EXPORTER)}
"""By kind, the better first: where two exporters have a device, the first is taken."""
