"""Labels of a process's pod, its Slurm job and its systemd slice, as knobs of `state.owner`.

Sources: Kubernetes documents, "Downward API" (a volume with `metadata.labels` holds a line NAME="VALUE" for each);
Slurm documents of cgroup.conf (a path has /job_ID/) and of the output environment variables of srun and sbatch;
systemd.slice(5). GPUs of a job by a file for each GPU: dcgm-exporter's `--hpc-job-mapping-dir`. Read November 2026.
"""

import json
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from pertoken.settings.owners import JOB, JOB_FACTS, LABEL, SLICE
from pertoken.state.knobs import is_name

KEPT_S = 60.0
"""How long owners are not read again."""
MAX_BYTES = 262_144
"""Largest file of labels: etcd stores no larger object with its annotations."""
MAX_JOBS = 1_024
"""Most files of a folder of jobs that are read: a host has fewer GPUs."""
_LABELS = "root/etc/podinfo/labels"
_JOB = re.compile(r"/job_(\d+)(?=/|$)")
_SLICE = re.compile(r"(?:^|/)([^/]+\.slice)(?=/)")
_NOBODYS = re.compile(r"-?\.slice|system\.slice|user\.slice|machine\.slice|kubepods[^/]*\.slice")
"""Slices into which systemd and the kubelet put what nobody put into one."""
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
        self._jobs: Mapping[str, str] = {}

    def look(self) -> None:
        """Forget what was read `KEPT_S` ago."""
        if self._clock() - self._read_s >= KEPT_S:
            self._read_s, self._knobs = self._clock(), {}
            self._jobs = {} if self._folder is None else jobs_by_gpu(Path(self._folder))

    def knobs_of(self, pid: int | None, start_ms: int | None) -> Mapping[str, str]:
        """Return who pays for a process, by its pid and start; nothing for one that cannot be seen."""
        if pid is None:
            return {}
        if (pid, start_ms) not in self._knobs:
            self._knobs[pid, start_ms] = owner_knobs(pid, self._labels)
        return self._knobs[pid, start_ms]

    @property
    def jobs(self) -> Mapping[str, str]:
        """Jobs of GPUs, as `jobs_by_gpu` returns them."""
        return self._jobs


def owner_knobs(pid: int, labels: Collection[str], proc: Path = Path("/proc")) -> dict[str, str]:
    """Return who pays for a process, as far as it may be seen; of the labels of its pod those named by `labels`."""
    process = proc / str(pid)
    knobs = {**_job(process), **dict(_labels(process / _LABELS, labels))}
    return {name: value for name, value in knobs.items() if is_name(value)}


def jobs_by_gpu(folder: Path) -> Mapping[str, str]:
    """Return the jobs of GPUs by the name of their file, the number of the GPU. Several are one owner."""
    jobs: dict[str, str] = {}
    with suppress(OSError):
        names = sorted(name for name in os.listdir(folder) if re.fullmatch(r"\d+", name))  # noqa: PTH208
        for name in names[:MAX_JOBS]:
            words = sorted(set(_text(folder / name).split()))
            if words and is_name(job := ",".join(words)):
                jobs[name] = job
    return jobs


def _job(process: Path) -> dict[str, str]:
    """Return the job and slice of a process; variables of another job than its control group's are inherited ones."""
    paths = [line.split(":", 2)[-1] for line in _text(process / "cgroup").splitlines()]
    jobs = [match[1] for path in paths for match in [_JOB.search(path)] if match]
    slices = [name for path in paths for name in _SLICE.findall(path) if not _NOBODYS.fullmatch(name)]
    variables = dict(entry.partition("=")[::2] for entry in _text(process / "environ").split("\0"))
    knobs = {} if not slices or "kubepods" in "".join(paths) else {SLICE: slices[-1]}
    own = variables.get("SLURM_JOB_ID") or variables.get("SLURM_JOBID")
    job = jobs[0] if jobs else own
    if job is None:
        return knobs
    facts = {} if own != job else {fact: variables[name] for name, fact in _VARIABLES.items() if name in variables}
    return {**knobs, JOB: job, **facts}


def _labels(file: Path, labels: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the labels of a pod that are named, from the file that its downward API volume holds."""
    for line in _text(file).splitlines() if labels else ():
        name, _, quoted = line.partition("=")
        if name in labels:
            with suppress(ValueError):
                yield LABEL + name, str(json.loads(quoted))


def _text(file: Path) -> str:
    """Return the beginning of a regular file; nothing of one that is not there, may not be read, or could block."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(fd, "rb") as opened, suppress(OSError):
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return opened.read(MAX_BYTES).decode(errors="replace")
    return ""
