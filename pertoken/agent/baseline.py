"""What an agent that starts takes over from the rows stored before it."""

from dataclasses import replace

from pertoken.agent.counters import is_bucket
from pertoken.agent.device_rows import host_id_of
from pertoken.agent.memory import Memory
from pertoken.agent.processes import boot_ms
from pertoken.agent.readings import ProbeReading
from pertoken.store.before import Before
from pertoken.store.rows import CounterState


def taken_over(before: Before, probe: ProbeReading, now_ms: int) -> tuple[Memory, int | None]:
    """What is remembered of the host that `probe` is of, and the `ts` of its newest row; None for a new host."""
    host_id = host_id_of(probe)
    last_ts = before.last_ts(host_id, now_ms // 1000)
    shift_ms = _boot_shift_ms(before, probe, host_id)
    counters: dict[int, dict[str, CounterState]] = {}
    buckets: dict[int, dict[str, CounterState]] = {}
    for state in before.counters():
        start_ms = state.process_start_ms
        if start_ms is not None and start_ms > 0:  # by our clock, not by a page's own
            start_ms += shift_ms
        states = (buckets if is_bucket(state.series) else counters).setdefault(state.owner_id, {})
        states[state.series] = replace(state, process_start_ms=start_ms)
    memory = Memory(
        watching_since_ms=now_ms if last_ts is None else last_ts * 1000,
        boot_ms=boot_ms(),
        begun={key: start_ms + shift_ms for key, start_ms in before.begun(host_id).items()},
        away_ms=0 if last_ts is None else max(0, min(now_ms - last_ts * 1000, now_ms - probe.host.boot_ms)),
        counters=counters,
        buckets=buckets,
        known_owners=before.known_owners(host_id),
        epochs={epoch.deployment_id: epoch for epoch in before.open_epochs(host_id)},
        capabilities={(each.owner_id, each.metric): each for each in before.capabilities()},
    )
    return memory, last_ts


def _boot_shift_ms(before: Before, probe: ProbeReading, host_id: int) -> int:
    """What to add to stored starts of processes: on the same boot they differ only by how it was told."""
    boot_id, before_ms = before.boot(host_id)
    same = boot_id is not None and boot_id == probe.host.boot_id
    return boot_ms() - before_ms if same and before_ms is not None else 0
