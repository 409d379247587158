import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pertoken.agent.readings import Unavailable
from pertoken.agent.sampler.client import ProcessLists, in_host_pid_namespace, uses_driver
from tests.agent.values import gpu, probe
from tests.standin_nvml import Gpu, Machine, environment

ENGINE = 41


def folder(root: Path, inode: int) -> Path:
    (root / "self/ns").mkdir(parents=True)
    (root / "self/ns/pid").symlink_to(f"pid:[{inode}]")
    return root


def test_the_hosts_pid_namespace_is_known_by_its_inode(tmp_path: Path) -> None:
    assert in_host_pid_namespace(folder(tmp_path / "host", 4026531836))
    assert not in_host_pid_namespace(folder(tmp_path / "container", 4026532201))
    assert not in_host_pid_namespace(tmp_path / "no-proc")


def test_ended_processes_are_left_out_and_a_list_of_only_unknown_pids_is_not_believed() -> None:
    lists = ProcessLists(in_host=True, lives={ENGINE, 7}.__contains__)
    whole = probe(gpu(0, ENGINE))
    assert lists.believed(whole) == whole
    ended, unowned, free, _ = lists.believed(probe(gpu(0, ENGINE, 9), gpu(1, 9), gpu(2))).devices
    assert [held.pid for held in ended.processes or ()] == [ENGINE] and ended.unavailable == ()
    assert unowned.processes is None and free.processes == ()
    (missing,) = unowned.unavailable
    assert "not on this host (pid 9)" in missing.reason and "pid namespace" in (missing.remedy or "")


def test_the_reason_for_a_missing_process_list_stays_until_the_driver_returns_one() -> None:
    lists, refused = ProcessLists(in_host=True), Unavailable("processes", "denied", "only to a privileged user")
    lists.believed(probe(gpu(0)._replace(processes=None, unavailable=(refused,))))
    assert lists.believed(probe(gpu(0)._replace(processes=None))).devices[0].unavailable == (refused,)
    assert lists.believed(probe(gpu(0))).devices[0].unavailable == ()


def test_in_a_container_only_lists_of_processes_that_are_there_are_believed() -> None:
    lists = ProcessLists(in_host=False, uses={ENGINE}.__contains__)
    reading = lists.believed(probe(gpu(0, ENGINE), gpu(1, ENGINE, 645_400), gpu(2)))
    ours, foreign, free, _ = reading.devices
    assert [held.pid for held in ours.processes or ()] == [ENGINE] and free.processes == ()
    assert foreign.processes is None and foreign.power_mw is not None, "the device's own figures stand"
    (missing,) = foreign.unavailable
    assert (missing.metric, missing.status) == ("processes", "denied") and "645400" in missing.reason
    assert "hostPID" in (missing.remedy or "")
    assert reading.unavailable[-1].status == "denied" and "hostPID" in (reading.unavailable[-1].remedy or "")
    assert lists.believed(probe(gpu(1)._replace(processes=None))).devices[0].unavailable == (missing,), (
        "not asked this time: still so"
    )
    assert lists.believed(probe(gpu(1, ENGINE))).devices[0].unavailable == ()


def test_a_process_that_has_no_driver_mapped_does_not_hold_a_gpu() -> None:
    assert not uses_driver(1) and not uses_driver(2**22 + 1)


def test_an_agent_in_its_own_pid_namespace_attributes_nothing_and_doctor_gives_the_reason(tmp_path: Path) -> None:
    enter = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*enter, "true"], capture_output=True).returncode:
        pytest.skip("no pid namespace can be made here")
    machine = Machine(gpus=(Gpu("GPU-1", processes=((645_400, 2**30), (1, 2**30))),))
    env = environment(machine, control=tmp_path / "machine") | {"PERTOKEN_AGENT_PROBES": "nvidia"}
    command = [*enter, sys.executable, "-m", "pertoken", "doctor", "--json", "--db", str(tmp_path / "db")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    findings = {load["text"]: load for load in json.loads(done.stdout)}
    (host,) = (finding for text, finding in findings.items() if text.startswith("processes of the host: "))
    (gpu,) = (finding for text, finding in findings.items() if text.startswith("processes: "))
    assert host["area"] == "host" and "hostPID: true" in host["remedy"]
    assert "pid 645400, 1" in gpu["text"] and "hostPID: true" in gpu["remedy"]
    assert not [text for text in findings if text.startswith("held by")], "not even pid 1, which is somebody here"
