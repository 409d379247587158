import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.advisor.builders import NOW
from tests.cli.builders import run
from tests.one_process import share_a_process
from tests.scenario import LOW_BATCH_70B, seed


def test_advice_has_the_same_bytes_whether_each_rule_has_a_process_or_all_share_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tests share one, which saves most of their CPU."""
    seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=8 * 60, end_ts=NOW)
    command = ("advise", "--db", str(tmp_path), "--at", datetime.fromtimestamp(NOW, UTC).isoformat(), "--json")
    apart = run(*command).stdout
    share_a_process(monkeypatch)
    assert run(*command).stdout == apart
    assert {row["state"] for row in json.loads(apart)["recommendations"]} >= {"OPEN", "REFUSED", "BLOCKED"}
