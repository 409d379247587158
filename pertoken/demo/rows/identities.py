"""Identities of a demo: its hosts, devices, engines, deployments and epochs, with the ids that an agent would give."""

import json
from dataclasses import dataclass
from functools import cached_property

from pertoken import __version__
from pertoken.catalog.market import Accelerator, Market
from pertoken.demo.fleet import DrawnEngine, DrawnFleet, DrawnHost
from pertoken.demo.mark import machine_id
from pertoken.metrics import DEVICE
from pertoken.state.deployment import Deployment
from pertoken.store.schema.rows import Capability, DeploymentRow, DeviceRow, EngineRow, EpochRow, HostRow
from pertoken.store.schema.shared import stable_id

INTERVAL_S = 10
DRIVER_VERSION = "580.95.05"
_KNOBS = (
    *("tp", "pp", "dp", "weight_dtype", "kv_dtype", "max_num_seqs", "max_num_batched_tokens", "max_model_len"),
    *("gpu_memory_utilization", "enable_chunked_prefill", "enable_prefix_caching", "enforce_eager"),
    *("num_speculative_tokens",),
)
_SINCE_HOPPER = frozenset(("Hopper", "Blackwell"))
_ACTIVITY = tuple(row.stored for row in DEVICE if "GPM" in row.remedy)


@dataclass(frozen=True)
class HostRows:
    """Rows of one host of the fleet."""

    drawn: DrawnHost
    accelerator: Accelerator
    boot_ms: int

    @cached_property
    def host_id(self) -> int:
        """Stable id of the host."""
        return stable_id("host", machine_id(self.drawn.name))

    @cached_property
    def row(self) -> HostRow:
        """Row of the identity table."""
        host_type = self.drawn.host_type
        return HostRow(
            host_id=self.host_id,
            name=self.drawn.name,
            machine_id=machine_id(self.drawn.name),
            boot_id=f"{stable_id('boot', self.drawn.name) & (2**64 - 1):016x}",
            boot_ms=self.boot_ms,
            os="Ubuntu 24.04.3 LTS",
            cpu_name="AMD EPYC 9354 32-Core Processor" if host_type.owned else "AMD EPYC 7R13 Processor",
            cpu_count=host_type.cpus,
            memory_bytes=host_type.memory_gib * 2**30,
            agent_version=__version__,
            interval_s=INTERVAL_S,
            dmi_vendor="Supermicro" if host_type.owned else "Amazon EC2",
            dmi_product="AS-4125GS" if host_type.owned else host_type.instance_type,
            cloud=host_type.provider,
            instance_type=host_type.instance_type,
            region=host_type.region,
            purchase=host_type.purchase,
        )

    @cached_property
    def devices(self) -> tuple[DeviceRow, ...]:
        """Its accelerators, by slot."""
        name = self.accelerator.reported_names[0]
        uuids = [f"GPU-{_uuid(self.drawn.name, slot)}" for slot in range(self.drawn.host_type.devices)]
        links = _links(self.accelerator, uuids)
        return tuple(
            DeviceRow(
                device_id=stable_id("device", uuid),
                host_id=self.host_id,
                kind="gpu",
                uuid=uuid,
                vendor=self.accelerator.vendor,
                name=name,
                slot=slot,
                memory_bytes=self.accelerator.memory_bytes,
                power_limit_mw=round(1000 * (self.accelerator.tdp_w or 300)),
                driver_version=DRIVER_VERSION,
                pci_bus_id=f"00000000:{0x11 + 0x10 * slot:02X}:00.0",
                power_source="average, gpu",
                energy_source="gpu",
                links=links.get(uuid),
            )
            for slot, uuid in enumerate(uuids)
        )

    @property
    def shows_activity(self) -> bool:
        """Whether its devices have the activity counters of Hopper and later GPUs."""
        return self.accelerator.arch.split("+")[0] in _SINCE_HOPPER

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        """Metrics that its devices do not have, with the reason."""
        if self.shows_activity:
            return ()
        reason, remedy = "this GPU has no GPM (it needs Hopper or newer)", "use DCGM's profiling fields instead"
        return tuple(
            Capability(device.device_id, metric, "unsupported", reason, remedy)
            for device in self.devices
            for metric in (*_ACTIVITY, "nvlink_rx_mib_s", "nvlink_tx_mib_s")
        )


