from dataclasses import asdict, replace
from datetime import date
from pathlib import Path

from pertoken.catalog.offers import listed_offers
from pertoken.config import Settings
from pertoken.costs.report.lines import Trouble, TroubleKind
from pertoken.forecast.tiers import tiers
from pertoken.proof.recommendation import Edit
from pertoken.proof.verdicts import Judgement, Verdict, VerdictResult
from pertoken.reports.markdown import MAX_CELLS, MAX_LINES, _changes, _cut, _troubles, _verdicts, week_of, weekly_lines
from pertoken.store.connect.open import open_store
from pertoken.store.repository import AdviceRepository, add_offers
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
    dearer = replace(pending, judgement=Judgement(VerdictResult.DEARER, (0.05, 0.12, 0.2)))
    (line,) = _verdicts([pending, dearer])
    assert line == "verdict dearer, +12.0% (+5.0% to +20.0%) per token: chat: tp 1 → 2  [pertoken advise]"
    assert len(_verdicts([dearer] * 30)) == 9


def test_troubles_of_the_moment_stand_first_with_their_commands(tmp_path: Path) -> None:
    lines = weekly_lines(store_of(tmp_path / "db"), Settings(), week_of(END + 600, dated=False))
    assert lines[1].startswith("now telemetry lost: ") and lines[1].endswith("[pertoken agent status]")
    stuck = Trouble(TroubleKind.STUCK, "chat on gpu-1", "3 requests run", "pertoken advise show 12345678")
    assert _troubles([stuck] * 5) == [
        *["now stuck: chat on gpu-1: 3 requests run  [pertoken advise show 12345678]"] * 3,
        "and 2 more things that are wrong now  [pertoken top --once]",
    ]


def test_a_long_line_is_cut_before_its_command() -> None:
    cut = _cut("x" * 500 + "  [pertoken advise show 12345678]")
    assert len(cut) == MAX_CELLS and cut.endswith("…  [pertoken advise show 12345678]")


def test_the_week_ends_with_the_command_that_refreshes_old_list_prices(tmp_path: Path) -> None:
    store = store_of(tmp_path / "db")
    lines = weekly_lines(store, Settings(), week_of(END, dated=True))
    assert lines[-1].startswith("all ") and lines[-1].endswith("days old  [pertoken prices update]")
    fresh = next(offer for offer in listed_offers() if offer.provider == "lambda")
    location = store.location
    recent = asdict(replace(fresh, as_of=date(2026, 11, 20))) | {"set_ts": 1, "set_by": "ann"}
    with AdviceRepository(location).writing() as connection:
        add_offers(connection, [recent | {"as_of": "2026-11-20"}], read_seq=0)
    again = weekly_lines(open_store(location), Settings(), week_of(END, dated=True))
    assert not any("prices update" in line for line in again)


def test_a_change_of_the_week_names_the_tier_of_its_forecast() -> None:
    row = advice(9, 9 * 10**9, "service:9")
    (line,) = _changes([replace(row, variants=(replace(row.variants[0], tier=tiers()["physics"]),))])
    assert line.startswith(f"bankable $9.00/month: change 9, chat (forecast {tiers()['physics'].short})  [pertoken")
