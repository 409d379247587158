"""The short form of `python -m tests.chaos`."""

from pathlib import Path

from tests.chaos.run import DEEDS, chaos


def test_every_committed_roll_up_arrives_once_in_its_newest_revision_whatever_happens(tmp_path: Path) -> None:
    found = chaos(tmp_path, seconds=8, seed=20_261_121, pause_ms=10)
    assert found.differing == (), found
    assert found.rows > 50 and found.batches > 1
    assert set(DEEDS) <= found.deeds.keys(), found.deeds
