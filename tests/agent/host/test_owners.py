import os
from pathlib import Path

import pytest

from pertoken.agent.host.owners import KEPT_S, Owners, jobs_by_gpu, owner_knobs

JOB = "\0".join(
    ["SLURM_JOB_ID=4711", "SLURM_JOB_USER=ann", "SLURM_JOB_ACCOUNT=nlp", "SLURM_JOB_PARTITION=h100", "HF_TOKEN=secret"]
)
OF_JOB = {"job": "4711", "job:user": "ann", "job:account": "nlp", "job:partition": "h100"}


def knobs_of(folder: Path, cgroup: str = "", environment: str = "", labels: str | None = None) -> dict[str, str]:
    (folder / "42/root/etc/podinfo").mkdir(parents=True)
    (folder / "42/cgroup").write_text(cgroup)
    (folder / "42/environ").write_text(environment)
    if labels is not None:
        (folder / "42/root/etc/podinfo/labels").write_text(labels)
    return owner_knobs(42, ("team", "app.kubernetes.io/part-of"), folder)


@pytest.mark.parametrize(
    ("cgroup", "environment", "knobs"),
    [
        ("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n", JOB, OF_JOB),
        ("4:devices:/slurm/uid_1000/job_4711/step_batch\n1:name=systemd:/system.slice\n", JOB, OF_JOB),
        ("0::/system.slice/slurmstepd.scope/job_4711/step_0\n", "", {"job": "4711"}),
        ("0::/system.slice/slurmstepd.scope/job_99/step_0\n", JOB, {"job": "99"}),
        ("0::/\n", JOB, OF_JOB),
        ("0::/ml.slice/ml-search.slice/vllm.service\n", "", {"slice": "ml-search.slice"}),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", "", {"slice": "user-1000.slice"}),
        ("0::/system.slice/vllm.service\n", "", {}),
        ("0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8e.slice/cri-containerd-1.scope", "", {}),
        ("0::/jobs/my_job_12/x\n", "PATH=/bin", {}),
        ("0::/\n", "SLURM_JOB_ID=" + "9" * 300, {}),
    ],
)
def test_the_job_and_slice_of_a_process_are_read(
    tmp_path: Path, cgroup: str, environment: str, knobs: dict[str, str]
) -> None:
    assert knobs_of(tmp_path, cgroup, environment) == knobs


def test_labels_of_a_pod_are_read_by_allow_list(tmp_path: Path) -> None:
    labels = 'app.kubernetes.io/part-of="shop"\nteam="a \\"b\\""\npassword="x"\nteam2="c"\nbroken\nteam\n'
    assert knobs_of(tmp_path, labels=labels) == {"label:app.kubernetes.io/part-of": "shop", "label:team": 'a "b"'}


def test_a_pod_cannot_hold_up_the_agent(tmp_path: Path) -> None:
    (tmp_path / "42/root/etc/podinfo").mkdir(parents=True)
    os.mkfifo(tmp_path / "42/root/etc/podinfo/labels")
    assert owner_knobs(42, ("team",), tmp_path) == {}
    assert owner_knobs(43, ("team",), tmp_path) == {}


def test_jobs_of_gpus_are_read_from_a_file_for_each(tmp_path: Path) -> None:
    for name, text in {"0": "12\n", "1": "13\n12\n13\n", "2": "\n", "README": "9", "3.tmp": "9"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "5").mkdir()
    assert jobs_by_gpu(tmp_path) == {"0": "12", "1": "12,13"}
    assert jobs_by_gpu(tmp_path / "absent") == {}


def test_owners_are_read_again_after_a_minute(tmp_path: Path) -> None:
    now = [0.0]
    owners = Owners((), str(tmp_path), lambda: now[0])
    owners.look()
    assert not owners.jobs and owners.knobs_of(None, None) == {}
    (tmp_path / "0").write_text("12")
    owners.look()
    assert not owners.jobs
    now[0] = KEPT_S
    owners.look()
    assert owners.jobs == {"0": "12"}
