import json
from pathlib import Path

from tests.cli.builders import run


def test_doctor_says_what_is_missing_and_how_to_switch_it_on(tmp_path: Path) -> None:
    found = json.loads(run("doctor", "--db", str(tmp_path), "--json").stdout)
    areas = {each["area"] for each in found}
    assert {"host", "device", "engine", "database", "settings"} <= areas
    for each in found:
        assert each["ok"] or each["text"]
    text = run("doctor", "--db", str(tmp_path)).output
    assert "SQLite" in text
