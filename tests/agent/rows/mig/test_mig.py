"""A GPU in MIG devices: who holds what, and that nothing is paid for or drawn twice."""

from pathlib import Path

from pertoken.costs.report.fleet_report import fleet_report
from pertoken.provenance import Provenance
from pertoken.store import repository
from pertoken.store.connect.open import open_store
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema.rows import DeviceShare
from pertoken.store.write.writer import Writer
from pertoken.units import NANO_USD, SHARE
from tests.agent.rows.mig import PARENT, ticks
from tests.agent.values import START_MS
from tests.values import new_store


def test_a_gpu_is_owned_through_its_mig_devices_and_the_rest_of_it_is_free() -> None:
    tick = ticks(2)[1]
    ids = {row.name: row.device_id for row in tick.devices}
    shares = {(s.device_id, s.epoch_id == 0): s for s in tick.samples if isinstance(s, DeviceShare)}
    whole, first, second = ids[PARENT.name], ids[f"{PARENT.name} MIG (1)"], ids[f"{PARENT.name} MIG (2)"]
    assert {key: share.share_1e6 for key, share in shares.items()} == {
        (whole, False): 428_571,
        (whole, True): 142_857,
        (first, False): SHARE,
        (second, True): SHARE,
    }
    assert shares[whole, False].provenance is Provenance.REPORTED
    assert ticks(1)[0].epochs[0].device_ids == (first,)


def test_the_gpu_alone_is_paid_for_and_its_power_counted_once(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    with Writer(where) as writer:
        for tick in ticks(13):
            writer.commit(tick)
        writer.roll_up()
    with AdviceRepository(where).writing() as connection:
        repository.add_price(
            connection,
            selector="gpu",
            nano_usd_per_device_hour=7 * NANO_USD,
            from_ts=0,
            set_ts=0,
            set_by="me",
            note=None,
        )
    report = fleet_report(open_store(where), 3600, START_MS // 1000 + 120)
    assert report.bill is not None and abs(report.bill.paid - 7 * NANO_USD // 30) <= 1
    (line,) = report.deployments
    assert line.nano_usd is not None and abs(line.nano_usd - 3 * NANO_USD // 30) < 300
    assert report.power_w == 300
    prices = {device.kind: device.nano_usd_per_hour for device in report.devices if device.held_by}
    assert prices["gpu"] == 7 * NANO_USD and prices["mig"] in (2_999_997_000, 999_999_000)
    assert {device.part_of for device in report.devices if device.kind == "mig"} == {f"{PARENT.name} #0"}
    assert report.unpriced_devices == ("AMD EPYC",)
    assert report.nano_usd_per_hour == 7 * NANO_USD  # its slices are paid for with the GPU, not once more
