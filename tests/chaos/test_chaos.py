"""The short form of `python -m tests.chaos`."""

from pathlib import Path

from tests.chaos.run import DEEDS, chaos

SHORT = tuple(deed for deed in DEEDS if deed not in ("kill agent", "stop fast", "put server back"))
"""Those left out are parts of others: each start of an agent takes a second."""


def test_every_committed_roll_up_arrives_once_in_its_newest_revision_or_an_event_names_it(tmp_path: Path) -> None:
    verdict = chaos(tmp_path, seconds=0, seed=20_261_121, pause_ms=60, kinds=SHORT)
    assert verdict.differing == (), verdict
    assert verdict.rows > 50 and verdict.batches > 1
    assert set(SHORT) <= verdict.deeds.keys(), verdict.deeds
    assert {"ship_cloned", "ship_restored"} <= verdict.events, verdict
