"""Prices with an end, and in another currency, as people set and read them."""

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pertoken.cli import main
from pertoken.costs.prices.stored import prices_set
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.units import format_utc
from tests.scenario import LOW_BATCH_70B, seed

NOW = int(time.time()) // 60 * 60
END = NOW - 120


@pytest.fixture
def where(tmp_path: Path) -> StoreLocation:
    """Two hours of two GPUs that a model holds, without a price."""
    return seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=120, end_ts=END)


def run(where: StoreLocation, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["prices", *arguments, "--db", str(where)], catch_exceptions=False)


def utc(ts: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M", time.gmtime(ts))


def test_a_price_with_an_end_counts_up_to_it_and_then_the_one_before_it_again(where: StoreLocation) -> None:
    assert run(where, "set", "6", "--for", "H100").exit_code == 0
    half = END - 3600
    done = run(where, "set", "2", "--for", "H100", "--from", "ever", "--until", utc(half), "--yes")
    assert done.exit_code == 0 and "ended" in done.output and "$12.00 → $4.00" in done.output
    bill = fleet_report(open_store(where), 7200, END).bill
    assert bill is not None and bill.paid / 1e9 == pytest.approx(2 * 2 + 2 * 6, rel=0.02)
    assert "2 x NVIDIA H100 80GB HBM3: $6.00 an hour of H100 applies then" in done.output


def test_after_the_end_of_the_only_price_there_is_none(where: StoreLocation) -> None:
    done = run(where, "set", "2", "--for", "H100", "--from", "ever", "--until", utc(END - 3600), "--yes")
    assert "2 x NVIDIA H100 80GB HBM3: no price is known then" in done.output
    bill = fleet_report(open_store(where), 7200, END).bill
    assert bill is not None and bill.paid / 1e9 == pytest.approx(2 * 2, rel=0.02)


def test_an_end_is_shown_and_stored(where: StoreLocation) -> None:
    done = run(where, "set", "6", "--for", "H100", "--until", "2099-12-31")
    assert "from the beginning to 2100-01-01 00:00" in done.output
    shown = run(where, "show")
    assert "from the beginning to 2100-01-01 00:00" in shown.output
    (price,) = json.loads(run(where, "show", "--json").output)
    assert price["until_ts"] == 4_102_444_800 and price["entered"] is None


def test_an_amount_in_euros_is_shown_as_entered_and_billed_in_dollars(where: StoreLocation) -> None:
    arguments = ("set", "2.00", "--for", "H100", "--currency", "EUR", "--rate", "1.08")
    done = run(where, *arguments, "--rate-date", "2026-01-02", "--rate-source", "ECB")
    stated = "$2.16 an hour, entered as 2.00 EUR (1 EUR = 1.08 USD, 2026-01-02, ECB)"
    assert done.exit_code == 0 and stated in done.output
    assert stated in run(where, "show").output
    (price,) = json.loads(run(where, "show", "--json").output)
    assert price["entered"]["amount"] == "2.00" and price["entered"]["currency"] == "EUR"
    (stored,) = prices_set(open_store(where))
    assert stored.nano_usd_per_device_hour == 2_160_000_000
    assert stored.entered is not None and stored.entered.nano_usd == 2_160_000_000
    bill = fleet_report(open_store(where), 7200, END).bill
    assert bill is not None and bill.paid / 1e9 == pytest.approx(4 * 2.16)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("2",), "a price needs DOLLARS and --for DEVICE"),
        (("--for", "H100"), "a price needs DOLLARS and --for DEVICE"),
        (("2", "--for", "H100", "--provider", "aws"), "--provider belongs to --discount"),
        (("2", "--for", "H100", "--currency", "EUR"), "no rate is assumed"),
        (("2", "--for", "H100", "--until", "2001-01-01"), "it ends before it starts"),
    ],
)
def test_half_a_price_is_refused_and_nothing_is_set(
    where: StoreLocation, arguments: tuple[str, ...], message: str
) -> None:
    start = ("--from", "now") if "--until" in arguments else ()
    refused = run(where, "set", *arguments, *start)
    assert refused.exit_code == 2 and message in refused.stderr
    assert prices_set(open_store(where)) == ()


@dataclass(frozen=True)
class Move:
    """The best move to another accelerator, as `pertoken advise` states it."""

    title: str
    price: str
    net: int
    """Likely, nano-USD per month."""


def best_move(where: StoreLocation) -> Move:
    done = CliRunner().invoke(main, ["advise", "--db", str(where), "--json"], catch_exceptions=False)
    rows = json.loads(done.output)["recommendations"]
    (best,) = (row["variants"][0] for row in rows if row["rule_id"] == "move-accelerator" and row["state"] == "OPEN")
    price = re.sub(r"up to \d+ days ago", "", best["assumptions"][0])  # an hour later may be the next day
    return Move(best["title"], price, best["saving"]["net"][1])


def test_advice_moves_to_what_a_price_in_euros_pays_until_it_ends_and_to_list_prices_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = ("aws", "p5.48xlarge", "us-east-1", "on_demand")
    where = seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=120, end_ts=END, instance=instance)
    listed = best_move(where)
    assert "L40S" not in listed.title
    end = NOW + 3600
    arguments = ("set", "0.50", "--for", "L40S", "--currency", "EUR", "--rate", "1.10", "--until", utc(end))
    assert run(where, *arguments).exit_code == 0
    agreed = best_move(where)
    assert "→ L40S" in agreed.title and "1 × g6e.12xlarge at aws us-east-1 at $2.20/h" in agreed.price
    assert "entered as 0.50 EUR (1 EUR = 1.10 USD" in agreed.price and f"it ends at {format_utc(end)}" in agreed.price
    assert agreed.net > listed.net
    present_s = time.time
    monkeypatch.setattr(time, "time", lambda: present_s() + 3700)
    assert best_move(where) == listed
