"""Labels of a process's pod, its Slurm job and its systemd slice, as knobs of `state.deployment`.

Sources: Kubernetes documents, "Downward API" (a volume with `metadata.labels` holds a line NAME="VALUE" for each);
Slurm documents of cgroup.conf (a path has /job_ID/) and of the output environment variables of srun and sbatch;
systemd.slice(5). GPUs of a job by a file for each GPU: dcgm-exporter's `--hpc-job-mapping-dir`. Read November 2026.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pertoken.settings.owners import JOB, JOB_FACTS, LABEL, SLICE
from pertoken.state.deployment import Workload, is_name

KEPT_S = 60.0
"""Time between two readings of owners."""
MAX_BYTES = 262_144
"""Largest file of labels: etcd stores no larger object with its annotations."""
MAX_JOBS = 1_024
"""Most files of a folder of jobs that are read: a host has fewer GPUs."""
_LABELS = "root/etc/podinfo/labels"
_JOB = re.compile(r"/job_(\d+)(?=/|$)")
_SLICE = re.compile(r"(?:^|/)([^/]+\.slice)(?=/)")
_DEFAULT_SLICE = re.compile(r"-?\.slice|system\.slice|user\.slice|machine\.slice|kubepods[^/]*\.slice")
"""Slices of systemd and the kubelet for processes without an explicit slice."""
_VARIABLES = {f"SLURM_JOB_{name.removeprefix('job:').upper()}": name for name in JOB_FACTS}


class Owners:
    """Owners of this host's processes and the jobs of its GPUs, read again every `KEPT_S`."""

    def __init__(
        self, labels: Collection[str], jobs_folder: str | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`labels`: names of pod labels that may be read; `jobs_folder` has a file for each GPU with its jobs."""
        self._labels, self._folder, self._clock = labels, jobs_folder, clock
        self._read_s = -KEPT_S
        self._knobs: dict[tuple[int, int | None], Mapping[str, str]] = {}
        self.jobs: Mapping[str, str] = {}
        """Jobs of GPUs, as `jobs_by_gpu` returns them."""

    def look(self) -> None:
        """Forget owners that were read `KEPT_S` ago."""
        if self._clock() - self._read_s >= KEPT_S:
            self._read_s, self._knobs = self._clock(), {}
            self.jobs = {} if self._folder is None else jobs_by_gpu(Path(self._folder))

    def knobs_of(self, pid: int | None, start_ms: int | None) -> Mapping[str, str]:
        """Return the owners of a process, by its pid and start; none for one that cannot be seen."""
        if pid is None:
            return {}
        if (pid, start_ms) not in self._knobs:
            self._knobs[pid, start_ms] = owner_knobs(pid, self._labels)
        return self._knobs[pid, start_ms]


def owner_knobs(pid: int, labels: Collection[str], proc: Path = Path("/proc")) -> dict[str, str]:
    """Return the owners of a process, as far as they may be seen; `labels` names the labels of its pod to read."""
    process = proc / str(pid)
    knobs = {**_job(process), **dict(_labels(process / _LABELS, labels))}
    return {name: value for name, value in knobs.items() if is_name(value)}


def jobs_by_gpu(folder: Path) -> Mapping[str, str]:
    """Return the jobs of GPUs by the name of their file, the number of the GPU. Several are one owner."""
    jobs: dict[str, str] = {}
    with suppress(OSError):
        names = sorted(name for name in os.listdir(folder) if re.fullmatch(r"\d+", name))  # noqa: PTH208
        for name in names[:MAX_JOBS]:
            job = ",".join(sorted(set(_text(folder / name).split())))
            if job and is_name(job):
                jobs[name] = job
    return jobs


def _job(process: Path) -> dict[str, str]:
    """Return the job and slice of a process; variables of another job than its control group's are inherited ones."""
    paths = [line.split(":", 2)[-1] for line in _text(process / "cgroup").splitlines()]
    jobs = [match[1] for path in paths for match in [_JOB.search(path)] if match]
    slices = [name for path in paths for name in _SLICE.findall(path) if not _DEFAULT_SLICE.fullmatch(name)]
    variables = dict(entry.partition("=")[::2] for entry in _text(process / "environ").split("\0"))
    knobs = {} if not slices or "kubepods" in "".join(paths) else {SLICE: slices[-1]}
    inherited = variables.get("SLURM_JOB_ID") or variables.get("SLURM_JOBID")
    job = jobs[0] if jobs else inherited
    if job is None:
        return knobs
    facts = (
        {} if inherited != job else {fact: variables[name] for name, fact in _VARIABLES.items() if name in variables}
    )
    return {**knobs, JOB: job, **facts}


def _labels(file: Path, labels: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the labels of a pod that are named, from the file that its downward API volume holds."""
    for line in _text(file).splitlines() if labels else ():
        name, _, quoted = line.partition("=")
        if name in labels:
            with suppress(ValueError):
                yield LABEL + name, str(json.loads(quoted))


def _text(file: Path) -> str:
    """Return the beginning of a regular file; nothing of one that is missing, may not be read, or could block."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(fd, "rb") as opened, suppress(OSError):
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return opened.read(MAX_BYTES).decode(errors="replace")
    return ""


VARIABLES = (
    *("KUBERNETES_SERVICE_HOST", "HOSTNAME", "POD_NAME", "POD_NAMESPACE"),
    *("DYN_PARENT_DGD_K8S_NAME", "DYN_PARENT_DGD_K8S_NAMESPACE"),
)
"""The only variables of an engine's environment that are read for it."""
_POD_OF_DEPLOYMENT = re.compile(r"(.+)-[bcdfghjklmnpqrstvwxz2456789]{8,10}-[bcdfghjklmnpqrstvwxz2456789]{5}")
_KSERVE = "-kserve"


def workload_of(environment: Mapping[str, str], namespace: Callable[[], str | None], host_name: str) -> Workload | None:
    """Return the object that the pod of a process belongs to; None for a process in no pod.

    `namespace` reads that of the pod's service account. A pod in the network of its host has the name of the host,
    `host_name`, in HOSTNAME, which then names no pod.
    """
    if "KUBERNETES_SERVICE_HOST" not in environment:
        return None
    graph, graph_namespace = (environment.get(f"DYN_PARENT_DGD_K8S_{part}") or None for part in ("NAME", "NAMESPACE"))
    pod_namespace = environment.get("POD_NAMESPACE") or graph_namespace or namespace()
    if graph is not None:
        return Workload("DynamoGraphDeployment", pod_namespace, graph)
    hostname = environment.get("HOSTNAME", "")
    pod = environment.get("POD_NAME") or ("" if hostname == host_name else hostname)
    return workload_of_pod(pod_namespace, pod)


def workload_of_pod(namespace: str | None, pod: str) -> Workload:
    """Return the object that a pod belongs to, as far as its name shows it."""
    match = _POD_OF_DEPLOYMENT.fullmatch(pod)
    if match is None:
        return Workload(None, namespace, None)
    name = match[1]
    if name.endswith(_KSERVE):
        return Workload("LLMInferenceService", namespace, name.removesuffix(_KSERVE))
    return Workload("Deployment", namespace, name)


_CONTAINER_ID = re.compile(r"(?:^|/)(?:(docker|cri-containerd|crio|libpod)[-/])?([0-9a-f]{64})(?:\.scope)?(?=/|$)")
_POD_UID = re.compile(r"[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?(?=/|$)")
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
        """Return a few words: `docker 3f2a1b4c5d6e, pid 7 there`."""
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
        if ids := list(_CONTAINER_ID.finditer(path)):
            runtime, container_id = ids[-1].groups()
            pod = _POD_UID.search(path)
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
