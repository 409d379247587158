"""Stored receipts: found by digits of their id or of their recommendation's."""

import json
from dataclasses import replace

import pytest

from pertoken.errors import BadInput
from pertoken.proof.judging.receipts import Kind, StoredReceipt, add, find, read_receipts, resealed, to_stored
from pertoken.proof.receipt import receipt, signed
from pertoken.store.repository import AdviceRepository
from tests.proof.histories import UNTIL
from tests.proof.receipt.test_receipt import CHANGE, made, question
from tests.values import new_store

FIRST = StoredReceipt(8, 9, Kind.VERDICT, "{}", "{}", 100, recommendation_id=0x1A << 56, receipt_id=0x2B << 56)
AGAIN = replace(FIRST, kind=Kind.AFTER_7_DAYS, created_ts=200, receipt_id=0x2C << 56)
OTHER = replace(FIRST, recommendation_id=None, epoch_id=10, receipt_id=0x3B << 56)
ALL = (FIRST, AGAIN, OTHER)


def test_a_receipt_is_found_by_its_own_id_and_the_newest_one_by_that_of_its_recommendation() -> None:
    assert find(ALL, "2b", "db") is FIRST
    assert find(ALL, "2C", "db") is AGAIN
    assert find(ALL, "1a", "db") is AGAIN
    assert find(ALL, "3", "db") is OTHER


@pytest.mark.parametrize(("prefix", "line"), [("2", "names several"), ("f", "holds no receipt"), ("", "no receipt")])
def test_an_id_that_names_no_receipt_or_several_is_refused(prefix: str, line: str) -> None:
    with pytest.raises(BadInput, match=line):
        find(ALL, prefix, "db")


def test_receipts_are_read_as_they_were_stored_all_or_of_one_recommendation(tmp_path: object) -> None:
    with AdviceRepository(new_store(tmp_path)).writing() as connection:  # type: ignore[arg-type]
        add(connection, (*ALL, FIRST))
        read = read_receipts(connection)
        assert {replace(receipt, receipt_id=0) for receipt in read} == {
            replace(receipt, receipt_id=0) for receipt in ALL
        }
        assert len(read_receipts(connection, FIRST.recommendation_id)) == 2


def test_text_that_is_no_receipt_is_not_intact() -> None:
    assert not FIRST.check().intact


def test_a_receipt_whose_texts_were_replaced_is_intact_and_reproduced_after_it_was_sealed_again() -> None:
    stored = to_stored(question(), made(), Kind.VERDICT, deployment_id=8, epoch_id=9, recommendation_id=None)
    text = stored.text.replace(made().change.target, "another target")
    assert text != stored.text and not replace(stored, text=text).check().intact
    body = json.loads(resealed(json.dumps({"receipt": text, "inputs": stored.inputs})))
    check = replace(stored, text=body["receipt"], inputs=body["inputs"]).check()
    assert (check.intact, check.reproduced) == (True, True)


def test_a_receipt_is_reproduced_whatever_words_its_version_had_for_the_reason() -> None:
    asked = replace(question(), deployment=replace(question().deployment, started_ts=None))
    known = receipt(asked, CHANGE, UNTIL, None)
    assert known.finding.code == "not-separable"
    worded, coded = replace(known.finding, reason="other words"), replace(known.finding, code="wide-interval")
    for finding, reproduced in ((worded, True), (coded, False)):
        written = signed(replace(known, finding=finding))
        check = to_stored(asked, written, Kind.VERDICT, deployment_id=8, epoch_id=9, recommendation_id=None).check()
        assert (check.intact, check.reproduced) == (True, reproduced)


@pytest.mark.parametrize("body", ["[]", '{"receipt": 7}', "words", '{"receipt": "{}", "inputs": "{}"}'])
def test_a_body_that_holds_no_receipt_stays_as_it_is(body: str) -> None:
    assert resealed(body) == body
