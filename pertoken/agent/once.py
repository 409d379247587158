"""Measuring once, for a person: two readings a moment apart, what changed between them, nothing stored."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from pertoken.agent.discovery.watch import Watch
from pertoken.agent.host.identity import HostIdentity, Identity
from pertoken.agent.host.plug import plug_watch
from pertoken.agent.host.processes import boot_ms, since_boot_ms
from pertoken.agent.readings import EngineReading, PlugReading, ProbeReading, Unavailable
from pertoken.agent.rows.assemble import Cost, Readings, assemble
from pertoken.agent.rows.tick_state import Moment, TickState
from pertoken.agent.sampler.drivers import Drivers
from pertoken.agent.scrape.http import Limits
from pertoken.config import Settings
from pertoken.store.schema.rows import DeploymentSample, DeviceSample, HostSample, Tick
from pertoken.units import RATIO, format_bytes

APART_S = 1.0
"""Time between the two readings."""
DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Look:
    """One reading of everything on this host."""

    probe: ProbeReading
    engines: tuple[EngineReading, ...]
    unavailable: tuple[Unavailable, ...]
    wall_ms: int
    monotonic_ms: int
    identity: HostIdentity
    plug: PlugReading | None = None


@contextmanager
def looking(settings: Settings) -> Iterator["Looker"]:
    """A sampler and a watch for a few looks, ended afterwards."""
    looker = Looker(settings)
    try:
        yield looker
    finally:
        looker.close()


class Looker:
    """Reads devices, host and engines as the daemon does, for as long as it is open."""

    def __init__(self, settings: Settings) -> None:
        limits = Limits.of(settings)
        self._wait_s = 2 * limits.timeout_s  # a page, and what the engine is asked beside it
        self._drivers = Drivers(settings.agent_probes)
        self._plug = plug_watch(settings)
        self._plug.start_read()
        self._watch = Watch(settings.agent_engines, settings.agent_discover, limits)
        self._identity = Identity(settings.agent_cloud_metadata)
        self._identity.look()
        self._watch.look()

    def look(self) -> Look:
        """Read everything now; drivers that do not answer are a gap."""
        probe, _ = self._drivers.read(processes=True, deadline_s=DEADLINE_S)
        engines = self._watch.read(wait_s=self._wait_s)
        unavailable = (*self._watch.unavailable, *self._identity.unavailable, *self._plug.unavailable)
        now_ms = round(time.time() * 1000)
        return Look(probe, engines, unavailable, now_ms, since_boot_ms(), self._identity.known, self._plug.newest)

    def close(self) -> None:
        """End the sampler."""
        self._watch.close()
        self._plug.close()
        self._drivers.close()


def measure(settings: Settings) -> tuple[Look, Tick]:
    """Two looks `APART_S` apart: the second, and the tick the daemon would have stored of both."""
    with looking(settings) as looker:
        first = looker.look()
        time.sleep(APART_S)
        second = looker.look()
    tick_state = TickState(watching_since_ms=first.monotonic_ms, boot_ms=boot_ms())
    for look, cost in ((first, None), (second, Cost(0, 0, 0, 0))):
        moment = Moment(look.wall_ms // 1000, look.wall_ms, look.monotonic_ms, max(1, round(APART_S)))
        readings = Readings(look.probe, look.engines, None, look.unavailable, (), look.identity, plug=look.plug)
        tick, tick_state = assemble(tick_state, readings, moment, cost)
    return second, tick


def show(measured: tuple[Look, Tick], as_json: bool) -> str:
    """Return what was measured, as JSON or as lines for people; None (a dash) is unknown."""
    look, tick = measured
    if as_json:
        samples: dict[str, list[dict[str, Any]]] = {}
        for sample in tick.samples:
            samples.setdefault(type(sample).__name__, []).append(_columns(sample))
        document = {
            "host": asdict(tick.host),
            "devices": [asdict(row) for row in tick.devices],
            "engines": [asdict(reading) for reading in look.engines],
            "gaps": [asdict(missing) for missing in (*look.probe.unavailable, *look.unavailable)],
            "over_ms": round(1000 * APART_S),
            "samples": samples,
        }
        return json.dumps(document, indent=2)
    return "\n".join(_lines(look, tick))


def _columns(sample: Any) -> dict[str, Any]:
    columns: dict[str, Any] = sample._asdict() if isinstance(sample, DeviceSample) else asdict(sample)
    return columns


def _lines(look: Look, tick: Tick) -> Iterator[str]:
    host = next(sample for sample in tick.samples if isinstance(sample, HostSample))
    yield f"host     {tick.host.name}: CPU {_percent(host.cpu_util_1e4)}, memory {format_bytes(host.memory_used_bytes)}"
    if look.plug is not None:
        yield f"plug     {look.plug.power_mw / 1000:.0f} W by {look.plug.source}"
    names = {row.device_id: row.name for row in tick.devices}
    for sample in tick.samples:
        if isinstance(sample, DeviceSample):
            power = "–" if sample.power_mw is None else f"{sample.power_mw / 1000:.0f}"
            memory = format_bytes(sample.memory_used_bytes)
            yield f"device   {names[sample.device_id]}: {_percent(sample.util_1e4)} busy, {power} W, {memory}"
    models = {epoch.epoch_id: epoch.deployment_id for epoch in tick.epochs}
    served = {row.deployment_id: row.served_model for row in tick.deployments}
    rows = {served.get(models.get(s.epoch_id, 0)): s for s in tick.samples if isinstance(s, DeploymentSample)}
    for reading in look.engines:
        where = f"{reading.endpoint.kind} at {reading.endpoint.base_url}"
        if reading.fault:
            yield f"engine   {where}: {reading.fault}; {reading.remedy}"
            continue
        row = rows.get(reading.served_model)
        rate = "–" if row is None or row.generated_tokens is None else f"{row.generated_tokens / APART_S:.0f}"
        totals = ", ".join(f"{value:,} {series}" for series, value in sorted(reading.counters.items()))
        yield f"engine   {where}: {reading.served_model}, {rate} generated tok/s now; so far {totals}"
    if not look.engines:
        yield "engine   none found"
    for missing in (*look.probe.unavailable, *look.unavailable):
        yield f"missing  {missing.metric}: {missing.reason}" + (f"; {missing.remedy}" if missing.remedy else "")


def _percent(ratio_1e4: int | None) -> str:
    return "–" if ratio_1e4 is None else f"{100 * ratio_1e4 / RATIO:.0f} %"
