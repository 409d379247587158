import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pertoken.agent.service import File, Plan, hidden_from_service, install, installation, uninstall
from pertoken.config import load

PLAN = installation("/opt/pertoken/bin/python", groups=["root", "video", "render"])
UNIT_PATH = "etc/systemd/system/pertoken-agent.service"
MOST_EXPOSED = 2.5
"""As `systemd-analyze security` scores it."""


class Commands:
    def __init__(self) -> None:
        self.run: list[str] = []

    def __call__(self, command: Sequence[str]) -> None:
        self.run.append(" ".join(command))


def unit() -> str:
    (text,) = (file.text for file in PLAN.files if str(file.path) == f"/{UNIT_PATH}")
    return text


def test_the_unit_runs_this_python_as_its_own_user_and_never_kills_a_driver_call() -> None:
    lines = unit().splitlines()
    assert any(
        line.startswith("ExecStart=/opt/pertoken/bin/python -m pertoken agent --db /var/lib/p") for line in lines
    )
    assert {"User=pertoken", "Type=notify", "StateDirectoryMode=0750", "KillMode=process", "SendSIGKILL=no"} <= {*lines}
    assert "ExecReload=/bin/kill -HUP $MAINPID" in lines and "SupplementaryGroups=video render" in lines
    assert not [line for line in lines if line.startswith("MemoryMax=")], "the kernel would kill inside a call"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_unit_is_valid_and_little_exposed(tmp_path: Path) -> None:
    file = tmp_path / "pertoken-agent.service"
    file.write_text(unit().replace("/opt/pertoken/bin/python", sys.executable))
    for check in (
        ["verify", str(file)],
        ["security", "--offline=true", f"--threshold={MOST_EXPOSED * 10:.0f}", "--no-pager", str(file)],
    ):
        done = subprocess.run(["systemd-analyze", *check], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Unknown" not in done.stderr


def test_installing_writes_the_files_and_starts_the_service_and_keeps_settings_that_are_there(tmp_path: Path) -> None:
    commands = Commands()
    install(PLAN, commands, tmp_path)
    assert (tmp_path / UNIT_PATH).read_text() == unit()
    settings = tmp_path / "etc/pertoken/pertoken.toml"
    assert load(settings, {}).source == settings
    settings.write_text("# mine\n")
    install(PLAN, commands, tmp_path)
    assert settings.read_text() == "# mine\n"
    assert commands.run[:3] == [
        "systemd-sysusers /etc/sysusers.d/pertoken.conf",
        "systemctl daemon-reload",
        "systemctl enable --now pertoken-agent.service",
    ]


def test_uninstalling_keeps_data_and_settings_unless_told(tmp_path: Path) -> None:
    commands = Commands()
    install(PLAN, commands, tmp_path)
    data = tmp_path / "var/lib/pertoken/telemetry.db"
    data.parent.mkdir(parents=True)
    data.write_text("")
    uninstall(commands, delete_data=False, root=tmp_path)
    assert not (tmp_path / UNIT_PATH).exists() and data.exists() and (tmp_path / "etc/pertoken").exists()
    assert commands.run[-2:] == ["systemctl disable --now pertoken-agent.service", "systemctl daemon-reload"]
    uninstall(commands, delete_data=True, root=tmp_path)
    assert not data.exists() and not (tmp_path / "etc/pertoken").exists()
    assert commands.run[-1] == "systemctl daemon-reload" and commands.run[-2] != commands.run[-3]


def test_a_python_in_a_home_folder_is_refused_with_where_to_install_instead() -> None:
    assert "/opt/pertoken" in (hidden_from_service("/home/me/venv/bin/python") or "")


def test_a_plan_is_shown_as_it_would_be_done() -> None:
    shown = str(Plan((File(Path("/etc/x"), "a = 1\n", keep=True),), (("systemctl", "daemon-reload"),)))
    assert shown == "# /etc/x (unless there is one)\na = 1\n\n$ systemctl daemon-reload"


def test_a_whole_agent_tells_its_manager_that_it_is_ready_alive_and_stopping(tmp_path: Path) -> None:
    told: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        settings = {"PERTOKEN_AGENT_DISCOVER": "false", "PERTOKEN_AGENT_PROBES": ""}
        agent = subprocess.Popen(
            [sys.executable, "-m", "pertoken", "agent", "--db", str(tmp_path / "db"), "--interval", "1s"],
            env={**os.environ, **settings, "NOTIFY_SOCKET": str(tmp_path / "notify")},
            stderr=subprocess.DEVNULL,
        )
        try:
            told += manager.recv(1000).decode().splitlines()
            told += manager.recv(1000).decode().splitlines()
        finally:
            agent.terminate()
            agent.wait(60)
        while told[-1] != "STOPPING=1":
            told += manager.recv(1000).decode().splitlines()
    assert told[:3] == ["READY=1", f"STATUS=recording in {tmp_path / 'db'}", "WATCHDOG=1"]
    assert agent.returncode == 0
