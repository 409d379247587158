"""A plugin that misbehaves becomes its own row, changes no other advice, and leaves no process behind."""

import json
import os
import signal
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pertoken.advisor.rules.discovery import find_rules, source_of
from pertoken.advisor.run import advice_of
from pertoken.advisor.worker import child
from pertoken.advisor.worker.child import Loaded, PluginSource, RuleLimits
from pertoken.advisor.worker.run import run_plugins
from pertoken.config import Settings
from pertoken.proof.recommendation import Recommendation, State
from tests.advisor.gathered import rule_source
from tests.advisor.hostile import ALONE, GATHERED, HOSTILE, NEIGHBOURS, others, rows
from tests.advisor.sources import source
from tests.advisor.worker.plugins import (
    BROKEN,
    HARMLESS,
    LOOP,
    MARK,
    NAME_PROCESS,
    NO_ALARM,
    STUBBORN,
    at_import,
    plugin,
)
from tests.recorded import until


def sources_of(files: tuple[Path, ...]) -> tuple[PluginSource, ...]:
    return tuple(source_of(find_rule, Settings()) for find_rule in find_rules(Settings(), files))


LIMITS = RuleLimits(call_s=1.0, rule_s=2.0, plugin_s=4.0)
LONG_LIMITS = RuleLimits(call_s=30.0, rule_s=60.0, plugin_s=90.0)
"""Limits of rules that end: a busy machine is no fault of theirs."""


def running() -> list[int]:
    """Return processes that hostile rules named."""
    workers = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            if comm.read_text().strip() == MARK:
                workers.append(int(comm.parent.name))
        except OSError:
            continue
    return workers


def advice(file: Path, limits: RuleLimits = LIMITS, **run: Any) -> tuple[Recommendation, ...]:
    hostile = [source for source in sources_of((file,)) if source.origin == str(file)]
    return advice_of([*map(rule_source, NEIGHBOURS), *hostile], GATHERED, limits, **run)[0]


@pytest.fixture
def hostile(tmp_path: Path) -> Callable[[str], Path]:
    def written(text: str) -> Path:
        file = tmp_path / f"{HOSTILE}.py"
        file.write_text(text, encoding="utf-8")
        return file

    return written


CONFINED = {"a socket", "a Unix socket", "a file elsewhere", "a file cut off", "an end of the advisor"}
"""What only a kernel that confines refuses."""


@cache
def confinement() -> child.Confinement:
    return run_plugins((rule_source(NEIGHBOURS[0]),), None, LIMITS)[0].confinement


@pytest.mark.parametrize("name", BROKEN)
def test_a_plugin_that_breaks_is_one_row_and_changes_no_other_advice(name: str, hostile: Callable[[str], Path]) -> None:
    if name in CONFINED and not (confinement().label == "confined" and confinement().processes is None):
        pytest.skip(f"this kernel does not confine: {confinement()}")
    text, reason = BROKEN[name]
    advised_rows = advice(hostile(text))
    (row,) = rows(advised_rows)
    assert row.state is State.FAILED
    assert reason in (row.reason or "")
    assert others(advised_rows) == ALONE
    assert not running()


@pytest.mark.parametrize("name", HARMLESS)
def test_files_and_processes_of_a_rule_are_gone_with_its_worker(name: str, hostile: Callable[[str], Path]) -> None:
    advised_rows = advice(hostile(HARMLESS[name]), LONG_LIMITS)
    (row,) = rows(advised_rows)
    assert row.state is State.REFUSED
    assert others(advised_rows) == ALONE
    assert not running()


@pytest.mark.parametrize("name", ["processes that outlive it", "many processes", "processes that outlive its import"])
def test_without_a_namespace_nothing_survives_either(
    name: str, hostile: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "separate_processes", lambda: "not allowed")
    advised_rows = advice(hostile(HARMLESS[name]), LONG_LIMITS)
    assert [row.state for row in rows(advised_rows)] == [State.REFUSED]
    assert others(advised_rows) == ALONE
    assert not running()


