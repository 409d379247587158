import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pertoken.cli import main


def offers(folder: Path, *arguments: str) -> Result:
    command = ["prices", "offers", *arguments, "--db", str(folder / "db")]
    return CliRunner().invoke(main, command, catch_exceptions=False)


def test_list_prices_are_shown_cheapest_first_with_their_date_and_source(tmp_path: Path) -> None:
    shown = offers(tmp_path, "--provider", "AWS", "--accelerator", "l40s", "--region", "us-east-1")
    assert shown.exit_code == 0
    lines = shown.output.splitlines()
    assert "aws g6e." in lines[0] and "L40S" in lines[0] and "days ago" in lines[1]
    rows = json.loads(offers(tmp_path, "--provider", "aws", "--accelerator", "L40S", "--json").output)["offers"]
    prices = [row["nano_usd_per_device_hour"] for row in rows]
    assert prices == sorted(prices) and {row["accelerator"] for row in rows} == {"L40S"}
    assert all(row["source"] and row["age_days"] > 0 for row in rows)


def test_a_price_that_no_list_states_names_who_states_it(tmp_path: Path) -> None:
    arguments = ("--provider", "azure", "--accelerator", "A100 80GB PCIe", "--purchase", "spot")
    shown = offers(tmp_path, *arguments)
    assert "No list price matches." in shown.output
    assert "not listed: A100 80GB PCIe" in shown.output and "prices.azure.com" in shown.output
    (entry,) = json.loads(offers(tmp_path, *arguments, "--json").output)["unpriced"]
    assert entry["provider"] == "azure" and entry["why"]


def test_an_accelerator_with_prices_alone_is_marked_as_in_no_proposal(tmp_path: Path) -> None:
    shown = offers(tmp_path, "--accelerator", "TPU v6e").output
    assert "gcp v6e-1" in shown and "TPU v6e is priced for break-evens, and no rule proposes it" in shown


def test_old_prices_name_the_command_that_fetches_newer_ones(tmp_path: Path) -> None:
    shown = offers(tmp_path, "--accelerator", "TPU v5e").output
    assert "days old: `pertoken prices update` fetches newer ones." in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--accelerator", "H100"), "there are H100 NVL, H100 PCIe, H100 SXM5"),
        (("--accelerator", "Quadro"), "is none of the catalog"),
        (("--purchase", "flex"), "there are on_demand, spot"),
    ],
)
def test_an_unknown_filter_is_refused_with_what_there_is(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    refused = offers(tmp_path, *arguments)
    assert refused.exit_code == 2 and message in refused.stderr


def test_an_unknown_provider_has_no_list_price(tmp_path: Path) -> None:
    assert "No list price matches." in offers(tmp_path, "--provider", "nobody").output
