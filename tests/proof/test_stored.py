"""Stored advice, and how it is read back."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from sqlalchemy import select

from pertoken.proof.recommendation import full_id
from pertoken.proof.stored import standing
from pertoken.store.connect.open import open_store
from pertoken.store.schema import advice as tables
from tests.advisor.builders import NOW, advise
from tests.advisor.sources import source
from tests.scenario import LOW_BATCH_70B, seed


@pytest.mark.usefixtures("without_built_in_rules")
def test_advice_no_longer_found_expires_and_its_moves_are_kept(tmp_path: Path) -> None:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=30, end_ts=NOW)
    file = tmp_path / "own.py"
    file.write_text(source("yield now.but(max_model_len=4096)"))
    first = {row["recommendation_id"] for row in advise(tmp_path, "--rule", str(file))}
    advise(tmp_path)
    store = open_store(where)
    now = {recommendation.recommendation_id for recommendation in standing(store)}
    (gone,) = first - now
    with store.read("advice") as connection:
        moves = connection.execute(
            select(tables.transition.c.to_state)
            .where(tables.transition.c.recommendation_id == gone)
            .order_by(tables.transition.c.version)
        ).scalars()
        assert list(moves)[-1] == "EXPIRED"


@pytest.mark.usefixtures("without_built_in_rules")
def test_one_row_goes_through_its_states_and_keeps_its_refusals_beside_it(tmp_path: Path) -> None:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=30, end_ts=NOW)
    file = tmp_path / "own.py"
    bodies = [
        "yield skip('too-early', 'not yet')",
        "yield now.but(weight_dtype='fp8')\nyield skip('too-small', 'four bits are not enough')",
        "raise ValueError('broken')",
        "yield seen.e2e_s",
    ]
    ids, states, refusals = set(), [], []
    for body in bodies:
        file.write_text(source(body))
        advise(tmp_path, "--rule", str(file), code=2 if "broken" in body else 0)
        (row,) = [
            recommendation for recommendation in standing(open_store(where)) if recommendation.rule_id == "own-rule"
        ]
        ids.add(row.recommendation_id)
        states.append(row.state.value)
        refusals.append([(refusal.code, refusal.reason) for refusal in row.refusals])
    assert len(ids) == 1 and states == ["REFUSED", "OPEN", "FAILED", "BLOCKED"]
    assert refusals == [[("too-early", "not yet")], [("too-small", "four bits are not enough")], [], []]
    with open_store(where).read("advice") as connection:
        moves = connection.execute(
            select(tables.transition.c.from_state, tables.transition.c.to_state)
            .where(tables.transition.c.recommendation_id == ids.pop())
            .order_by(tables.transition.c.version)
        )
        assert [tuple(move) for move in moves] == list(zip([None, *states], states, strict=False))


def test_stored_recommendations_are_read_back_unchanged(tmp_path: Path) -> None:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=30, end_ts=NOW)
    rows = advise(tmp_path)
    stored = {recommendation.recommendation_id: recommendation for recommendation in standing(open_store(where))}
    for row_json in rows:
        row = stored[row_json["recommendation_id"]]
        read = json.loads(json.dumps(asdict(row)))
        own = {"id": full_id(row), "may_rise": row.may_rise, "priced_before_accepted": False}
        assert {**own, **read} == row_json


@pytest.mark.usefixtures("without_built_in_rules")
def test_output_of_a_rule_is_stored_without_a_new_version(tmp_path: Path) -> None:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=30, end_ts=NOW)
    file = tmp_path / "own.py"
    versions = []
    for number in (1, 2):
        file.write_text(source(f"print('run {number}')\nyield skip('no', 'never')"))
        advise(tmp_path, "--rule", str(file))
        (row,) = [
            recommendation for recommendation in standing(open_store(where)) if recommendation.rule_id == "own-rule"
        ]
        versions.append((row.version, row.output))
    assert versions == [(1, "run 1\n"), (1, "run 1\n")]
