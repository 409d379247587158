"""`pertoken rules`: starting, checking, listing, explaining and switching rules."""

import json
import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pertoken.advisor.worker import child
from pertoken.testing import regimes
from tests.advisor.rules.builders import written
from tests.cli.builders import run


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "config/pertoken.toml"
    file.parent.mkdir()
    file.write_text("[rules.quantize-weights]\nfew_running = 8\n")
    return file


def listed(config: Path) -> dict[str, dict[str, Any]]:
    done = run("rules", "list", "--json", "--config", str(config))
    assert done.exit_code == 0, done.output
    return {row["id"]: row for row in json.loads(done.stdout)}


def advised(recorded: str, config: Path, *options: str) -> tuple[dict[str, str], str]:
    """States of the rows of each rule, and standard error."""
    done = run("advise", "--db", recorded, "--config", str(config), "--json", *options)
    assert done.exit_code == 0, done.output
    return {row["rule_id"]: row["state"] for row in json.loads(done.stdout)["recommendations"]}, done.stderr


def test_a_new_rule_is_one_file_that_conforms_and_nothing_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("rules", "new", "lower-clocks")
    assert done.output.startswith(
        "Wrote lower_clocks.py.\nNext: change it, then `pertoken rules check lower_clocks.py`"
    )
    checked = run("rules", "check", "lower_clocks.py")
    assert checked.exit_code == 0
    assert "  uncached            proposes enable prefix caching" in checked.output
    assert "  cpu                 refuses caching-unknown: whether it caches" in checked.output
    assert "  upgraded-other-load refuses caching-on: it caches prefixes already" in checked.output
    assert checked.output.endswith(f"  conforms: 0 faults in {len(regimes())} situations\n\n")
    (tmp_path / "lower_clocks.py").write_text("mine")
    again = run("rules", "new", "lower-clocks")
    assert (again.exit_code, (tmp_path / "lower_clocks.py").read_text()) == (2, "mine")
    assert "lower_clocks.py exists already" in again.stderr


def test_a_new_package_has_its_rule_a_test_and_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("rules", "new", "import", "--package").exit_code == 0  # a word of Python's own
    home = tmp_path / "pertoken-rule-import"
    files = sorted(str(file.relative_to(home)) for file in home.rglob("*") if file.is_file())
    assert files == ["pertoken_rule_import.py", "pyproject.toml", "tests/test_import.py"]
    assert 'import = "pertoken_rule_import"' in (home / "pyproject.toml").read_text()
    assert run("rules", "check", str(home)).exit_code == 0
    again = run("rules", "new", "import", "--package")
    assert again.exit_code == 2 and "pertoken-rule-import exists already" in again.stderr


