"""Setting, showing and withdrawing prices: past costs change only after confirmation."""

import json
import os
import pty
import select
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pertoken.cli import main
from pertoken.costs.ledger import BillTotal
from pertoken.costs.prices.stored import prices_set
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import open_store
from pertoken.store.repository import AdviceRepository, PricesChanged
from tests.forked import run_at_once
from tests.postgres import server_url
from tests.scenario import LOW_BATCH_70B, seed
from tests.values import new_store, set_price

NOW = int(time.time()) // 60 * 60
END = NOW - 120
"""So far back that the minute under way holds nothing."""


@pytest.fixture
def where(tmp_path: Path) -> StoreLocation:
    """Two hours of two GPUs that a model holds, without a price."""
    return seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=120, end_ts=END)


def run(where: StoreLocation, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["prices", *arguments, "--db", str(where)], catch_exceptions=False)


def past(where: StoreLocation, end_ts: int = END) -> BillTotal | None:
    return fleet_report(open_store(where), 7200, end_ts).bill


def dollars(bill: BillTotal | None) -> float | None:
    return None if bill is None else bill.paid / 1e9


@pytest.mark.parametrize(
    "again", ["h100", " H100", "NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3", "gpu", "H100 SXM5", "GPU-0"]
)
def test_another_spelling_or_another_way_to_name_a_device_is_no_first_price(where: StoreLocation, again: str) -> None:
    assert run(where, "set", "6.88", "--for", "H100").exit_code == 0
    before = past(where)
    assert dollars(before) == pytest.approx(4 * 6.88)
    done = run(where, "set", "5", "--for", again)
    assert done.exit_code == 0 and "from 20" in done.output, done.output
    assert past(where) == before
    assert "Costs before that stay as they are; `--from ever` would change them" in done.output


def test_a_list_price_is_a_price_and_a_device_without_any_gets_one_from_the_beginning(where: StoreLocation) -> None:
    assert "from the beginning" in run(where, "set", "1", "--for", "A100").output
    assert "from the beginning" in run(where, "set", "0.5", "--for", "cpu").output
    assert "from the beginning" in run(where, "set", "2", "--for", "H100").output
    assert "from 20" in run(where, "set", "3", "--for", "A100-SXM4-80GB").output, "nothing recorded has that name yet"


def test_a_price_from_the_past_shows_the_changed_dollars_and_needs_a_confirmation(
    where: StoreLocation,
) -> None:
    run(where, "set", "6.88", "--for", "H100")
    before = past(where)
    for start in ("ever", time.strftime("%Y-%m-%dT%H:%M", time.gmtime(END - 3600))):
        refused = run(where, "set", "5", "--for", "gpu-0", "--from", start)
        assert refused.exit_code == 2
        assert refused.stderr.count("\n") == 1 and "pass --yes" in refused.stderr
        assert past(where) == before
    assert "Cost of 1 x NVIDIA H100 80GB HBM3 from" in refused.stdout
    assert "(1.0 device-hours): $6.88 → $5.00" in refused.stdout
    done = run(where, "set", "5", "--for", "gpu-0", "--from", start, "--yes")
    assert done.exit_code == 0, done.output
    assert dollars(past(where)) == pytest.approx(3 * 6.88 + 5)


@pytest.mark.parametrize(("answer", "paid"), [("y", 20.0), ("n", 4 * 6.88)])
def test_at_a_terminal_the_person_is_asked(where: StoreLocation, answer: str, paid: float) -> None:
    run(where, "set", "6.88", "--for", "H100")
    command = ("prices", "set", "5", "--for", "H100", "--from", "ever", "--db", str(where))
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "pertoken", *command], stdin=theirs, stdout=theirs, stderr=subprocess.STDOUT
    ) as process:
        os.close(theirs)
        shown, until = b"", time.monotonic() + 60
        while b"[y/N]" not in shown:
            assert select.select([ours], [], [], max(0.0, until - time.monotonic()))[0], shown
            shown += os.read(ours, 4096)
        assert b"2 x NVIDIA H100 80GB HBM3" in shown and "$27.52 → $20.00".encode() in shown
        os.write(ours, f"{answer}\n".encode())
        assert process.wait(60) == (0 if answer == "y" else 2)
    os.close(ours)
    assert dollars(past(where)) == pytest.approx(paid)


