import csv
import json
import os
import subprocess
from collections import defaultdict
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from pertoken.config import Settings
from pertoken.reports.figures import read_figures
from pertoken.reports.focus import columns, energy_by_day, focus_csv
from pertoken.settings.fleet import HostSettings
from pertoken.store.connect.open import open_store
from pertoken.units import NANO_USD
from tests.reports.builders import END, period, store_of
from tests.scenario import LOW_BATCH_70B, seed

Rows = list[dict[str, str]]


def focus_text(folder: Path, settings: Settings) -> str:
    store = store_of(folder, 6.123456789)
    return focus_csv(read_figures(store, settings, period()), settings, energy_by_day(store, period()))


@pytest.fixture
def text(tmp_path: Path) -> str:
    return focus_text(tmp_path / "db", Settings())


@pytest.fixture
def rows(text: str) -> Rows:
    return list(csv.DictReader(text.splitlines()))


def test_rows_sum_to_the_ledger_exactly(rows: Rows, tmp_path: Path) -> None:
    report = read_figures(store_of(tmp_path / "other", 6.123456789), Settings(), period())
    assert report.bill is not None
    for column in ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"):
        assert sum(Decimal(row[column]) for row in rows) * NANO_USD == report.bill.paid
    idle = sum(Decimal(row["BilledCost"]) for row in rows if row["x_Use"] == "idle")
    assert idle * NANO_USD == report.bill.idle > 0


def test_rows_of_a_device_and_day_sum_to_their_origin(rows: Rows) -> None:
    origins: dict[str, Rows] = defaultdict(list)
    for row in rows:
        origins[row["x_OriginChargeId"]].append(row)
    assert len(origins) == 8, "four devices on two days"
    for parts in origins.values():
        assert sum(Decimal(row["BilledCost"]) for row in parts) == Decimal(parts[0]["x_OriginCost"])
        ratios = [json.loads(row["AllocatedMethodDetails"])["Elements"][0]["AllocatedRatio"] for row in parts]
        assert sum(map(Decimal, map(str, ratios))) == 1
        assert len({row["ResourceId"] for row in parts}) == 1
    quantity = sum(Decimal(row["PricingQuantity"]) for row in rows)
    assert quantity == pytest.approx(Decimal(4 * 3))


def test_tokens_stand_in_rows_of_busy_time_and_sum_to_those_served(rows: Rows) -> None:
    assert sum(int(row["x_GeneratedTokens"] or 0) for row in rows) == 40 * 3600 * 3
    assert {row["x_Use"] for row in rows if row["x_PromptTokens"]} == {"busy"}
    assert {row["x_Use"] for row in rows} == {"busy", "idle", "unallocated"}


def test_no_row_is_null_where_focus_forbids_it(rows: Rows) -> None:
    for column in columns():
        if not column.nullable:
            assert all(row[column.name] for row in rows), column.name


def test_a_host_s_settings_name_its_provider_region_and_resource(tmp_path: Path) -> None:
    host = HostSettings("gpu-1", provider="aws", region="us-east-1", purchase="spot", resource_id="i-0abc")
    row = next(csv.DictReader(focus_text(tmp_path / "db", Settings(hosts=(host,))).splitlines()))
    assert (row["HostProviderName"], row["RegionId"], row["PricingCategory"]) == ("AWS", "us-east-1", "Dynamic")
    assert row["ResourceId"].startswith("i-0abc/")


@pytest.mark.skipif("PERTOKEN_FOCUS_VALIDATOR" not in os.environ, reason="PERTOKEN_FOCUS_VALIDATOR names no validator")
def test_the_validator_of_the_finops_foundation_finds_nothing_but_its_own_contradiction(
    text: str, tmp_path: Path
) -> None:
    """It asks both that InvoiceId be null and that it not be, whatever the rows are (2.2.1)."""
    file = tmp_path / "focus.csv"
    rows = list(csv.DictReader(text.splitlines()))
    with file.open("w", encoding="utf-8", newline="") as opened:
        # Its rules are those of 1.2, which has two columns that 1.4 removed.
        removed = ("ProviderName", "PublisherName")
        writer = csv.DictWriter(opened, [*removed, *rows[0]])
        writer.writeheader()
        writer.writerows({**row, **dict.fromkeys(removed, row["ServiceProviderName"])} for row in rows)
    validator = os.environ["PERTOKEN_FOCUS_VALIDATOR"]
    command = [validator, "--data-file", str(file), "--validate-version", "1.2.0.1", "--block-download"]
    done = subprocess.run(
        [*command, "--focus-dataset", "CostAndUsage"],
        capture_output=True,
        text=True,
        check=False,
        cwd=os.environ.get("PERTOKEN_FOCUS_VALIDATOR_FOLDER", "."),
    )
    failed = [line.split()[1].rstrip(":") for line in done.stdout.splitlines() if "FAIL" in line]
    assert set(failed) <= {"InvoiceId-C-005-C"} and "Pass:" in done.stdout


def test_owners_are_tags_of_what_was_allocated_to_them(tmp_path: Path) -> None:
    owned = replace(LOW_BATCH_70B, knobs={**LOW_BATCH_70B.knobs, "label:team": "search", "job": "7"})
    store = open_store(seed(tmp_path / "db", owned, gpus=3, usd_per_hour=6.0, minutes=60, end_ts=END))
    report = read_figures(store, Settings(), period())
    rows = csv.DictReader(focus_csv(report, Settings(), {}).splitlines())
    owners = {(row["x_Use"], json.loads(row["AllocatedTags"]).get("label:team")) for row in rows}
    assert owners == {("busy", "search"), ("idle", "search"), ("unallocated", None)}
