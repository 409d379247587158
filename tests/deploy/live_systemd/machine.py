"""A Debian root that boots its own systemd: made by debootstrap, run by systemd-nspawn.

`--register=no --keep-unit` needs no systemd on this host. Its network is its own and has loopback alone.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

SUITE = "bookworm"
PACKAGES = "systemd,systemd-sysv,dbus,python3,python3-venv,procps"
UNIT = "pertoken-agent.service"
RESTART = 133
"""Status by which systemd-nspawn asks whoever keeps its unit to start it again: the machine reboots."""
_ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/root")


def debian(folder: Path) -> Path:
    """Return a new root folder: a copy of the one that PERTOKEN_E2E_ROOT names, or one that debootstrap makes."""
    if ready := os.environ.get("PERTOKEN_E2E_ROOT"):
        subprocess.run(["cp", "-a", "--reflink=auto", ready, str(folder)], check=True)
    else:
        make = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(folder)]
        done = subprocess.run(make, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return folder


class Machine:
    """One Debian, running or not."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._console = root.parent / f"{root.name}.console"

    def boot(self) -> None:
        """Start it and wait until its systemd has started everything."""
        # The name is of this run alone: one that was killed leaves a folder of its name behind.
        name = f"--machine=pertoken-{os.getpid()}"
        command = ["systemd-nspawn", "--directory", str(self.root), name, "--register=no", "--keep-unit", "--boot"]
        # A reboot deletes a folder in /run, which systemd-nspawn refuses where that is on a disk.
        mounted = 'mkdir -p /run/systemd/nspawn && mount -t tmpfs none /run/systemd/nspawn && exec "$@"'
        with self._console.open("wb") as log:
            self._nspawn = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", mounted, "sh", *command, "--private-network", "--console=pipe"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_started()

    def reboot(self) -> None:
        """Restart it as a person would."""
        assert self._nspawn is not None
        self.run("systemctl", "reboot", check=False)
        assert self._nspawn.wait(180) == RESTART, self._console.read_text(errors="replace")
        self.boot()

    def power_off(self) -> None:
        """End it."""
        if self._nspawn is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.run("systemctl", "poweroff", check=False)
            self._nspawn.wait(150)
        if self._nspawn.poll() is None:
            self._nspawn.send_signal(signal.SIGTERM)
            self._nspawn.wait(60)
        self._nspawn = None

    def run(self, *command: str, user: str | None = None, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run a command in it, as root or as one of its users; `user` gets the user's groups."""
        as_user = ("runuser", "-u", user, "--", "env", f"HOME=/home/{user}") if user else ()
        enter = ["nsenter", "--target", str(self._leader()), "--mount", "--uts", "--ipc", "--net", "--pid"]
        done = subprocess.run(
            [*enter, "env", "--chdir=/", "-i", *_ENVIRONMENT, *as_user, *command],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=300,
            check=False,
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done

    def show(self, name: str, unit: str = UNIT) -> str:
        """Return a property of a unit."""
        return self.run("systemctl", "show", unit, f"--property={name}", "--value").stdout.strip()

    def log(self, since: str = "") -> str:
        """Return the unit's log, of this boot."""
        after = ("--after-cursor", since) if since else ()
        return self.run("journalctl", "--boot", "--unit", UNIT, "--output=cat", "--no-pager", *after).stdout

    def cursor(self) -> str:
        """Return the end of the log, for `log(since)`."""
        last = self.run("journalctl", "--boot", "--lines=1", "--output=json", "--no-pager").stdout
        return str(json.loads(last)["__CURSOR"])

    def until(self, holds: Callable[[], bool], what: str, seconds: float = 90) -> float:
        """Wait for something; return how many seconds it took."""
        start = time.monotonic()
        while not holds():
            assert time.monotonic() < start + seconds, f"no {what} within {seconds:.0f} s:\n{self._tail()}"
            time.sleep(0.2)
        return time.monotonic() - start

    def _tail(self) -> str:
        return self.log()[-3000:] if self._leader() else self._console.read_text(errors="replace")[-3000:]

    def _leader(self) -> int | None:
        """Return its process 1, by our pid."""
        assert self._nspawn is not None and self._nspawn.poll() is None, self._console.read_text(errors="replace")
        children = psutil.Process(self._nspawn.pid).children()
        return children[0].pid if children else None

    def _wait_started(self) -> None:
        def started() -> bool:
            if self._leader() is None:
                return False
            state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
            return state in ("running", "degraded")

        self.until(started, "running system", 180)


@contextlib.contextmanager
def booted(folder: Path) -> Iterator[Machine]:
    """Boot a new Debian until the block ends, then delete it."""
    machine = Machine(debian(folder))
    try:
        machine.boot()
        yield machine
    finally:
        machine.power_off()
        shutil.rmtree(folder, ignore_errors=True)
