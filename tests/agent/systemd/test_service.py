import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pertoken.agent.systemd import (
    ADVISOR,
    AGENT,
    File,
    InstallPlan,
    SystemdService,
    hidden_from_service,
    install,
    installation,
    uninstall,
)
from pertoken.config import load
from pertoken.errors import BadInput, PertokenError
from tests.agent.whole_agent import until

PYTHON = "/opt/pertoken/bin/python"
PLAN = installation(AGENT, PYTHON, groups=["root", "video", "render"])
UNIT_PATH = "etc/systemd/system/pertoken-agent.service"
MAX_EXPOSURE = 2.5
"""As `systemd-analyze security` scores it."""


class Commands:
    def __init__(self) -> None:
        self.run: list[str] = []

    def __call__(self, command: Sequence[str]) -> None:
        self.run.append(" ".join(command))


def unit(service: SystemdService = AGENT) -> str:
    plan = installation(service, PYTHON, groups=["root", "video", "render"])
    (text,) = (file.text for file in plan.files if file.path == service.unit_file)
    return text


def test_the_unit_runs_this_python_as_its_own_user_and_never_kills_a_driver_call() -> None:
    lines = unit().splitlines()
    assert any(
        line.startswith("ExecStart=/opt/pertoken/bin/python -m pertoken agent --db /var/lib/p") for line in lines
    )
    assert {"User=pertoken", "Type=notify", "StateDirectoryMode=0750", "KillMode=process", "SendSIGKILL=no"} <= {*lines}
    assert "ExecReload=/bin/kill -HUP $MAINPID" in lines and "SupplementaryGroups=video render" in lines
    assert not [line for line in lines if line.startswith("MemoryMax=")], "the kernel would kill inside a call"


def test_the_advisor_has_a_user_of_its_own_and_no_right_of_the_agent() -> None:
    lines = unit(ADVISOR).splitlines()
    assert {
        "User=pertoken-advisor",
        "SupplementaryGroups=pertoken",
        "CapabilityBoundingSet=",
        "PrivateDevices=yes",
    } <= {*lines}
    assert not [line for line in lines if line.startswith(("DeviceAllow=", "SupplementaryGroups=video"))]
    assert {"StateDirectory=pertoken/advice", "StateDirectoryMode=2775", "UMask=0002"} <= {*lines}, (
        "the advisor writes advice alone, and so do members of its group"
    )
    assert "m pertoken-advisor pertoken\n" in ADVISOR.users, "it reads what members of the agent's group read"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("service", [AGENT, ADVISOR], ids=lambda service: service.program)
