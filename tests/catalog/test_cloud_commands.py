"""Commands of clouds: filled in, quoted, and made of options that their tools have."""

import json
import re
import shlex
from pathlib import Path

import pytest

from pertoken.catalog.clouds import CloudCommands, cloud_commands

OPTIONS = json.loads(Path(__file__).with_name("cloud_options.json").read_text())
"""Options that the commands use, found in the tools named by `source`; gcloud's in its reference."""


def lines(cloud: CloudCommands, host: str = "gpu-1", region: str = "eu-1") -> list[str]:
    """Return all commands of a cloud."""
    ordered = [cloud.ordered("big.48xlarge", region, spot=spot) for spot in (False, True)]
    bought = cloud.committed("big.48xlarge", region, years=3, usd_per_hour=43.5)
    return [*cloud.released(host, region), *ordered, *bought]


@pytest.mark.parametrize("cloud", cloud_commands().values(), ids=lambda cloud: cloud.name)
def test_commands_have_only_options_of_the_tool(cloud: CloudCommands) -> None:
    assert cloud.source and cloud.as_of and OPTIONS[cloud.name]["source"]
    for line in lines(cloud):
        words = shlex.split(line.removeprefix("INSTANCE=$("), comments=True)
        command = " ".join(word for word in words[:5] if re.fullmatch("[a-z0-9-]+", word) and word[0] != "-")
        known = next(options for name, options in OPTIONS[cloud.name]["commands"].items() if command.startswith(name))
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= set(known), line


@pytest.mark.parametrize("cloud", cloud_commands().values(), ids=lambda cloud: cloud.name)
def test_values_unknown_to_the_host_are_named_after_the_command(cloud: CloudCommands) -> None:
    for line in lines(cloud):
        command, _, note = line.removeprefix("INSTANCE=$(").partition("  # ")
        unknown = set(re.findall(r"\b(?:INSTANCE|TEMPLATE|ZONE|NAME|GROUP|IMAGE|OFFERING)\b", command))
        assert {word for word in unknown if f"{word}: " not in note} == set(), line


@pytest.mark.parametrize("cloud", cloud_commands().values(), ids=lambda cloud: cloud.name)
def test_a_name_is_one_word_whatever_is_in_it(cloud: CloudCommands) -> None:
    plain = [len(shlex.split(line, comments=True)) for line in lines(cloud)]
    nasty = "x; rm -rf ~ $(id) '"
    assert [len(shlex.split(line, comments=True)) for line in lines(cloud, nasty, nasty)] == plain


def test_a_spot_instance_is_ordered_as_one() -> None:
    for cloud in cloud_commands().values():
        on_demand, spot = (cloud.ordered("big", "eu-1", spot=spot_only).lower() for spot_only in (False, True))
        assert "spot" in spot and "spot" not in on_demand


def test_a_commitment_is_to_the_dollars_of_all_its_instances() -> None:
    offers, buy = cloud_commands()["aws"].committed("p5.48xlarge", "us-east-1", years=1, usd_per_hour=98.32)
    assert " --durations 31536000 " in offers and "name=instanceFamily,values=p5" in offers
    assert " --commitment 98.32  # OFFERING: " in buy
    (line,) = cloud_commands()["gcp"].committed("a3-highgpu-8g", "us-central1", years=3, usd_per_hour=37.9)
    assert "--plan=36-month" in line
    assert cloud_commands()["azure"].committed("x", "eastus", years=1, usd_per_hour=1.0) == ()
