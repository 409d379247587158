"""Recorded series as ticks: who holds which device, and how far that is known."""

from pertoken.agent.history.prometheus import RangeSteps
from pertoken.agent.history.run import MAX_UNSCRAPED_STEPS, ImportedHost, replay
from pertoken.agent.history.series import Chunk, EngineSeries, ImportedDevice
from pertoken.provenance import Provenance
from pertoken.store.schema.rows import DeploymentSample, DeviceShare, Tick

STEPS = RangeSteps(3600, 20, 60)
TOKENS = "vllm:generation_tokens_total"


def engine(address: str, pod: str | None = None, until: int = STEPS.count) -> EngineSeries:
    values = [100.0 * at if at < until else None for at in range(STEPS.count)]
    return EngineSeries("vllm", address, "h", pod, [(TOKENS, (("model_name", address),), values)])


def device(uuid: str, *pods: str, util: int = 5000, until: int = STEPS.count) -> ImportedDevice:
    values = [util if at < until else None for at in range(STEPS.count)]
    return ImportedDevice(
        "dcgm-exporter", uuid, "h", "NVIDIA H100", 0, None, 2**30, frozenset(pods), False, {"util_1e4": values}
    )


def ticks(engines: list[EngineSeries], devices: list[ImportedDevice]) -> list[Tick]:
    return list(replay(ImportedHost("h", "http://p"), Chunk(STEPS, engines, devices), range(STEPS.count)))


def shares(tick: Tick) -> dict[str, list[tuple[int, Provenance]]]:
    uuids = {device.device_id: device.uuid for device in tick.devices}
    shares_of: dict[str, list[tuple[int, Provenance]]] = {}
    for sample in tick.samples:
        if isinstance(sample, DeviceShare):
            shares_of.setdefault(uuids[sample.device_id], []).append((sample.share_1e6, sample.provenance))
    return shares_of


def test_an_engine_holds_the_devices_of_its_pod_and_that_is_known() -> None:
    rows = ticks([engine("a:1", "pod-a"), engine("b:1", "pod-b")], [device("A", "pod-a"), device("B", "pod-b")])
    assert shares(rows[-1]) == {"A": [(10**6, Provenance.REPORTED)], "B": [(10**6, Provenance.REPORTED)]}


def test_without_pods_engines_of_a_host_share_its_devices_and_that_is_an_assumption() -> None:
    rows = ticks([engine("a:1"), engine("a:2")], [device("A", "dcgm-exporter-x7")])
    assert shares(rows[-1]) == {"A": [(500_000, Provenance.ASSUMED)] * 2}
    alone = ticks([engine("a:1")], [device("A")])
    assert shares(alone[-1]) == {"A": [(10**6, Provenance.ASSUMED)]}


def test_a_device_without_an_engine_is_foreign_while_it_works_and_free_while_it_does_not() -> None:
    assert [share for share, _ in shares(ticks([], [device("A")])[-1])["A"]] == [10**6]
    assert shares(ticks([], [device("A", util=0)])[-1]) == {}


def test_an_engine_that_is_not_scraped_for_long_has_stopped() -> None:
    rows = ticks([engine("a:1", until=3)], [device("A")])
    kinds = [event.kind for tick in rows for event in tick.events]
    assert kinds.count("engine_stopped") == 1
    served = [sum(isinstance(sample, DeploymentSample) for sample in tick.samples) for tick in rows]
    assert served == [0, 1, 1, *[1] * MAX_UNSCRAPED_STEPS, 1, *[0] * (STEPS.count - 4 - MAX_UNSCRAPED_STEPS)]


def test_a_device_is_there_for_as_long_and_then_costs_nothing_more() -> None:
    rows = ticks([engine("a:1")], [device("A", until=4)])
    assert len([tick for tick in rows if tick.devices]) == 4 + MAX_UNSCRAPED_STEPS
    assert rows[5].devices
    assert not rows[-1].devices


def test_a_step_at_which_nothing_was_recorded_has_no_tick() -> None:
    rows = ticks([engine("a:1", until=6)], [device("A", until=6)])
    assert len(rows) == 6