def test_the_devices_are_named_before_anything_is_written_and_when_a_price_begins(where: StoreLocation) -> None:
    future = run(where, "set", "3", "--for", "H100", "--from", "2999-01-01")
    lines = future.output.splitlines()
    assert lines[:2] == [
        "H100: $3.00 an hour, begins 2999-01-01 00:00Z.",
        "It applies to 2 x NVIDIA H100 80GB HBM3.",
    ]
    assert past(where) is None
    shown = run(where, "show").output
    assert "begins 2999-01-01 00:00Z" in shown and "It applies to 2 x NVIDIA H100 80GB HBM3." in shown
    assert json.loads(run(where, "show", "--json").output)[0]["devices"] == ["GPU-0", "GPU-1"]


def test_a_price_that_matches_no_device_is_stored_with_a_notice(where: StoreLocation) -> None:
    assert "No recorded device matches 'A100' yet" in run(where, "set", "1", "--for", "A100").output
    odd = run(where, "set", "1", "--for", "H10")
    assert odd.exit_code == 0
    assert "Nothing recorded or in the catalog matches 'H10' yet; recorded: NVIDIA H100 80GB HBM3." in odd.output
    assert past(where) is None


def test_a_price_for_a_pattern_lists_the_devices_that_keep_a_more_exact_one(where: StoreLocation) -> None:
    run(where, "set", "6.88", "--for", "GPU-1")
    done = run(where, "set", "2", "--for", "gpu")
    assert "1 x NVIDIA H100 80GB HBM3: $6.88 an hour of GPU-1 applies then." in done.output


@pytest.mark.parametrize("selector", ["", "  ", "-", "()"])
def test_a_blank_device_is_refused(where: StoreLocation, selector: str) -> None:
    refused = run(where, "set", "1", f"--for={selector}")
    assert refused.exit_code == 2 and "the device is blank" in refused.stderr
    assert run(where, "show", "--json").output.strip() == "[]"


@pytest.mark.parametrize(
    ("written", "nano"),
    [("2.499999999", 2_499_999_999), ("0.000000001", 1), ("0", 0), ("$1e3", 10**12), ("1000000", 10**15)],
)
def test_a_price_is_kept_to_the_nano_dollar(where: StoreLocation, written: str, nano: int) -> None:
    assert run(where, "set", written, "--for", "H100").exit_code == 0
    (price,) = prices_set(open_store(where))
    assert price.nano_usd_per_device_hour == nano
    assert f"{nano // 10**9:,}." in run(where, "show").output
    assert f"${nano // 10**9:,}.{nano % 10**9:09}".rstrip("0") in run(where, "show").output


@pytest.mark.parametrize(
    "written", ["-0.01", "nan", "inf", "sNaN", "1000000.01", "1e999999", "0.0000000001", "1,5", ""]
)
def test_a_value_that_is_no_price_is_refused(where: StoreLocation, written: str) -> None:
    refused = run(where, "set", written, "--for", "H100")
    assert refused.exit_code == 2 and refused.stderr.count("\n") == 1
    assert prices_set(open_store(where)) == ()


def test_a_price_taken_back_leaves_past_costs_and_its_history(where: StoreLocation) -> None:
    run(where, "set", "6.88", "--for", "H100")
    before = past(where)
    half = time.strftime("%Y-%m-%dT%H:%M", time.gmtime(END - 1800))
    done = run(where, "unset", "h100")
    assert done.exit_code == 0 and "H100: no price, from 20".lower() in done.output.lower()
    assert "2 x NVIDIA H100 80GB HBM3: no price is known then." in done.output
    assert past(where) == before
    assert fleet_report(open_store(where), 3600, int(time.time())).nano_usd_per_hour is None
    refused = run(where, "unset", "H100", "--from", half)
    assert refused.exit_code == 2 and "$6.88 → no price" in refused.stdout
    assert past(where) == before
    assert run(where, "unset", "H100", "--from", half, "--yes").exit_code == 0
    after = past(where)
    assert after is not None and after.paid == pytest.approx(3 * 6.88e9)
    shown = json.loads(run(where, "show", "--json").output)
    assert [price["nano_usd_per_device_hour"] for price in shown].count(None) == 2
    assert 6_880_000_000 in [price["nano_usd_per_device_hour"] for price in shown]
    assert "no price" in run(where, "show").output