def test_the_unit_is_valid_and_little_exposed(service: SystemdService, tmp_path: Path) -> None:
    file = tmp_path / service.unit
    file.write_text(unit(service).replace(PYTHON, sys.executable))
    for check in (
        ["verify", str(file)],
        ["security", "--offline=true", f"--threshold={MAX_EXPOSURE * 10:.0f}", "--no-pager", str(file)],
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
    assert commands.run[:4] == [
        "systemd-sysusers /etc/sysusers.d/pertoken.conf",
        "systemctl daemon-reload",
        "systemctl enable pertoken-agent.service",
        "systemctl restart pertoken-agent.service",
    ]


def test_uninstalling_keeps_data_and_settings_unless_asked_to_delete_them(tmp_path: Path) -> None:
    commands = Commands()
    install(PLAN, commands, tmp_path)
    data = tmp_path / "var/lib/pertoken/telemetry.db"
    data.parent.mkdir(parents=True)
    data.write_text("")
    uninstall(AGENT, commands, delete_data=False, root=tmp_path)
    assert not (tmp_path / UNIT_PATH).exists() and data.exists() and (tmp_path / "etc/pertoken").exists()
    assert commands.run[-2:] == ["systemctl disable --now pertoken-agent.service", "systemctl daemon-reload"]
    uninstall(AGENT, commands, delete_data=True, root=tmp_path)
    assert not data.exists() and not (tmp_path / "etc/pertoken").exists()
    assert commands.run[-1] == "systemctl daemon-reload" and commands.run[-2] != commands.run[-3]


def test_the_advisor_is_installed_and_removed_beside_the_agent(tmp_path: Path) -> None:
    commands = Commands()
    for service in (AGENT, ADVISOR):
        install(installation(service, PYTHON, groups=[]), commands, tmp_path)
    advice = tmp_path / "var/lib/pertoken/advice/advice.db"
    advice.parent.mkdir(parents=True)
    advice.touch()
    with pytest.raises(PertokenError, match="`pertoken advisor uninstall` first"):
        uninstall(AGENT, commands, delete_data=True, root=tmp_path)
    uninstall(ADVISOR, commands, delete_data=False, root=tmp_path)
    assert advice.exists() and (tmp_path / UNIT_PATH).exists()
    assert not (tmp_path / "etc/systemd/system/pertoken-advisor.service").exists()
    install(installation(ADVISOR, PYTHON, groups=[]), commands, tmp_path)
    uninstall(ADVISOR, commands, delete_data=True, root=tmp_path)
    assert not advice.parent.exists() and (tmp_path / "etc/pertoken/pertoken.toml").exists()


def test_a_python_in_a_home_folder_is_refused_with_where_to_install_instead() -> None:
    assert "/opt/pertoken/bin/pertoken advisor install" in (
        hidden_from_service(ADVISOR, "/home/me/venv/bin/python") or ""
    )


def test_a_plan_is_shown_as_it_would_be_done() -> None:
    shown = str(InstallPlan((File(Path("/etc/x"), "a = 1\n", keep=True),), (("systemctl", "daemon-reload"),)))
    assert shown == "# /etc/x (unless there is one)\na = 1\n\n$ systemctl daemon-reload"


def section(name: str) -> dict[str, list[str]]:
    """Return the settings of one section of the unit."""
    sections: dict[str, list[str]] = {}
    heading = ""
    for line in unit().splitlines():
        if line.startswith("["):
            heading = line.strip("[]")
        elif heading == name and "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            sections.setdefault(key, []).append(value)
    return sections


class Manager:
    """Stand-in for systemd: what it gives a service of type `notify`, and the states it receives."""

    def __init__(self, folder: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(folder / "notify"))
        self.socket.settimeout(60)
        self.folder = folder

    def environment(self) -> dict[str, str]:
        credentials = self.folder / "credentials"
        credentials.mkdir(mode=0o700)
        (name,) = section("Service")["LoadCredential"]
        (credentials / name).write_text("postgresql://agent:canary@127.0.0.1:1/nowhere\n")
        return {
            "PATH": "/usr/bin:/bin",
            "NOTIFY_SOCKET": str(self.folder / "notify"),
            "CREDENTIALS_DIRECTORY": str(credentials),
            "STATE_DIRECTORY": str(self.folder / "var/lib/pertoken"),
            "CONFIGURATION_DIRECTORY": str(self.folder / "etc/pertoken"),
            "WATCHDOG_USEC": str(180 * 10**6),
            "LANG": "C.UTF-8",
        }

    def hear(self, state: str, n: int = 1) -> None:
        """Wait until a state was reported `times` times."""
        while n:
            n -= self.socket.recv(1000).decode().splitlines().count(state)


def test_the_units_own_command_is_ready_alive_reread_and_stopped_as_systemd_would_have_it(tmp_path: Path) -> None:
    """Its paths are below the test's folder; everything else is the unit's."""
    settings = tmp_path / "etc/pertoken/pertoken.toml"
    install(installation(AGENT, sys.executable, groups=[]), lambda _: None, tmp_path)
    settings.write_text('[agent]\ninterval = "1s"\ndiscover = false\nprobes = []\ncloud_metadata = false\n')
    (tmp_path / "var/lib/pertoken").mkdir(parents=True)
    service = section("Service")
    (start,) = service["ExecStart"]
    command = [f"{tmp_path}{word}" if word.startswith(("/var", "/etc")) else word for word in shlex.split(start)]
    command[0] = sys.executable
    manager = Manager(tmp_path)
    with (tmp_path / "log").open("wb") as log:
        agent = subprocess.Popen(command, env=manager.environment(), cwd="/", stderr=log, stdout=log)
        try:
            manager.hear("READY=1")
            manager.hear("WATCHDOG=1", 2)
            settings.write_text(settings.read_text().replace("1s", "2s"))
            (reload,) = service["ExecReload"]
            subprocess.run(shlex.split(reload.replace("$MAINPID", str(agent.pid))), check=True, timeout=60)
            until(lambda: "recording every 2 s" in (tmp_path / "log").read_text(), "settings reread")
            agent.send_signal(signal.SIGTERM)
            manager.hear("STOPPING=1")
            assert agent.wait(60) == 0
        finally:
            agent.terminate()
            agent.wait(60)
            manager.socket.close()
    assert (tmp_path / "var/lib/pertoken/telemetry.db").exists()
    assert "canary" not in (tmp_path / "log").read_text()


def test_the_watchdog_outlasts_the_longest_interval_and_a_stop_the_longest_call() -> None:
    service, longest = section("Service"), 60
    load(None, {"PERTOKEN_AGENT_INTERVAL": f"{longest}s"})
    with pytest.raises(BadInput):
        load(None, {"PERTOKEN_AGENT_INTERVAL": "120s"})
    assert service["WatchdogSec"] == ["3min"] and 2 * longest <= 180
    assert service["TimeoutStopSec"] == ["2min"] and service["SendSIGKILL"] == ["no"]
