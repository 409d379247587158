"""Releases are checked again 7 and 30 days after their verdict; changes of a configuration in test_judge."""

from dataclasses import replace
from pathlib import Path

from pertoken.proof.judging.receipts import Kind, read_receipts
from pertoken.proof.recommendation import State
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation
from pertoken.store.schema.rows import DeploymentSample, EpochRow, HostSample, Tick
from pertoken.store.write.writer import Writer
from tests.proof.judging.changes import WEEK
from tests.proof.judging.test_releases import NOW, SECOND, SECOND_ENGINE, SPARE, SPARE_GPU, STAYS, Released, recorded
from tests.values import host_row, tick
from tests.window.test_evidence import DEPLOYMENT, GPU


def test_a_release_that_lasts_gets_a_second_receipt_and_keeps_its_state(tmp_path: Path) -> None:
    kept = Released(recorded(tmp_path))
    assert kept.judge(NOW) == 1
    still_served(kept.where, NOW + WEEK)
    kept.judge(NOW + WEEK - 60)
    assert kinds(kept) == [Kind.VERDICT]
    kept.judge(NOW + WEEK)
    assert kinds(kept) == [Kind.VERDICT, Kind.AFTER_7_DAYS] and kept.state() is State.REALIZED
    kept.judge(NOW + WEEK + 60)
    assert len(kinds(kept)) == 2


def test_a_host_that_comes_back_ends_the_saving(tmp_path: Path) -> None:
    kept = Released(recorded(tmp_path))
    assert kept.judge(NOW) == 1 and kept.state() is State.REALIZED
    still_served(kept.where, NOW + WEEK)
    came_back(kept.where, NOW + WEEK - 120)
    kept.judge(NOW + WEEK)
    assert kept.state() is State.DECAYED
    with kept.target.writing() as connection:
        *_, last = repository.transitions(connection, read_receipts(connection)[0].recommendation_id or 0)
        receipt = read_receipts(connection)[1]
    assert "0 of 1 released devices are still released" in last.why
    assert receipt.check().reproduced


def kinds(kept: Released) -> list[Kind]:
    with kept.target.writing() as connection:
        return [receipt.kind for receipt in read_receipts(connection)]


def still_served(where: StoreLocation, ts: int) -> None:
    sample = DeploymentSample(8, ts, 60_000, 60_000, True, 30_000, busy_provenance=0, generated_tokens=60)
    with Writer(where) as writer:
        writer.commit(tick(ts, sample, deployments=(DEPLOYMENT,), epochs=(STAYS,), devices=(GPU,)))


def came_back(where: StoreLocation, ts: int) -> None:
    """Start the second replica again on its own host."""
    epoch = EpochRow(28, 18, ts - 60, None, "0.32.0", "{}", (6,))
    sample = DeploymentSample(28, ts, 60_000, 60_000, True, 30_000, busy_provenance=0, generated_tokens=60)
    of_host = HostSample(SPARE, ts, 10_000, 10_000, cpu_util_1e4=0, load_1e2=0, memory_used_bytes=1)
    host = replace(host_row(), host_id=SPARE, name="spare")
    with Writer(where) as writer:
        writer.commit(
            Tick(
                ts=ts,
                host=host,
                samples=(of_host, sample),
                deployments=(SECOND,),
                epochs=(epoch,),
                devices=(SPARE_GPU,),
                engines=(SECOND_ENGINE,),
            )
        )