def test_a_patched_module_is_patched_in_the_process_of_its_rule_alone(hostile: Callable[[str], Path]) -> None:
    patches = """import pertoken.units, pertoken.savings.estimate as estimate
pertoken.units.HOURS_PER_MONTH = estimate.HOURS_PER_MONTH = 10**9
estimate.estimate = None
yield fleet.release(9)"""
    advised_rows = advice(hostile(plugin(patches)))
    (row,) = rows(advised_rows)
    (alone,) = [row for row in advised_rows if row.rule_id == "release-idle" and row.state is State.OPEN]
    (mine,), (built_in,) = row.variants, alone.variants
    assert replace(mine, proposal="") == replace(built_in, proposal="")
    assert others(advised_rows) == ALONE


def test_output_and_logs_of_a_rule_are_kept_with_its_row(
    hostile: Callable[[str], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    prints = """import logging, os, sys
print("one")
print("two", file=sys.stderr)
logging.getLogger("own").warning("three")
os.system("echo four")
yield skip("no", "never")"""
    (row,) = rows(advice(hostile(plugin(prints))))
    assert row.output.split() == ["one", "two", "three", "four"]
    assert capfd.readouterr() == ("", "")


def test_output_is_kept_by_its_end(hostile: Callable[[str], Path]) -> None:
    (row,) = rows(advice(hostile(plugin("for n in range(9999):\n    print(n)\nyield skip('no', 'never')"))))
    assert row.output.endswith("9998\n") and len(row.output) == LIMITS.kept_chars


def test_a_rule_that_takes_too_long_shows_where_it_was(hostile: Callable[[str], Path]) -> None:
    (row,) = rows(advice(hostile(plugin(f"{LOOP}\nyield"))))
    assert f'{HOSTILE}.py", line' in row.output


def test_rules_of_one_file_do_not_see_what_another_does(hostile: Callable[[str], Path]) -> None:
    first, second = (
        source(body, "fleet", name).replace("def propose", f"def {name}")
        for name, body in (
            ("first", "import os\nglobals()['CHANGED'] = True\nos._exit(3)\nyield"),
            ("second", "yield skip('seen', str(globals().get('CHANGED')))"),
        )
    )
    rows = advice(hostile(first + second))
    assert [(row.rule_id, row.state, row.reason) for row in rows if row.rule_id in ("first", "second")] == [
        ("second", State.REFUSED, "None"),
        ("first", State.FAILED, "the rule ended its process with status 3"),
    ]


def test_plugins_of_one_distribution_do_not_see_what_another_does(tmp_path: Path) -> None:
    for name, text in (
        ("a", at_import("import os; os._exit(0)")),
        ("b", source("yield skip('no', 'never')", "fleet", "b")),
    ):
        (tmp_path / f"{name}.py").write_text(text)
    files = sources_of((tmp_path / "a.py", tmp_path / "b.py"))[-2:]
    broken, whole = run_plugins([replace(file, group="theirs") for file in files], None, LIMITS)
    assert [name for name, _ in broken.errors] == ["a"]
    assert [rule.rule.rule_id for rule in whole.rules] == ["b"] and not whole.errors


def test_a_rule_that_ends_its_process_keeps_what_it_returned_before(hostile: Callable[[str], Path]) -> None:
    second = GATHERED.fleet.deployments[1].deployment_id
    ends = f"import os\nif now.deployment_id == {second}:\n    os._exit(0)\nyield skip('no', 'never')"
    kept = rows(advice(hostile(source(ends, "now", HOSTILE))))
    assert [(row.state, row.reason) for row in kept] == [
        (State.REFUSED, "never"),
        (State.FAILED, "the rule ended its process; it was not run for 1 more of 3 targets"),
    ]


def test_a_rule_id_of_a_built_in_rule_is_refused(hostile: Callable[[str], Path]) -> None:
    rows = advice(hostile(source("yield skip('no', 'never')", "fleet", "use-spot")))
    (refused,) = [row for row in rows if row.target_kind == "load"]
    assert "rule 'use-spot' is already provided by here" in (refused.reason or "")
    assert json.dumps([asdict(row) for row in rows if row is not refused], sort_keys=True) == ALONE


def test_a_rule_has_no_file_open_but_its_own(hostile: Callable[[str], Path], tmp_path: Path) -> None:
    lists = "import os\nyield skip('files', ' '.join(sorted(os.listdir('/proc/self/fd'))))"
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("CREATE TABLE a (b)")
        (row,) = rows(advice(hostile(plugin(lists))))
        assert row.reason == "0 1 2 3 4"  # the last is that of the listing
        connection.execute("INSERT INTO a VALUES (1)")
    connection.close()


def test_a_person_who_presses_ctrl_c_stops_the_run_and_leaves_nothing(hostile: Callable[[str], Path]) -> None:
    before = signal.getsignal(signal.SIGINT)
    steps: list[str] = []

    def progress(step: str, share: float) -> None:
        if step == f"running {HOSTILE}" and step not in steps:
            signal.raise_signal(signal.SIGINT)
        steps.append(step)

    with pytest.raises(KeyboardInterrupt):
        advice(hostile(plugin(f"named()\n{LOOP}\nyield", NAME_PROCESS)), progress=progress)
    until(lambda: not running(), "the process of the rule, which the kernel ends with its shard")
    assert signal.getsignal(signal.SIGINT) is before


def test_no_process_and_no_folder_survive_an_advisor_that_is_killed(
    hostile: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    file = hostile(plugin(f"named()\n{NO_ALARM}{STUBBORN}\nyield", NAME_PROCESS))
    advisor = os.fork()
    if advisor == 0:
        try:
            advice(file)
        finally:
            os._exit(0)
    deadline = time.monotonic() + 30
    while not running() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert running()
    os.kill(advisor, signal.SIGKILL)
    os.waitpid(advisor, 0)
    while (running() or any(tmp_path.glob("pertoken-rules-*"))) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not running()
    assert not any(tmp_path.glob("pertoken-rules-*"))


def test_advice_can_be_asked_for_from_any_thread(hostile: Callable[[str], Path]) -> None:
    results: list[tuple[Recommendation, ...]] = []
    thread = threading.Thread(target=lambda: results.append(advice(hostile(plugin(f"{LOOP}\nyield")))))
    thread.start()
    thread.join()
    assert "took longer than 1 s" in (rows(results[0])[0].reason or "")
    assert others(results[0]) == ALONE


@pytest.mark.usefixtures("in_this_process")
def test_progress_names_each_phase_and_moves_while_a_rule_runs(hostile: Callable[[str], Path]) -> None:
    steps: list[str] = []
    advice(hostile(plugin(f"{NO_ALARM}{LOOP}\nyield")), progress=lambda phase, _: steps.append(phase))
    phases = [step for step in dict.fromkeys(steps) if step.startswith(("running", "pricing"))]
    assert [phase for phase in phases if ": " not in phase] == [
        "running release-idle",
        "running use-spot",
        f"running {HOSTILE}",
        "pricing",
    ]
    # On a busy machine any rule may take a second or more, which stands beside its name.
    assert {f"running {HOSTILE}: {seconds} s" for seconds in (1, 2, 3)} & set(phases)


def test_plugins_are_loaded_without_inputs_to_be_listed(hostile: Callable[[str], Path]) -> None:
    (run,) = run_plugins(sources_of((hostile(plugin()),))[-1:], None, LIMITS)
    assert [(rule.rule.rule_id, rule.rule.title, rule.rule.needs) for rule in run.rules] == [
        (HOSTILE, "Does a thing.", ("seen", "fleet", "market"))
    ]
    assert set(run.rules[0].rule.sections) == {"Why it saves", "When it is wrong", "How to apply", "Sources"}


def test_an_id_of_a_rule_that_is_switched_off_is_taken_all_the_same(hostile: Callable[[str], Path]) -> None:
    off = PluginSource("off", "there", "there", lambda: (Loaded("off", disabled=(NEIGHBOURS[0],)),))
    first, second = run_plugins((off, rule_source(NEIGHBOURS[0])), None, LIMITS)
    assert [rule.rule_id for rule in first.disabled] == [NEIGHBOURS[0].rule_id]
    assert second.errors == [(NEIGHBOURS[0].rule_id, f"rule {NEIGHBOURS[0].rule_id!r} is already provided by there")]
