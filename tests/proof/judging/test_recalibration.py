"""Receipts that calibrate the forecast of their host, from the database to the estimate of the next change."""

import math
from dataclasses import replace

import pytest

from pertoken.advisor.present import Present, present
from pertoken.catalog.market import load_market
from pertoken.proof import verdicts
from pertoken.proof.judging import receipts
from pertoken.proof.judging.receipts import Kind, proven_verdicts, realised_by
from pertoken.proof.receipt import ReceiptChange, receipt
from pertoken.proof.recommendation import Edit
from pertoken.proof.verdicts import BY_TRIAL, Judgement, Verdict, VerdictResult
from pertoken.savings.estimate import Estimate, estimate
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store, writing
from pertoken.store.repository import AdviceRepository
from tests.proof.histories import asked
from tests.scenario import LOW_BATCH_70B, seed

MARKET = load_market()
END = 1_790_000_040 // 60 * 60


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> StoreLocation:
    where = seed(tmp_path_factory.mktemp("db"), LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=30, end_ts=END)
    writing(where, "advice").dispose()
    return where


def seen(where: StoreLocation) -> Present:
    return present(open_store(where), MARKET, 1800, END)


def verdict(deployment_id: int, **values: object) -> Verdict:
    """Weights came back from 8 to 16 bits, and a token took 10 % more device time."""
    known = Verdict(
        deployment_id,
        5,
        4,
        END - 20 * 86_400,
        "70B on gpu-1",
        (Edit("deployment", deployment_id, "weight_dtype", "fp8", "bf16"),),
        judgement=Judgement(VerdictResult.DEARER, (0.08, 0.10, 0.12)),
        judged_ts=END - 13 * 86_400,
    )
    return replace(known, **values)  # type: ignore[arg-type]


def quantized(fleet_state: Present) -> Estimate:
    service = fleet_state.fleet.services[0]
    return estimate(fleet_state.fleet, fleet_state.fleet.edit(service.but(weight_dtype="fp8")), fleet_state.context)


def test_the_receipt_of_a_change_corrects_the_estimate_of_the_next_one_and_is_named_by_it(where: StoreLocation) -> None:
    before = seen(where)
    (deployment,) = before.fleet.deployments
    plain = quantized(before)
    mine = verdict(deployment.deployment_id)
    question = asked(1)
    made = receipt(question, ReceiptChange("weights", mine.name, "fp8"), END, None)
    stored = receipts.to_stored(
        question,
        made,
        Kind.VERDICT,
        deployment_id=mine.deployment_id,
        epoch_id=mine.epoch_id,
        recommendation_id=None,
    )
    with AdviceRepository(where).writing() as connection:
        verdicts.write(connection, [mine])
    assert proven_verdicts(open_store(where)) == ()  # a verdict without a receipt proves nothing
    with AdviceRepository(where).writing() as connection:
        receipts.add(connection, [stored])
    after = seen(where)
    priced = quantized(after)
    assert plain.throughput_ratio is not None and priced.throughput_ratio is not None
    assert abs(math.log(priced.throughput_ratio[1] / 1.1)) < 0.6 * abs(math.log(plain.throughput_ratio[1] / 1.1))
    (named,) = (assumption for assumption in priced.assumptions if "calibrated by the receipt" in assumption)
    assert "+10.0% (+8.0% to +12.0%) device time per token since it ran with weight_dtype fp8" in named
    assert not any("calibrated by the receipt" in assumption for assumption in plain.assumptions)


def test_unproven_and_later_changed_results_and_those_of_other_fields_calibrate_nothing(where: StoreLocation) -> None:
    fleet = seen(where).fleet
    key = fleet.deployments[0].deployment_id
    (change,) = realised_by([verdict(key)], fleet)[key]
    assert change.old_values == (("weight_dtype", "fp8"),) and change.ratio == (1.08, 1.10, 1.12)
    (edit,) = verdict(key).edits
    for other in (
        verdict(key, judgement=Judgement(VerdictResult.INCONCLUSIVE, (-0.3, 0.1, 0.5), "too wide")),
        verdict(key, judgement=replace(verdict(key).judgement, method=BY_TRIAL)),
        verdict(key, edits=(replace(edit, after="int8"),)),
        verdict(key, edits=(edit, Edit("deployment", key, "device_ids", [1], [2]))),
        verdict(key, edits=()),
        verdict(key + 1),
    ):
        assert realised_by([other], fleet) == {}
    driver = verdict(key, edits=(edit, Edit("deployment", key, "driver", "570", "580")))
    assert realised_by([driver], fleet)[key] == (change,)
