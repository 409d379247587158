"""`pertoken claims`: on references without a database, and on the services of a recorded host."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pertoken.advisor.rules import discovery
from pertoken.advisor.rules.discovery import find_rules
from tests.cli.builders import NOW, run
from tests.scenario import LOW_BATCH_70B, seed

RULES = ("quantize-weights", "move-accelerator")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A host of four H100s, two of them in use, and advice of a few rules on it."""

    def find(*arguments: Any) -> list[Any]:
        return [candidate for candidate in find_rules(*arguments) if candidate.name in RULES]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discovery, "find_rules", find)
        folder = tmp_path_factory.mktemp("claims") / "db"
        seed(folder, LOW_BATCH_70B, gpus=4, usd_per_hour=6.88, minutes=30, end_ts=NOW - 120)
        assert run("advise", "--db", str(folder), "--since", "1h").exit_code == 0
        yield folder


def listed(*arguments: str) -> dict[str, Any]:
    done = run("claims", *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return {row["id"]: row for row in json.loads(done.stdout)}


def test_a_word_selects_claims_and_an_unknown_one_lists_the_topics(tmp_path: Path) -> None:
    assert {"batch-32-cost", "batch-32-latency"} <= listed("batch").keys()
    refused = run("claims", "blockchain")
    assert refused.exit_code == 2 and "topics are hardware, structure, batching" in refused.stderr


def test_a_claim_names_the_service_its_figure_and_the_recommendation_that_would_realise_it(served: Path) -> None:
    rows = listed("quantization", "--db", str(served))
    (service,) = rows["quantize-75-fp8"]["services"]
    low, likely, high = service["figure"]
    assert low < likely < high < 0.75 and service["running"] > 1
    (advice,) = service["recommendations"]
    assert advice["rule"] == "quantize-weights" and advice["capacity"][1] > 0
    text = run("claims", "quantize-75-fp8", "--db", str(served)).stdout
    assert f"on {service['service']}: " in text and "at once" in text and advice["id"][:8] in text
    assert "a month of capacity" in text


def test_a_service_that_batches_as_many_already_has_nothing_to_gain(served: Path) -> None:
    (service,) = listed("batch-32-cost", "--db", str(served))["batch-32-cost"]["services"]
    assert (service["figure"] is None) == (service["running"] >= 32)
    assert service["figure"] is None or 0 < service["figure"][1] < 0.97


def test_a_claim_on_a_device_that_a_service_has_already_is_so_already(served: Path) -> None:
    (service,) = listed("h100-a100-speed", "--db", str(served))["h100-a100-speed"]["services"]
    assert service["figure"] is None and service["missing"] == "it is so already"


def test_a_time_before_the_first_row_is_refused(served: Path) -> None:
    early = datetime.fromtimestamp(NOW - 86_400, UTC).isoformat()
    assert run("claims", "batch", "--db", str(served), "--at", early).exit_code == 2
