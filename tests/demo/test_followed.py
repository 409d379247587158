"""Advice of a demo that was followed: proposed before the change, judged after it."""

from pathlib import Path

import pytest

from pertoken.catalog.market import load_market
from pertoken.cli.advise import run_quietly
from pertoken.config import Settings, load
from pertoken.demo.fleet import FOLLOWED_FROM, draw_fleet
from pertoken.demo.live import follow
from pertoken.demo.making import HOUR_S, SETTINGS_FILE, make
from pertoken.proof.detection import journal
from pertoken.proof.judging.receipts import read_receipts
from pertoken.proof.recommendation import State
from pertoken.proof.stored import standing
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from tests.demo.made import END, demo

MARKET = load_market()
DAYS = 30


def test_one_change_is_followed_in_a_fleet_that_is_large_and_old_enough() -> None:
    (followed,) = draw_fleet(1, FOLLOWED_FROM, DAYS, MARKET).followed
    fleet = draw_fleet(1, 24, 30, MARKET)
    assert followed.target in fleet.healthy and followed.scene.rules == ("quantize-weights",)
    assert draw_fleet(1, FOLLOWED_FROM - 1, DAYS, MARKET).followed == ()
    assert draw_fleet(1, FOLLOWED_FROM, 7, MARKET).followed == ()


def test_a_demo_without_a_followed_change_accepts_nothing(tmp_path: Path) -> None:
    where, made = demo(tmp_path)
    assert follow(where, made, Settings()) == 0
    assert standing(open_store(where)) == ()


def test_the_verdict_on_followed_advice_is_that_of_its_receipt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = locate(str(tmp_path))
    made = make(where, 1, FOLLOWED_FROM, DAYS, END)
    (followed,) = made.fleet.followed
    settings = load(str(tmp_path / SETTINGS_FILE), db=str(tmp_path))
    assert follow(where, made, settings) == 1

    (row,) = standing(open_store(where))
    changed_ts = next(
        engine.changed_ts for engine in made.engines if engine.drawn.runs.served_model == followed.service
    )
    assert changed_ts is not None and row.state is State.APPLIED and row.target == followed.service
    assert row.created_ts == changed_ts - HOUR_S and row.estimate is not None and row.estimate.capacity is not None
    assert {(edit.field, edit.before, edit.after) for edit in row.estimate.edits} >= {("weight_dtype", "bf16", "fp8")}

    monkeypatch.setattr("time.time", lambda: END + 20.0)
    run_quietly(where, settings)
    (judged,) = [now for now in standing(open_store(where)) if now.recommendation_id == row.recommendation_id]
    with open_store(where).read("advice") as connection:
        (receipt,) = read_receipts(connection, row.recommendation_id)
        moves = [entry.who for entry in journal(connection, row.recommendation_id)]
    assert judged.state.value == receipt.read().finding.verdict.value == "REALIZED"
    assert judged.estimate == row.estimate and moves[:2] == ["advisor run of the demo", "pertoken demo"]
