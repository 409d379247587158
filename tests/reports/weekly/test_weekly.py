from dataclasses import replace
from pathlib import Path

from pertoken.config import Settings
from pertoken.proof.recommendation import Edit
from pertoken.proof.verdicts import Judgement, Result, Verdict
from pertoken.reports.weekly.weekly import MAX_CELLS, MAX_LINES, _changes, _cut, _verdicts, week_of, weekly_lines
from tests.reports.builders import END, store_of
from tests.reports.test_figures import advice


def test_a_week_has_spend_price_and_changes_each_with_its_command(tmp_path: Path) -> None:
    lines = weekly_lines(store_of(tmp_path / "db"), Settings(), week_of(END, dated=True))
    assert lines[0] == "pertoken, week to 2026-11-23 01:00Z (against the seven days before)"
    assert lines[1].startswith("spend $82.56 (before: not known)  [pertoken costs --hours 168 --at 2026-11-23T01:00Z")
    assert lines[2].startswith("$/Mtok $19.11") and "bankable: nothing is proposed  [pertoken advise]" in lines
    assert len(lines) <= MAX_LINES and all(line.endswith("]") for line in lines[1:])


def test_the_three_best_changes_and_decided_verdicts_are_listed() -> None:
    rows = [advice(n, n * 10**9, f"service:{n}") for n in (9, 8, 7, 6)]
    lines = _changes(rows)
    assert len(lines) == 3 and lines[0].startswith("bankable $9.00/month: change 9, chat  [pertoken advise show ")
    pending = Verdict(1, 2, 1, 0, "chat", (Edit("deployment", 1, "tp", 1, 2),))
    dearer = replace(pending, judgement=Judgement(Result.DEARER, (0.05, 0.12, 0.2)))
    (line,) = _verdicts([pending, dearer])
    assert line == "verdict dearer, +12.0% (+5.0% to +20.0%) per token: chat: tp 1 → 2  [pertoken advise]"
    assert len(_verdicts([dearer] * 30)) == 9


def test_a_long_line_is_cut_before_its_command() -> None:
    cut = _cut("x" * 500 + "  [pertoken advise show 12345678]")
    assert len(cut) == MAX_CELLS and cut.endswith("…  [pertoken advise show 12345678]")
