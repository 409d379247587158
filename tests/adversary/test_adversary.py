"""The short form of `python -m tests.adversary`, and that its judge notices what is not true."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.adversary.cases import SHORT
from tests.adversary.clock import COMPILER
from tests.adversary.judge import judged
from tests.adversary.played import Played
from tests.adversary.run import Outcome, play
from tests.adversary.world import drawn

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler here")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    yield play(SHORT, tmp_path_factory.mktemp("short"))


def test_numbers_stay_true_while_clock_engines_driver_and_disk_go_wrong_at_once(outcome: Outcome) -> None:
    assert outcome.findings == (), "\n".join(str(finding) for finding in outcome.findings)
    assert all(outcome.stored[spec.model] > 0 for spec in SHORT.engines)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("UPDATE deployment_sample SET generated_tokens = generated_tokens + 100000", "tokens"),
        ("UPDATE deployment_sample SET generated_tokens = 0, complete = 1", "tokens"),
        ("UPDATE deployment_sample SET busy_ms = duration_ms + 1", "tokens"),
        ("UPDATE device_sample SET energy_counter_mj = 10 * energy_counter_mj", "energy"),
        ("UPDATE device_sample SET energy_integral_mj = 0", "energy"),
        ("UPDATE device_sample SET duration_ms = 2 * duration_ms", "time"),
        ("UPDATE device_sample SET duration_ms = duration_ms / 2", "time"),
        ("UPDATE deployment_1h SET prompt_tokens = prompt_tokens + 1 WHERE prompt_tokens > 0", "roll-ups"),
        ("DELETE FROM host_sample", "history"),
        ("UPDATE host_sample SET observed_ms = -60000", "observed"),
    ],
)
def test_the_judge_detects_a_false_record(outcome: Outcome, tmp_path: Path, change: str, rule: str) -> None:
    shutil.copytree(outcome.played.db, tmp_path / "db")
    with closing(sqlite3.connect(tmp_path / "db" / "telemetry.db")) as connection:
        connection.execute(change)
        connection.commit()
    assert rule in _rules(replace(outcome.played, db=tmp_path / "db"))


def test_the_judge_detects_a_gpu_stored_as_free_while_an_engine_uses_it(outcome: Outcome, tmp_path: Path) -> None:
    shutil.copytree(outcome.played.db, tmp_path / "db")
    with closing(sqlite3.connect(tmp_path / "db" / "telemetry.db")) as connection:
        connection.execute("UPDATE deployment_sample SET whole_provenance = NULL")
        connection.execute("DELETE FROM capability")
        connection.commit()
    # On a busy machine restarts and a full disk take so long that they excuse every second without an owner.
    played = replace(outcome.played, db=tmp_path / "db", unwritable=(), starts_s=outcome.played.starts_s[:1])
    assert "held" in _rules(played)


def test_the_judge_notices_a_gap_an_exit_and_a_bill_that_is_too_high(outcome: Outcome) -> None:
    played = outcome.played
    looks = tuple(look for look in played.looks if not 3 < look.at_s - played.loaded_s < 16)
    assert "gap" in _rules(replace(played, looks=looks, down=(), unwritable=()))
    failed = replace(played.exits[-1], code=1)
    assert "exit" in _rules(replace(played, exits=(failed,)))
    cheap = tuple((from_ts, selector, usd / 100) for from_ts, selector, usd in played.prices)
    assert "dollars" in _rules(replace(played, prices=cheap))


def test_a_world_is_the_same_for_the_same_seed_and_has_disturbances() -> None:
    worlds = [drawn(seed) for seed in range(50)]
    assert worlds == [drawn(seed) for seed in range(50)]
    assert len({type(act.what) for world in worlds for act in world.acts}) >= 18
    assert all(2 <= len(world.acts) <= 6 for world in worlds)


def _rules(played: Played) -> set[str]:
    return {finding.rule for finding in judged(played)[0]}