@pytest.mark.parametrize("name", ["", "Lock", "4-bit", "lower_clocks", "a--b", "../up", "x" * 61])
def test_a_name_that_is_no_id_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("rules", "new", name)
    assert done.exit_code == 2 and "lower-case words joined by hyphens" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("yield now.but(max_num_seqs=now.max_num_seqs * 2)", "fault: where the knob max_num_seqs is unknown (None) it"),
        ("yield now", "fault: it proposes the present state"),
        ("1 / 0", "fails: ZeroDivisionError"),
        ("yield now.on_devices((1, 2, 3))", "fault: it makes an impossible proposal"),
    ],
)
def test_a_rule_that_does_not_conform_ends_the_check_with_exit_1(tmp_path: Path, body: str, shown: str) -> None:
    done = run("rules", "check", str(written(tmp_path / "mine.py", body=body)))
    assert done.exit_code == 1
    assert shown in done.output and "does not conform" in done.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_module", "No module named"),
        ("x = 1", "defines no rule"),
        ("exit(3)", "3"),
        ("import os; os._exit(0)", "it ended its process"),
        ("import os; os.kill(os.getpid(), 9)", "it was ended by SIGKILL"),
        ("import os; os.write(3, b'[')", "it returned an invalid message"),
    ],
)
@pytest.mark.usefixtures("own_processes")
def test_a_file_that_does_not_load_ends_the_check_with_exit_2(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    done = run("rules", "check", str(tmp_path / "mine.py"))
    assert done.exit_code == 2 and message in done.stderr


def test_every_rule_is_listed_with_its_origin_version_and_state(config: Path) -> None:
    written(config.parent / "rules.d/mine.py", "own-rule")
    written(config.parent / "rules.d/open.py", "other", mode=0o666)
    written(config.parent / "rules.d/bad.py").write_text("import no_such_module")
    known = listed(config)
    assert known["use-spot"]["origin"] == "pertoken" and known["use-spot"]["version"]
    assert set(known["use-spot"]) == {
        *("id", "title", "origin", "version", "state", "reason", "confinement", "window_s")
    }
    assert (known["use-spot"]["window_s"], known["stuck-engine"]["window_s"], known["bad"]["window_s"]) == (
        *(604_800, 3600),
        None,
    )
    states = {name: known[name]["state"] for name in ("use-spot", "own-rule", "open", "bad")}
    assert states == {"use-spot": "loaded", "own-rule": "loaded", "open": "denied", "bad": "broken"}
    assert known["own-rule"]["origin"] == str(config.parent / "rules.d/mine.py")
    assert "every user may write it" in known["open"]["reason"]
    assert known["bad"]["reason"] == "ModuleNotFoundError: No module named 'no_such_module'"
    text = run("rules", "list", "--config", str(config)).stdout
    assert f"Files with rules of your own go into {config.parent}/rules.d." in text
    assert all(name in text for name in known)


HOSTILE = {
    "import-error": ("import no_such_module", "No module named 'no_such_module'"),
    "leaves": ("raise SystemExit(3)", "SystemExit: 3"),
    "ends-its-process": ("import os\nos._exit(0)", "the plugin ended its process before it was loaded"),
    "markup": (r"raise ValueError('[/b][red]\x1b[31m\u202e')", r"ValueError: [/b][red]\x1b[31m\u202e"),
    "loops": ("while True: pass", "the plugin took longer than 2 s before it was loaded"),
}


@pytest.mark.usefixtures("own_processes")
def test_hostile_plugins_are_one_row_each_and_run_in_no_process_of_ours(config: Path) -> None:
    folder = config.parent / "rules.d"
    config.write_text('[advisor]\nrule_timeout = "2s"')
    written(folder / "mine.py", before=f"import os\nassert os.getpid() != {os.getpid()}")
    for name, (text, _) in HOSTILE.items():
        written(folder / f"{name}.py").write_text(text)
    done = run("rules", "list", "--config", str(config))
    assert done.exit_code == 0, done.output
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert all("  broken  " in lines[name] and reason in lines[name] for name, (_, reason) in HOSTILE.items())
    assert "  loaded  " in lines["own-rule"] and "  loaded  " in lines["use-spot"]
    explained = run("rules", "explain", "loops", "--config", str(config)).stdout
    assert explained.startswith("loops: broken") and f'{folder}/loops.py", line 1 in <module>' in explained


@pytest.mark.parametrize("columns", [45, 80, 200])
def test_the_list_fits_the_terminal_it_is_shown_on(config: Path, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    written(config.parent / "rules.d/bad.py").write_text(f"raise ValueError('{' word' * 40}')")
    monkeypatch.setattr(import_module("pertoken.cli.rules"), "terminal_width", lambda: columns)
    monkeypatch.setattr(child, "confine", lambda folder: child.Confinement("no filter of system calls", None, None))
    lines = run("rules", "list", "--config", str(config)).stdout.splitlines()
    assert max(map(len, lines[:-1])) <= columns
    text = " ".join(" ".join(lines).split())
    assert " word" * 40 in text and "Store weights in 8 or 4 bits" in text
    assert any(re.match("use-spot +loaded", line) for line in lines) or columns == 45


@pytest.mark.usefixtures("own_processes")
def test_each_rule_is_listed_with_what_it_is_kept_from(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = child.Confinement("no filter of system calls", None, None)
    monkeypatch.setattr(child, "confine", lambda folder: refused)
    label = "not confined (network: no filter of system calls)"
    assert listed(config)["use-spot"]["confinement"] == label
    text = run("rules", "list", "--config", str(config)).stdout
    assert "use-spot" in next(line for line in text.splitlines() if line.startswith(f"{label}: "))
    monkeypatch.setattr(child, "confine", lambda folder: child.Confinement())
    assert listed(config)["use-spot"]["confinement"] == "confined"
    assert "\nconfined\n" in run("rules", "explain", "use-spot", "--config", str(config)).stdout


def test_denied_rules_and_wrong_options_are_listed_with_the_setting_at_fault(config: Path) -> None:
    config.write_text('[advisor]\ndeny = ["pertoken"]\n[rules.use-spott]\nx = 1')
    assert listed(config)["use-spot"] == {
        "id": "use-spot",
        "title": None,
        "origin": "pertoken",
        "version": listed(config)["use-spot"]["version"],
        "state": "denied",
        "reason": "advisor.deny names pertoken",
        "confinement": None,
        "window_s": None,
    }
    done = run("rules", "list", "--config", str(config))
    assert f"{config}: rules.use-spott: no rule has this id (did you mean use-spot?)" in done.stderr
    config.write_text("[rules.use-spot]\nmin_discount = 2")
    assert listed(config)["use-spot"]["reason"] == (
        f"{config}: rules.use-spot.min_discount: must be a number from 0 to 1 (got 2)"
    )


def test_a_rule_is_explained_with_its_options_as_they_are_set(config: Path) -> None:
    text = run("rules", "explain", "quantize-weights", "--config", str(config)).stdout
    assert text.startswith("quantize-weights: Store weights in 8 or 4 bits")
    for part in ("Why it saves", "When it is wrong", "How to apply", "Sources", "runs once per service"):
        assert part in text
    assert "few_running = 8.0 (default: 16.0)" in text
    done = run("rules", "explain", "quantise-weights", "--config", str(config))
    assert (done.exit_code, done.stderr) == (
        2,
        "pertoken: no rule has the id 'quantise-weights' (did you mean quantize-weights?)\n",
    )


@pytest.mark.parametrize("name", ["go-back: Restore what ran before a change", "leave-host: Move all services"])
def test_a_rule_that_is_no_plugin_is_explained_all_the_same(config: Path, name: str) -> None:
    text = run("rules", "explain", name.partition(":")[0], "--config", str(config)).stdout
    assert text.startswith(name) and "no plugin" in text
    for title in ("Why it saves", "When it is wrong", "How to apply", "Sources"):
        assert f"\n{title}\n" in text


def test_a_rule_that_is_broken_is_explained_by_its_error(config: Path) -> None:
    written(config.parent / "rules.d/bad.py").write_text("import no_such_module")
    text = run("rules", "explain", "bad", "--config", str(config)).stdout
    assert text.startswith("bad: broken\n") and "line 1, in <module>" in text
    assert "pertoken/advisor" not in text and "importlib" not in text


def test_a_rule_that_is_switched_off_gives_no_advice_until_it_is_switched_on(recorded: str, config: Path) -> None:
    assert "use-spot" in advised(recorded, config)[0]
    done = run("rules", "disable", "use-spot", "--config", str(config))
    assert done.stdout == f"use-spot is off from the next run on ({config.parent}/disabled-rules.txt).\n"
    assert "use-spot" not in advised(recorded, config)[0]
    assert listed(config)["use-spot"]["state"] == "disabled"
    assert "pertoken rules enable use-spot" in run("rules", "explain", "use-spot", "--config", str(config)).stdout
    assert run("rules", "enable", "use-spot", "--config", str(config)).exit_code == 0
    assert "use-spot" in advised(recorded, config)[0]


def test_a_name_that_no_rule_can_have_is_refused_before_any_rule_is_loaded(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(*_: object) -> NoReturn:
        raise AssertionError("a rule was loaded")

    monkeypatch.setattr("pertoken.advisor.rules.listing.run_plugins", loaded)
    for command in ("explain", "disable"):
        done = run("rules", command, "Use_Spot", "--config", str(config))
        assert (done.exit_code, done.stderr) == (
            2,
            "pertoken: no rule has the id 'Use_Spot' (did you mean use-spot?)\n",
        )


def test_only_rules_that_are_there_can_be_switched(config: Path) -> None:
    done = run("rules", "disable", "use-spott", "--config", str(config))
    assert done.exit_code == 2 and "did you mean use-spot?" in done.stderr
    done = run("rules", "enable", "use-spot", "--config", str(config))
    assert done.exit_code == 2 and "not switched off" in done.stderr


def test_rules_of_files_run_in_every_run_and_stay_in_the_advice(recorded: str, config: Path, tmp_path: Path) -> None:
    written(config.parent / "rules.d/mine.py", "dropped-in")
    config.write_text(f'[advisor]\nrules = ["{written(tmp_path / "named.py", "named-by-a-setting")}"]')
    for _ in range(2):  # the next run used to forget a rule that one run was given
        states, _ = advised(recorded, config)
        assert states["dropped-in"] == states["named-by-a-setting"] == "REFUSED"


def test_a_file_on_trial_takes_the_place_of_the_one_of_its_name_that_every_run_loads(
    recorded: str, config: Path, tmp_path: Path
) -> None:
    written(config.parent / "rules.d/mine.py", body='yield skip("old", "0 reasons")')
    tried = written(tmp_path / "mine.py", body='yield skip("new", "1 reason")')
    done = run("advise", "--db", recorded, "--config", str(config), "--json", "--rule", str(tried))
    assert done.exit_code == 0, done.stderr
    rows = [row for row in json.loads(done.stdout)["recommendations"] if row["rule_id"] == "own-rule"]
    assert [refusal["code"] for row in rows for refusal in row["refusals"]] == ["new"]


def test_a_file_that_others_could_have_written_is_a_line_and_a_failed_row_and_stops_nothing(
    recorded: str, config: Path
) -> None:
    file = written(config.parent / "rules.d/mine.py", mode=0o666)
    states, errors = advised(recorded, config)
    assert states["mine"] == "FAILED" and states["use-spot"] != "FAILED"
    assert f"pertoken advise: {file}: not loaded: every user may write it" in errors


def test_options_change_the_advice_of_a_run(recorded: str, config: Path) -> None:
    config.write_text("[rules.batch-limit]\nat_limit = 0.5")
    done = run("advise", "--db", recorded, "--config", str(config), "--json")
    (reason,) = [row["reason"] for row in json.loads(done.stdout)["recommendations"] if row["rule_id"] == "batch-limit"]
    assert "is below 50% of its limit of 256" in reason
