"""A negotiated discount on all list prices of a provider: its dollars, its end, and what it does not touch."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pertoken.cli import main
from pertoken.costs.prices.stored import discounts_set, market_of
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.state.deployment import Placement
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.repository import AdviceRepository, PricesChanged
from tests.scenario import LOW_BATCH_70B, seed

NOW = int(time.time()) // 60 * 60
END = NOW - 120
P5 = ("aws", "p5.48xlarge", "us-east-1", "on_demand")
LISTED = 6.88
"""Dollars of a device-hour of a p5.48xlarge in us-east-1."""


@pytest.fixture
def where(tmp_path: Path) -> StoreLocation:
    """Two hours of two GPUs of a detected instance, whose list price is known."""
    return seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=120, end_ts=END, instance=P5)


def run(where: StoreLocation, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["prices", *arguments, "--db", str(where)], catch_exceptions=False)


def paid(where: StoreLocation) -> float:
    bill = fleet_report(open_store(where), 7200, END).bill
    assert bill is not None
    return bill.paid / 1e9


def utc(ts: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M", time.gmtime(ts))


def test_a_discount_from_now_changes_no_past_costs_and_is_shown_with_its_end(where: StoreLocation) -> None:
    before = paid(where)
    assert before == pytest.approx(4 * LISTED)
    done = run(where, "set", "--discount", "30%", "--provider", "AWS", "--until", "2099-12-31", "--note", "contract 7")
    assert done.exit_code == 0 and "aws: 30 % on" in done.output and "to 2100-01-01 00:00Z" in done.output
    assert paid(where) == before
    shown = run(where, "show").output
    assert "30 %  list prices of aws  (set" in shown and "contract 7" in shown
    (discount,) = [row for row in json.loads(run(where, "show", "--json").output) if "millionths" in row]
    assert (discount["provider"], discount["millionths"], discount["until_ts"]) == ("aws", 300_000, 4_102_444_800)


def test_a_discount_from_the_past_shows_the_changed_dollars_and_needs_a_confirmation(where: StoreLocation) -> None:
    start = utc(END - 3600)
    refused = run(where, "set", "--discount", "50%", "--provider", "aws", "--from", start)
    assert refused.exit_code == 2 and "pass --yes" in refused.stderr and not discounts_set(open_store(where)).all
    assert "$13.76 → $6.88" in refused.stdout
    assert run(where, "set", "--discount", "50%", "--provider", "aws", "--from", start, "--yes").exit_code == 0
    assert paid(where) == pytest.approx(3 * LISTED)


def test_a_discount_holds_from_its_start_to_its_end(where: StoreLocation) -> None:
    until = utc(END - 3600)
    done = run(where, "set", "--discount", "50%", "--provider", "aws", "--from", "ever", "--until", until, "--yes")
    assert done.exit_code == 0 and paid(where) == pytest.approx(3 * LISTED)
    assert "less 50 % negotiated with aws" in run(where, "show").output


def test_a_discount_is_of_list_prices_and_not_of_prices_that_were_set(where: StoreLocation) -> None:
    run(where, "set", "2", "--for", "H100", "--from", "ever", "--yes")
    run(where, "set", "--discount", "50%", "--provider", "aws", "--from", "ever", "--yes")
    assert paid(where) == pytest.approx(4 * 2)


def test_advice_compares_with_offers_less_the_discount(where: StoreLocation) -> None:
    h100 = Placement("aws", "us-east-1", "p5.48xlarge", "H100 SXM5")
    listed = market_of(open_store(where)).offers_at(h100)[0]
    run(where, "set", "--discount", "25%", "--provider", "aws", "--until", "2099-12-31")
    store = open_store(where)
    agreed = market_of(store).offers_at(h100)[0]
    assert agreed.nano_usd_per_device_hour == listed.nano_usd_per_device_hour * 3 // 4
    assert "less 25 % negotiated with aws" in agreed.note and agreed.key == listed.key
    assert market_of(store, now_ts=4_102_444_800).offers_at(h100)[0] == listed, "after its end"
    elsewhere = replace(h100, provider="lambda", region=None, instance_type=None)
    assert all("negotiated" not in offer.note for offer in market_of(store).offers_at(elsewhere))


def test_a_withdrawn_discount_ends_and_its_history_stays(where: StoreLocation) -> None:
    run(where, "set", "--discount", "50%", "--provider", "aws", "--from", "ever", "--yes")
    done = run(where, "unset", "--provider", "aws", "--from", utc(END - 3600), "--yes")
    assert done.exit_code == 0 and "aws: no discount" in done.output
    assert paid(where) == pytest.approx(3 * LISTED)
    assert len(discounts_set(open_store(where)).all) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("set", "--discount", "30%"), "a discount is set as"),
        (("set", "--discount", "30%", "--provider", "aws", "--for", "H100"), "a discount is set as"),
        (("set", "2", "--discount", "30%", "--provider", "aws"), "a discount is set as"),
        (("set", "--discount", "30%", "--provider", "aws", "--currency", "EUR"), "a discount is set as"),
        (("set", "--discount", "30", "--provider", "aws"), "write percent"),
        (("set", "--discount", "30%", "--provider", "amazon"), "no list price of 'amazon' is known"),
        (("unset", "--provider", "aws"), "no discount is set for 'aws'"),
        (("unset",), "name the DEVICE"),
        (("unset", "H100", "--provider", "aws"), "name the DEVICE"),
    ],
)
def test_half_a_discount_is_refused_and_nothing_is_set(
    where: StoreLocation, arguments: tuple[str, ...], message: str
) -> None:
    refused = run(where, *arguments)
    assert refused.exit_code == 2 and message in refused.stderr, refused.output
    assert not discounts_set(open_store(where)).all


def test_of_two_people_who_set_a_discount_at_once_the_second_looks_again(where: StoreLocation) -> None:
    run(where, "set", "--discount", "30%", "--provider", "aws")
    with AdviceRepository(where).writing() as connection, pytest.raises(PricesChanged, match="someone else"):
        repository.add_discount(connection, read_seq=0, provider="aws", from_ts=0, set_ts=0, set_by="ann")