@dataclass(frozen=True)
class EngineRows:
    """Rows of one engine and its epochs."""

    host: HostRows
    drawn: DrawnEngine
    start_ts: int
    changed_ts: int | None = None
    """Start of the present epoch; None without an earlier one."""

    @cached_property
    def engine_id(self) -> int:
        """Stable id of the engine."""
        return stable_id("engine", self.host.host_id, self.drawn.runs.engine, self.drawn.port)

    @property
    def row(self) -> EngineRow:
        """Row of the identity table."""
        runs = self.drawn.runs
        began = 1000 * (self.changed_ts or self.start_ts) - self.host.boot_ms
        life = stable_id("process", str(self.host.row.boot_id), began) & (2**62 - 1)
        return EngineRow(
            engine_id=self.engine_id,
            host_id=self.host.host_id,
            kind=runs.engine,
            base_url=f"http://127.0.0.1:{self.drawn.port}",
            port=self.drawn.port,
            pid=2000 + self.drawn.port % 1000,
            process_start_ms=began,
            version=runs.engine_version,
            found_by="process",
            life=life,
        )

    @cached_property
    def deployment_id(self) -> int:
        """Id of its one deployment."""
        return stable_id("deployment", self.engine_id, self.drawn.runs.served_model)

    @property
    def deployment(self) -> DeploymentRow:
        """Row of its deployment."""
        runs = self.drawn.runs
        return DeploymentRow(self.deployment_id, self.engine_id, self.host.host_id, runs.served_model, runs.model.name)

    @cached_property
    def epochs(self) -> tuple[EpochRow, ...]:
        """Its epochs, oldest first."""
        now = self.drawn.runs
        if self.drawn.before is None or self.changed_ts is None:
            return (self.epoch(now, self.start_ts),)
        earlier = self.epoch(self.drawn.before, self.start_ts, self.changed_ts)
        return earlier, self.epoch(now, self.changed_ts)

    def epoch(self, runs: Deployment, start_ts: int, end_ts: int | None = None) -> EpochRow:
        """Return the row of an epoch with the knobs and devices of `runs`."""
        known = {name: value for name in _KNOBS if (value := getattr(runs, name)) is not None}
        text = json.dumps({**known, "driver_version": DRIVER_VERSION}, sort_keys=True)
        allocated = tuple(self.host.devices[at].device_id for at in runs.device_ids)
        version = runs.engine_version
        epoch_id = stable_id("epoch", self.deployment_id, start_ts, text, version or "", *allocated)
        return EpochRow(epoch_id, self.deployment_id, start_ts, end_ts, version, text, allocated)


def host_rows(fleet: DrawnFleet, market: Market, start_ts: int) -> dict[str, HostRows]:
    """Return the rows of each host, by its name."""
    rows = {}
    for at, drawn in enumerate(fleet.hosts):
        accelerator = market.accelerator(drawn.host_type.accelerator)
        if accelerator is None:
            raise ValueError(f"fleet.toml: the catalog has no accelerator {drawn.host_type.accelerator}")
        rows[drawn.name] = HostRows(drawn, accelerator, 1000 * (start_ts - 86_400 * (2 + at % 40)))
    return rows


def engine_rows(fleet: DrawnFleet, hosts: dict[str, HostRows], start_ts: int, end_ts: int) -> list[EngineRows]:
    """Return the rows of each engine, in the order of the fleet."""
    rows = []
    for drawn in fleet.engines:
        changed = start_ts + round(drawn.changed_share * (end_ts - start_ts)) // 3600 * 3600
        rows.append(EngineRows(hosts[drawn.host], drawn, start_ts, changed if drawn.before is not None else None))
    return rows


def _uuid(host: str, slot: int) -> str:
    text = "".join(f"{stable_id('uuid', host, slot, part) & (2**64 - 1):016x}" for part in range(2))
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:32]))


def _links(accelerator: Accelerator, uuids: list[str]) -> dict[str, str]:
    """Return the links between devices by UUID, as the agent stores them."""
    if len(uuids) < 2:
        return {}
    kind = "nvlink" if "NVLink" in accelerator.interconnect else "pcie"
    return {uuid: json.dumps({kind: [other for other in uuids if other != uuid]}) for uuid in uuids}