def test_a_price_that_was_never_set_cannot_be_taken_back(where: StoreLocation) -> None:
    run(where, "set", "1", "--for", "H100")
    refused = run(where, "unset", "A100")
    assert refused.exit_code == 2 and "no price is set for 'A100'; prices are set for H100" in refused.stderr


@pytest.mark.parametrize("loose", ["H10", "", "100 80", "NVIDIA H"])
def test_an_old_price_for_a_part_of_a_word_is_flagged_where_it_matters(where: StoreLocation, loose: str) -> None:
    set_price(where, loose, 10**9)
    assert f"{loose!r} no longer prices NVIDIA H100 80GB HBM3" in run(where, "show").stderr
    hints = fleet_report(open_store(where), 7200, END).hints
    assert any(f"The price for '{loose}' is no longer one for NVIDIA H100 80GB HBM3" in hint for hint in hints)


@pytest.fixture(params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreLocation]:
    if request.param == "sqlite":
        yield new_store(tmp_path)
        return
    with server_url(tmp_path / "server") as url:
        yield new_store(locate(url))


def test_two_people_who_set_a_price_at_once_both_set_one_and_the_second_counts(shared: StoreLocation) -> None:
    values: dict[str, Any] = {"selector": "H100", "from_ts": 0, "set_ts": 5, "set_by": "x", "note": None}
    with AdviceRepository(shared).writing() as connection:
        repository.add_price(connection, nano_usd_per_device_hour=1, read_seq=0, **values)
    with pytest.raises(PricesChanged), AdviceRepository(shared).writing() as connection:
        repository.add_price(connection, nano_usd_per_device_hour=2, read_seq=0, **values)
    with AdviceRepository(shared).writing() as connection:
        repository.add_price(connection, nano_usd_per_device_hour=3, read_seq=1, **values)
    assert [price.nano_usd_per_device_hour for price in prices_set(open_store(shared))] == [1, 3]


def test_many_who_set_prices_at_once_lose_none(shared: StoreLocation) -> None:
    url = shared.url.render_as_string(hide_password=False) if shared.url else str(shared)
    done = run_at_once([["prices", "set", f"{n}", "--for", "H100", "--from", "now", "--db", url] for n in range(1, 5)])
    assert [code for code, _ in done] == [0, 0, 0, 0], done
    prices = prices_set(open_store(shared))
    assert sorted(price.nano_usd_per_device_hour or 0 for price in prices) == [n * 10**9 for n in range(1, 5)]
    assert sorted(price.seq for price in prices) == [1, 2, 3, 4]


def test_prices_of_an_older_pertoken_keep_the_order_they_were_set_in(tmp_path: Path) -> None:
    stored = Path(__file__).parents[3] / "migrations" / "stored" / "advice-0001.sql"
    with closing(sqlite3.connect(tmp_path / "advice.db")) as connection:
        connection.executescript(stored.read_text())
        rows = ((7, "gpu", 3, 0, 300), (8, "gpu", 1, 0, 100), (9, "gpu", 2, 0, 200))
        connection.executemany("INSERT INTO price VALUES (?, ?, ?, ?, ?, 'x', NULL)", rows)
        connection.commit()
    where = new_store(tmp_path)
    prices = [price for price in prices_set(open_store(where)) if price.selector == "gpu"]
    assert [price.nano_usd_per_device_hour for price in prices] == [1, 2, 3]
    assert run(where, "set", "4", "--for", "gpu", "--from", "ever").exit_code == 0
    assert prices_set(open_store(where))[-1].nano_usd_per_device_hour == 4 * 10**9
