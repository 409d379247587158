"""A GPU in MIG devices, and ticks of it."""

from pertoken.agent.readings import DeviceProcess, DeviceReading
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.store.schema.rows import Tick
from tests.agent.values import engine, gpu, moment, probe, tick_state

PARENT = gpu(0)


def mig(n: int, part_1e6: int, *pids: int) -> DeviceReading:
    """Return a MIG device of the first GPU on which these processes run."""
    held = tuple(DeviceProcess(pid, 10**9) for pid in pids)
    name = f"{PARENT.name} MIG ({n})"
    return DeviceReading(
        f"MIG-{n}", "mig", "nvidia", name, slot=0, processes=held, parent_uuid=PARENT.uuid, part_1e6=part_1e6
    )


def ticks(n: int) -> list[Tick]:
    """Return a GPU of which 3/7 and 1/7 are MIG devices: the engine holds the first, a stranger the second."""
    kept, rows = tick_state(), []
    for i in range(n):
        devices = (PARENT._replace(energy_mj=10**9 + i * 3_000_000), mig(1, 428_571, 101), mig(2, 142_857, 999))
        reading = Readings(probe(*devices), (engine(100 * i, 10 * i),))
        tick, kept = assemble(kept, reading, moment(i), AgentCost(1, 1, 1, 0) if i else None)
        rows.append(tick)
    return rows
