"""The GitHub Action of `pertoken check`: its inputs reach the command, and named outcomes fail the job."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pertoken.cli import main
from pertoken.proof.trials.endpoint import EXIT_STATUS, CheckOutcome

FOLDER = Path(__file__).parents[2] / "deploy/action"
ACTION: dict[str, Any] = yaml.safe_load((FOLDER / "action.yml").read_text())
SCRIPT = (FOLDER / "check.sh").read_text()
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
USUAL = {name: str(spec.get("default", "")) for name, spec in ACTION["inputs"].items()} | {"url": "http://127.0.0.1:1"}


def run_action(folder: Path, outcome: CheckOutcome | None, **inputs: str) -> tuple[int, list[str], str, str]:
    """Run the step with a `pertoken` that has an outcome; return exit status, its arguments, outputs and summary."""
    folder.mkdir(exist_ok=True)
    program = folder / "pertoken"
    saved = folder / "check.json"
    status = 3 if outcome is None else EXIT_STATUS[outcome]
    program.write_text(
        f"#!/bin/sh\nprintf '%s\\n' \"$@\" > '{folder}/words'\necho '**an outcome**'\n"
        + ("" if outcome is None else f"echo '{json.dumps({'outcome': outcome.value})}' > '{saved}'\n")
        + f"exit {status}\n"
    )
    program.chmod(0o755)
    values = {**USUAL, "save": str(saved), **inputs}
    environment = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        "GITHUB_OUTPUT": str(folder / "output"),
        **{
            name: re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda match: values[match[1]], text)
            for name, text in STEPS[1]["env"].items()
        },
    }
    done = subprocess.run(["bash", str(FOLDER / "check.sh")], env=environment, capture_output=True, check=False)
    output = folder / "output"
    words = (folder / "words").read_text().splitlines()
    return done.returncode, words, output.read_text() if output.exists() else "", (folder / "summary").read_text()


def test_the_action_is_composite_and_each_input_is_declared_described_and_used() -> None:
    assert ACTION["runs"]["using"] == "composite" and ACTION["name"] and ACTION["description"]
    text = (FOLDER / "action.yml").read_text()
    assert set(re.findall(r"inputs\.([a-z-]+)", text)) == set(ACTION["inputs"])
    assert all(spec["description"] for spec in (*ACTION["inputs"].values(), *ACTION["outputs"].values()))
    assert [name for name, spec in ACTION["inputs"].items() if spec.get("required")] == ["url"]


def test_no_input_is_pasted_into_a_script_and_each_step_names_its_shell() -> None:
    assert all("${{" not in step["run"] and step["shell"] == "bash" for step in STEPS)
    assert "${{" not in SCRIPT
    assert set(re.findall(r"CHECK_[A-Z_]+", SCRIPT)) == set(STEPS[1]["env"])


def test_it_names_options_and_outcomes_that_there_are() -> None:
    known = {option for parameter in main.commands["check"].params for option in parameter.opts}
    assert set(re.findall(r"(?<=[ (])--[a-z-]+", SCRIPT)) <= known
    outcomes = {outcome.value.lower().replace("_", "-") for outcome in CheckOutcome}
    assert set(USUAL["fail-on"].split()) < outcomes
    statuses = re.findall(r"\d+", SCRIPT[SCRIPT.index("case $status") : SCRIPT.index(") ;;")])
    assert {int(status) for status in statuses} == set(EXIT_STATUS.values())


@pytest.mark.parametrize("outcome", list(CheckOutcome))
def test_the_outcomes_that_are_named_fail_the_job_and_the_others_do_not(outcome: CheckOutcome, tmp_path: Path) -> None:
    status, words, output, summary = run_action(tmp_path, outcome)
    name = outcome.value.lower().replace("_", "-")
    assert status == (1 if name in USUAL["fail-on"].split() else 0)
    assert output.splitlines() == [f"outcome={name}", f"status={EXIT_STATUS[outcome]}"]
    assert summary == "**an outcome**\n"
    assert words[:5] == ["check", "http://127.0.0.1:1", "--yes", "--seconds", "60"]
    assert run_action(tmp_path / "lenient", outcome, **{"fail-on": ""})[0] == 0


def test_inputs_become_options_and_spaces_stay_within_them(tmp_path: Path) -> None:
    inputs = {"against": "http://127.0.0.1:2", "baseline": "an old.json", "model": "my model", "exclusive": "true"}
    _, words, _, _ = run_action(tmp_path, CheckOutcome.CHEAPER, **inputs)
    assert words[7:] == [
        "--against",
        inputs["against"],
        "--baseline",
        "an old.json",
        "--model",
        "my model",
        "--exclusive",
    ]


def test_a_check_that_did_not_end_fails_the_job_with_its_own_status(tmp_path: Path) -> None:
    status, _, output, _ = run_action(tmp_path, None, **{"fail-on": ""})
    assert (status, output) == (3, "")
