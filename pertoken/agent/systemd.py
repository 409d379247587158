"""Agent and advisor as systemd services.

Front door: `install`, `uninstall`, `manager_state`, `notify`.
"""

from __future__ import annotations

import grp
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

import psutil

from pertoken.config import SERVICE_ADVICE, SERVICE_FOLDER, SERVICE_SETTINGS, template
from pertoken.errors import BadInput, PertokenError
from pertoken.installed import install_source

_ETC = Path("/etc")
_HIDDEN = ("/root", "/home", "/run/user", "/tmp", "/var/tmp")
"""Folders that the services do not see (ProtectHome, PrivateTmp)."""
_DEVICE_GROUPS = ("video", "render")
"""Owners of the AMD device nodes."""


@dataclass(frozen=True, slots=True)
class SystemdService:
    """One program as a systemd service."""

    program: str
    """`agent` or `advisor`."""
    users: str
    """Its accounts, as systemd-sysusers reads them."""
    data: Path
    """Folder that only this service writes."""

    @property
    def unit(self) -> str:
        """Name of its unit."""
        return f"pertoken-{self.program}.service"

    @property
    def unit_file(self) -> Path:
        """Path of its unit."""
        return _ETC / "systemd/system" / self.unit

    @property
    def user_file(self) -> Path:
        """Path of the list of its accounts."""
        name = "pertoken" if self.program == "agent" else f"pertoken-{self.program}"
        return _ETC / "sysusers.d" / f"{name}.conf"


AGENT = SystemdService("agent", f'u pertoken - "pertoken agent" {SERVICE_FOLDER}\n', SERVICE_FOLDER)

# A member of the group pertoken reads telemetry; the advisor has none of the agent's capabilities and devices.
ADVISOR = SystemdService(
    "advisor",
    f'g pertoken -\nu pertoken-advisor - "pertoken advisor" {SERVICE_ADVICE}\nm pertoken-advisor pertoken\n',
    SERVICE_ADVICE,
)

Run = Callable[[Sequence[str]], None]
"""Runs one command; raises PertokenError if it fails."""


@dataclass(frozen=True, slots=True)
class File:
    """A file to write; one that is there already is left as it is with `keep`."""

    path: Path
    text: str
    keep: bool = False


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """Plan of an installation: files to write, then commands to run."""

    files: tuple[File, ...]
    commands: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        """As it is shown before it is done."""
        parts = [
            f"# {file.path}{' (unless there is one)' if file.keep else ''}\n{file.text.rstrip()}\n"
            for file in self.files
        ]
        return "\n".join([*parts, *(f"$ {' '.join(command)}" for command in self.commands)])


def installation(
    service: SystemdService, python: str = sys.executable, groups: Iterable[str] | None = None
) -> InstallPlan:
    """Return the plan for a service run by this Python. `groups`: of the host (None: ask it)."""
    existing = {group.gr_name for group in grp.getgrall()} if groups is None else set(groups)
    device_groups = [name for name in _DEVICE_GROUPS if name in existing]
    unit = files("pertoken.agent").joinpath(service.unit).read_text(encoding="utf-8")
    return InstallPlan(
        files=(
            File(service.user_file, service.users),
            File(SERVICE_SETTINGS, template(), keep=True),
            File(service.unit_file, Template(unit).substitute(python=python, groups=" ".join(device_groups))),
        ),
        commands=(
            ("systemd-sysusers", str(service.user_file)),
            ("systemctl", "daemon-reload"),
            ("systemctl", "enable", service.unit),
            # A reload would leave the previous version running where another one was installed.
            ("systemctl", "restart", service.unit),
        ),
    )


def hidden_from_service(service: SystemdService, python: str = sys.executable) -> str | None:
    """Return why a service could not start this Python, with a remedy; None if it can."""
    for path in (python, os.path.realpath(python), sys.prefix, sys.base_prefix):
        if any(Path(path).is_relative_to(folder) for folder in _HIDDEN):
            return (
                f"{path} lies in a folder that the service does not see: install pertoken where it does "
                f"(python3 -m venv /opt/pertoken && /opt/pertoken/bin/pip install {install_source()}) and run "
                f"`/opt/pertoken/bin/pertoken {service.program} install`"
            )
    return None


def install(plan: InstallPlan, run: Run, root: Path = Path("/")) -> None:
    """Write and run a plan. Raises PertokenError naming the file or command that failed."""
    for file in plan.files:
        path = root / file.path.relative_to("/")
        if file.keep and path.exists():
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            path.write_text(file.text)
            path.chmod(0o644)
        except OSError as error:
            raise PertokenError(f"{path}: cannot be written: {error.strerror}; run it as root") from None
    for command in plan.commands:
        run(command)


def uninstall(service: SystemdService, run: Run, delete_data: bool, root: Path = Path("/")) -> None:
    """Stop a service and remove the files of its installation; its data only on request.

    The settings go with the data of the agent, unless the advisor is still installed.
    """
    if (root / service.unit_file.relative_to("/")).exists():
        run(("systemctl", "disable", "--now", service.unit))
    folders = [service.data] if delete_data else []
    if delete_data and service is AGENT:
        if (root / ADVISOR.unit_file.relative_to("/")).exists():
            raise PertokenError(f"the advisor keeps its advice below {AGENT.data}: `pertoken advisor uninstall` first")
        folders.append(SERVICE_SETTINGS.parent)
    try:
        for file in (service.unit_file, service.user_file):
            (root / file.relative_to("/")).unlink(missing_ok=True)
        for folder in folders:
            if (root / folder.relative_to("/")).exists():
                shutil.rmtree(root / folder.relative_to("/"))
    except OSError as error:
        raise PertokenError(f"{error.filename}: cannot be deleted: {error.strerror}; run it as root") from None
    run(("systemctl", "daemon-reload"))


def manager_state(service: SystemdService) -> str:
    """Return a service's state by systemd: `active (running)`, `not installed`, ..."""
    if shutil.which("systemctl") is None:
        return "this host has no systemd"
    show = ["systemctl", "show", service.unit, "--property=LoadState,ActiveState,SubState,StatusText"]
    done = subprocess.run(show, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"systemd does not answer: {done.stderr.strip()}"
    properties = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    if properties.get("LoadState") == "not-found":
        return "not installed"
    text = f": {properties['StatusText']}" if properties.get("StatusText") else ""
    return f"{properties.get('ActiveState')} ({properties.get('SubState')}){text}"


def samplers(pid: int) -> list[int]:
    """Return children of an agent that hold drivers now."""
    try:
        children = psutil.Process(pid).children()
        return [child.pid for child in children if "pertoken.agent.sampler.child" in child.cmdline()]
    except psutil.Error:
        return []


def carry_out(command: Sequence[str]) -> None:
    """Run a command of a plan. Raises PertokenError with its output; BadInput where systemd is absent."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise BadInput(f"{command[0]} is not on this host: a service needs systemd; see deploy/") from None
    if done.returncode:
        raise PertokenError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")


def notify(*states: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send states such as `READY=1`, `WATCHDOG=1`, `STATUS=...` to the service manager in one datagram.

    False if no manager asked for them (no NOTIFY_SOCKET). Raises OSError if its socket does not take them.
    """
    path = environment.get("NOTIFY_SOCKET")
    if not path:
        return False
    address = "\0" + path[1:] if path.startswith("@") else path
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
        to.settimeout(1.0)
        to.sendto("\n".join(states).encode(), address)
    return True
