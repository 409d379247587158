from pathlib import Path

from pertoken.config import Settings
from pertoken.reports.gates import Figures, exit_status, judge, read_gates
from tests.reports.builders import END, store_of


def test_a_gate_is_kept_broken_or_not_measurable_and_the_worst_one_decides(tmp_path: Path) -> None:
    figures = Figures(store_of(tmp_path / "db"), Settings(), 3600, END, dated=True)
    kept, broken, unknown = judge(
        read_gates(["usd_per_mtok > 50", "usd_per_mtok[model=*] > 2.5", "usd[service=none] > 1"]), figures
    )
    assert (kept.status, broken.status, unknown.status) == ("kept", "broken", "not measurable")
    assert broken.line.startswith("gate usd_per_mtok[model=*] > 2.5: broken: usd_per_mtok of model=meta-llama/")
    assert broken.values()["value"] is not None and broken.values()["limit"] == 2.5
    assert unknown.line.endswith("for service=none: no target of that name was recorded")
    assert [exit_status(gates) for gates in ([kept], [kept, unknown], [unknown, broken], [])] == [0, 3, 1, 0]
