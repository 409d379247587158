"""The script of a plan, run by a real shell with programs that only note their calls."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pertoken.advisor.changes.servers import PROCESSES, health_check
from pertoken.catalog.clouds import cloud_commands
from pertoken.text.export import script, shell_lines

MOVE = (
    "chat: start 2 servers on A100 80GB SXM4, with --tensor-parallel-size 4",
    health_check("vllm", "each new server of chat"),
    "chat: move the traffic to them",
    "chat on gpu-1: stop what ran on A100 40GB SXM4",
    f"on gpu-1: {PROCESSES}  # go on only if it prints nothing",
    *cloud_commands()["aws"].released("gpu-1", "us-east-1"),
)
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs the script of steps; `calls` of the result are the programs that were called."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, body in {
        "curl": "exit ${CURL_STATUS:-0}",
        "aws": 'case "$*" in *describe-instances*) printf "%s\\n" "${FOUND-i-0abc}" ;; esac',
        "kubectl": "cat",
        "ssh": 'cat; case "$*" in *compute-apps*) printf "%s" "${PROCESSES-}"; exit ${SSH_STATUS:-0} ;; esac',
    }.items():
        stub = programs / name
        stub.write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/calls\n{body}\n')
        stub.chmod(0o755)

    def call(
        commands: tuple[str, ...], *arguments: str, answers: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        file, calls = tmp_path / "plan.sh", tmp_path / "calls"
        file.write_text("\n".join(script(("A plan",), [("move", commands, ("undo it",))])) + "\n")
        subprocess.run(["bash", "-n", str(file)], check=True, timeout=30)
        calls.write_text("")
        done = subprocess.run(
            ["sh", str(file), *arguments],
            input=answers,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env={"PATH": f"{programs}:{os.environ['PATH']}", **environment},
        )
        return subprocess.CompletedProcess(done.args, done.returncode, calls.read_text(), done.stdout + done.stderr)

    return call


def test_with_yes_it_checks_each_server_before_it_deletes_the_instance(run: Run) -> None:
    done = run(MOVE, "--yes", ADDRESS_1="new-1:8000 https://new-2")
    check = "curl --fail --silent --show-error --max-time 10 --output /dev/null"
    assert done.returncode == 0, done.stderr
    calls = done.stdout.splitlines()
    assert calls[:2] == [f"{check} http://new-1:8000/health", f"{check} https://new-2/health"]
    assert calls[2] == f"ssh gpu-1 {PROCESSES}" and "describe-instances" in calls[3]
    assert calls[4] == "aws ec2 terminate-instances --region us-east-1 --instance-ids i-0abc"


def test_a_person_who_confirms_each_line_reaches_the_end(run: Run) -> None:
    done = run(MOVE, answers="y\nnew-1:8000\ny\nyes\ny\n")
    assert done.returncode == 0 and "terminate-instances" in done.stdout
    assert "By hand: chat: start 2 servers on A100 80GB SXM4, with --tensor-parallel-size 4" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "answers", "environment", "reason"),
    [
        (["--yes"], "", {"ADDRESS_1": "new-1:8000", "CURL_STATUS": "22"}, "http://new-1:8000/health does not answer"),
        (["--yes"], "", {}, "ADDRESS_1 is not set"),
        (["--yes"], "", {"ADDRESS_1": "new-1:8000", "FOUND": ""}, "Not exactly one instance"),
        (["--yes"], "", {"ADDRESS_1": "new-1:8000", "FOUND": "i-1\ti-2"}, "Not exactly one instance"),
        (["--yes"], "", {"ADDRESS_1": "new-1:8000", "FOUND": "None"}, "Not exactly one instance"),
        (["--yes"], "", {"ADDRESS_1": "new-1:8000", "PROCESSES": "4711"}, "Processes use the devices of gpu-1"),
        (["--yes"], "", {"ADDRESS_1": "new-1:8000", "SSH_STATUS": "255"}, "The processes on gpu-1 cannot be read"),
        ([], "y\ny\ny\nn\n", {"ADDRESS_1": "new-1:8000", "SSH_STATUS": "255"}, "It was declined"),
        (["--force"], "", {}, "usage"),
        ([], "", {"ADDRESS_1": "new-1:8000"}, "There was no answer"),
        ([], "y\n\n", {}, "ADDRESS_1 is not set"),
        ([], "y\ny\ny\n", {"ADDRESS_1": "new-1:8000"}, "There was no answer"),
        ([], "y\ny\ny\nn\n", {"ADDRESS_1": "new-1:8000"}, "It was declined"),
        ([], "\n", {"ADDRESS_1": "new-1:8000"}, "It was declined"),
    ],
)
def test_nothing_is_deleted_after_a_failed_check_or_without_an_answer(
    run: Run, arguments: list[str], answers: str, environment: dict[str, str], reason: str
) -> None:
    done = run(MOVE, *arguments, answers=answers, **environment)
    assert done.returncode != 0 and reason in done.stderr
    assert "terminate-instances" not in done.stdout


def test_closed_standard_input_is_no_answer(run: Run, tmp_path: Path) -> None:
    run(MOVE, answers="")
    command = ["sh", "-c", 'exec sh "$0" <&-', str(tmp_path / "plan.sh")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1 and "There was no answer" in done.stderr


def test_programs_do_not_swallow_the_answers(run: Run) -> None:
    lines = ("on gpu-1: nvidia-smi -pl 500", "kubectl -n prod delete pod chat-0", "kubectl -n prod delete pod chat-1")
    done = run(lines, answers="y\ny\n")
    assert done.stdout.count("delete pod") == 2, done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "kubectl -n NAMESPACE patch deployment chat",
        "aws ec2 run-instances --launch-template LaunchTemplateName=TEMPLATE  # TEMPLATE: yours",
        "gcloud compute instances delete gpu-1 --zone=eu-1-ZONE  # ZONE: the letter of its zone",
        "az vm delete --resource-group GROUP --name gpu-1  # GROUP: its resource group",
        "Drain gpu-1 and give it back.",
    ],
)
def test_a_sentence_or_a_command_with_words_to_fill_in_is_asked_for(line: str) -> None:
    (question,) = shell_lines(line)
    assert question.startswith("by_hand ")


@pytest.mark.parametrize(
    "line",
    [
        "kubectl -n prod delete pod chat-0",
        "kubectl scale deployment/chat --replicas=0",
        "az vm delete --resource-group blue --name gpu-1",
        "on gpu-1: nvidia-smi mig -i GPU-1 -dci",
        "on gpu-1: nvidia-smi -i GPU-1 -mig 1",
    ],
)
def test_each_command_that_stops_or_deletes_is_asked_for_before(line: str) -> None:
    question, _ = shell_lines(line)
    assert question.startswith("before ")


@pytest.mark.parametrize(
    "line",
    [
        "kubectl -n prod delete pod x; touch {file}",
        "kubectl $(touch {file})",
        "on gpu-a;touch {file}: nvidia-smi",
        "on gpu-1: " + PROCESSES + "  # $(touch {file})\ntouch {file}",
        "on gpu-1;touch {file}: " + PROCESSES,
        "kubectl x\ntouch {file}",
        "kubectl `touch {file}`",
        "aws ec2 'x",
        "INSTANCE=$(touch {file})",
        "INSTANCE=$(aws x; touch {file})",
        "INSTANCE=$(aws x) touch {file}",
        "curl -f http://ADDRESS/health  # ADDRESS: host:port of '; touch {file}; '",
        "curl -f http://ADDRESS/$(touch {file})",
        "Stop $(touch {file}) `touch {file}`\ntouch {file}",
    ],
)
def test_no_name_of_the_fleet_becomes_a_command_of_its_own(run: Run, tmp_path: Path, line: str) -> None:
    file = tmp_path / "made"
    run((line.format(file=file),), "--yes", ADDRESS_1="new-1:8000")
    assert not file.exists()
