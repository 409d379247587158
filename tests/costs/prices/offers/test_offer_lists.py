"""Changes and refusals of a person's list of offers."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from pertoken.catalog.market import load_market
from pertoken.catalog.offers import Offer, newest
from pertoken.costs.prices.offers import difference, read_list
from pertoken.errors import BadInput
from pertoken.units import NANO_USD

TODAY, NOW = date(2026, 11, 22), 1_795_305_600
MARKET = load_market()
HEADER = "provider,instance_type,accelerator,n_devices,region,purchase,usd_per_hour,as_of,source"
ROW = "AWS,p5.48xlarge,NVIDIA H100 80GB HBM3,8,us-east-1,on-demand,48,2026-11-20,our contract"


def offers(tmp_path: Path, *rows: str) -> tuple[Offer, ...]:
    file = tmp_path / "list.csv"
    file.write_text("\n".join((HEADER, *rows)))
    return read_list(file, MARKET)


def test_a_csv_and_a_json_list_are_the_same_offers(tmp_path: Path) -> None:
    (offer,) = offers(tmp_path, ROW)
    assert (offer.provider, offer.accelerator, offer.purchase) == ("aws", "H100 SXM5", "on_demand")
    assert offer.nano_usd_per_device_hour == 6 * NANO_USD and offer.confidence == "high"
    file = tmp_path / "list.json"
    file.write_text(json.dumps([dict(zip(HEADER.split(","), ROW.split(","), strict=True)) | {"usd_per_hour": 48.0}]))
    assert read_list(file, MARKET) == (offer,)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (ROW.replace(",48,", ",,"), "row 1: usd_per_hour is missing"),
        (ROW.replace(",48,", ",much,"), "row 1: n_devices is a whole number"),
        (ROW.replace(",48,", ",nan,"), "row 1: n_devices is a whole number"),
        (ROW.replace(",8,", ",0,"), "row 1: n_devices is a whole number"),
        (ROW.replace("2026-11-20", "yesterday"), "as_of a date"),
        ('"', "not valid CSV"),
    ],
)
def test_a_wrong_row_is_named_with_its_column(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        offers(tmp_path, row)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "not valid JSON"),
        ("a.json", '{"a": 1}', "must be a list of objects"),
        ("a.json", '[{"price": 1}]', "'price' is no column"),
        ("a.csv", "", "holds no offer"),
        ("a.csv", f"{HEADER},surprise\n{ROW},x", "'surprise' is no column"),
    ],
)
def test_a_file_that_is_no_list_of_offers_is_refused_in_one_sentence(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(BadInput, match=message):
        read_list(file, MARKET)
    with pytest.raises(BadInput, match="cannot be read"):
        read_list(tmp_path / "missing.csv", MARKET)


def test_new_changed_confirmed_and_outdated_offers_are_distinguished(tmp_path: Path) -> None:
    changes = difference(
        offers(
            tmp_path,
            ROW,
            ROW.replace("us-east-1", "us-west-9").replace(",48,", ",50,"),
            ROW.replace("us-east-1", "ap-south-1").replace(",48,", ",99.99,").replace("2026-11-20", "2024-01-01"),
            "lambda,gpu_8x_h100_sxm5,H100 SXM5,8,any,on_demand,31.92,2026-11-20,lambda.ai",
        ),
        MARKET,
        TODAY,
        NOW,
    )
    assert [offer.region for offer in changes.new] == ["us-west-9"] and changes.new[0].from_ts is None
    ((before, after),) = changes.changed
    assert (before.nano_usd_per_hour, after.nano_usd_per_hour) == (55_040_000_000, 48_000_000_000)
    assert after.from_ts == NOW, "past costs stay as they are"
    assert [offer.provider for offer in changes.confirmed] == ["lambda"] and changes.outdated == 1
    assert len(changes.written) == 3 and not changes.refused


def test_prices_of_a_list_are_held_against_those_that_are_known(tmp_path: Path) -> None:
    changes = difference(
        offers(
            tmp_path,
            ROW.replace("on-demand", "spot").replace(",48,", ",55.04,"),
            ROW.replace("us-east-1", "us-west-9").replace(",48,", ",22,"),
            ROW.replace("us-east-1", "us-west-8").replace(",8,", ",4,"),
        ),
        MARKET,
        TODAY,
        NOW,
    )
    reasons = [fault.reason for fault in changes.refused]
    assert reasons[0] == "spot costs as much as on-demand there ($6.88): no discount is offered"
    assert "it is a committed price" in reasons[1] and reasons[2] == "it lists 4 devices, and a p5.48xlarge has 8"
    assert not changes.written


def test_the_same_row_twice_is_one_and_two_prices_for_one_offer_are_none(tmp_path: Path) -> None:
    assert len(difference(offers(tmp_path, ROW, ROW), MARKET, TODAY, NOW).changed) == 1
    twice = difference(offers(tmp_path, ROW, ROW.replace(",48,", ",49,")), MARKET, TODAY, NOW)
    assert len(twice.refused) == 2 and not twice.written
    assert "the list contradicts itself: $6 and $6.125" in twice.refused[0].reason


def test_the_catalog_itself_changes_nothing() -> None:
    changes = difference(MARKET.all_offers, MARKET, TODAY, NOW)
    assert (changes.written, changes.refused, changes.outdated) == ((), (), len(MARKET.all_offers))
    later = [replace(offer, as_of=TODAY) for offer in newest(MARKET.all_offers)]
    assert len(difference(later, MARKET, TODAY, NOW).confirmed) == len(later)


def test_offers_that_a_complete_list_no_longer_holds_are_gone_and_those_of_others_are_not() -> None:
    kept = [offer for offer in newest(MARKET.all_offers) if offer.provider == "lambda"]
    gone = difference(kept[1:], MARKET, TODAY, NOW, complete=("lambda",)).gone
    assert gone == (kept[0],)
    assert difference(kept[1:], MARKET, TODAY, NOW).gone == (), "a file of a person holds what it holds"
    everything = difference([], MARKET, TODAY, NOW, complete=("gcp",)).gone
    assert {offer.purchase for offer in everything} == {"on_demand", "spot"}
    assert not {"CPU", "TPU v6e"} & {offer.accelerator for offer in everything}
