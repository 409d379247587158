"""What a database holds, whether it is whole, and its schema."""

import json
from pathlib import Path

from pertoken.store.connect.open import REVISIONS
from tests.cli.builders import run


def test_a_database_says_what_it_holds_and_whether_it_is_whole(recorded: str) -> None:
    found = json.loads(run("db", "info", "--db", recorded, "--json").stdout)
    assert found["telemetry rows"]["device_sample"] == 6
    assert found["telemetry schema"] == REVISIONS["telemetry"][-1]
    assert "device_sample" in run("db", "info", "--db", recorded).output
    assert "are good" in run("db", "check", "--db", recorded).output


def test_a_damaged_database_fails_its_check(recorded: str) -> None:
    file = Path(recorded) / "telemetry.db"
    content = bytearray(file.read_bytes())
    content[4096 * 3 : 4096 * 3 + 64] = b"\xff" * 64
    file.write_bytes(content)
    done = run("db", "check", "--db", recorded)
    assert done.exit_code == 1
    assert "fault" in done.stderr


def test_upgrading_lays_both_groups_and_says_so(tmp_path: Path) -> None:
    done = run("db", "upgrade", "--db", str(tmp_path / "new"))
    assert f"telemetry went from nothing to {REVISIONS['telemetry'][-1]}." in done.output
    again = run("db", "upgrade", "--db", str(tmp_path / "new"))
    assert f"telemetry is at {REVISIONS['telemetry'][-1]}." in again.output


def test_purging_raw_rows_changes_no_total(recorded: str) -> None:
    before = json.loads(run("advise", "--db", recorded, "--since", "1h", "--json").stdout)["fleet"]["deployments"]
    done = run("db", "purge", "--db", recorded, "--raw-before", "0s", "--minutes-before", "30d")
    assert "rows deleted" in done.output
    after = json.loads(run("advise", "--db", recorded, "--since", "1h", "--json").stdout)["fleet"]["deployments"]
    totals = ("generated_tokens", "prompt_tokens", "cached_tokens", "busy", "nano_usd", "ttft_p95_s", "incomplete")
    assert [after[0][name] for name in totals] == [before[0][name] for name in totals]
