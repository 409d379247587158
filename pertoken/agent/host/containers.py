"""The container a process runs in, by its cgroup, and the pid it has there.

Sources: cgroups(7), proc_pid_status(5) for NSpid; the names that Docker, containerd, CRI-O, Podman and the kubelet give
their cgroups, by systemd (`docker-ID.scope`) and without it (`/docker/ID`).
"""

import re
from dataclasses import dataclass
from pathlib import Path

_ID = re.compile(r"(?:^|/)(?:(docker|cri-containerd|crio|libpod)[-/])?([0-9a-f]{64})(?:\.scope)?(?=/|$)")
_POD = re.compile(r"[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?(?=/|$)")
_RUNTIMES = {"docker": "docker", "cri-containerd": "containerd", "crio": "cri-o", "libpod": "podman"}


@dataclass(frozen=True, slots=True)
class Container:
    """A container. `runtime` and `pod_uid` (of Kubernetes) are None where its cgroup does not name them."""

    id: str
    runtime: str | None
    pod_uid: str | None
    inner_pid: int | None
    """The process's pid in its innermost pid namespace; None if it has no other there."""

    def __str__(self) -> str:
        """In a few words: `docker 3f2a1b4c5d6e, pid 7 there`."""
        words = f"{self.runtime or 'container'} {self.id[:12]}"
        words += f" of pod {self.pod_uid}" if self.pod_uid else ""
        return f"{words}, pid {self.inner_pid} there" if self.inner_pid is not None else words


def container_of(pid: int, proc: Path = Path("/proc")) -> Container | None:
    """Return the innermost container of a process; None if it is in none, has ended, or may not be seen."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        path = line.split(":", 2)[-1]
        if ids := list(_ID.finditer(path)):
            runtime, container_id = ids[-1].groups()
            pod = _POD.search(path)
            uid = pod.group(1).replace("_", "-") if pod else None
            return Container(container_id, _RUNTIMES.get(runtime or ""), uid, _inner_pid(pid, proc))
    return None


def _inner_pid(pid: int, proc: Path) -> int | None:
    try:
        lines = (proc / str(pid) / "status").read_text(errors="replace").splitlines()
        pids = next(line.split()[1:] for line in lines if line.startswith("NSpid:"))
    except (OSError, StopIteration):
        return None
    return int(pids[-1]) if len(pids) > 1 and pids[-1].isdecimal() else None
