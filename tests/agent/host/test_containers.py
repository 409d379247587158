from pathlib import Path

import pytest

from pertoken.agent.host.owners import Container, container_of

ID = "3f2a1b4c5d6e" + "0" * 52
OUTER = "a" * 64
UID = "8e1b6f2a-0c1d-4e5f-9a8b-7c6d5e4f3a2b"
POD = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice"


def proc(folder: Path, cgroup: str, ns_pids: str) -> Path:
    (folder / "42").mkdir()
    (folder / "42/cgroup").write_text(cgroup)
    (folder / "42/status").write_text(f"Name:\tpython3\nNSpid:\t{ns_pids}\nThreads:\t1\n")
    return folder


@pytest.mark.parametrize(
    ("cgroup", "runtime", "pod"),
    [
        (f"0::/system.slice/docker-{ID}.scope\n", "docker", None),
        (f"12:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}\n", "docker", None),
        (f"0::{POD}/cri-containerd-{ID}.scope\n", "containerd", UID),
        (f"0::{POD}/crio-{ID}.scope/container\n", "cri-o", UID),
        (f"4:cpu:/kubepods/besteffort/pod{UID}/{ID}\n", None, UID),
        (f"0::/machine.slice/libpod-{ID}.scope\n", "podman", None),
        (f"0::/../cri-containerd-{ID}.scope\n", "containerd", None),
        (f"0::/docker/{OUTER}/docker/{ID}\n", "docker", None),
    ],
)
def test_a_container_is_identified_by_the_cgroup_of_its_runtime(
    tmp_path: Path, cgroup: str, runtime: str | None, pod: str | None
) -> None:
    assert container_of(42, proc(tmp_path, cgroup, "42\t7")) == Container(ID, runtime, pod, 7)


@pytest.mark.parametrize(
    "cgroup",
    [
        "0::/\n",
        "0::/user.slice/user-1000.slice/session-2.scope\n",
        f"0::/machine.slice/libpod-conmon-{ID}.scope\n",
        "0::/system.slice/pertoken-agent.service\n",
    ],
)
def test_a_process_of_the_host_is_in_no_container(tmp_path: Path, cgroup: str) -> None:
    assert container_of(42, proc(tmp_path, cgroup, "42")) is None


def test_a_process_with_one_pid_has_no_other_inside_and_one_that_ended_is_in_none(tmp_path: Path) -> None:
    container = container_of(42, proc(tmp_path, f"0::/docker/{ID}\n", "42"))
    assert container is not None and container.inner_pid is None
    assert container_of(43, tmp_path) is None


def test_a_container_prints_as_runtime_short_id_and_pod() -> None:
    assert str(Container(ID, "containerd", UID, 7)) == f"containerd 3f2a1b4c5d6e of pod {UID}, pid 7 there"
    assert str(Container(ID, None, None, None)) == "container 3f2a1b4c5d6e"
