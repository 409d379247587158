import os
from pathlib import Path

import pytest

from pertoken.agent.probes.cpu import CpuProbe, counts_traffic, read_traffic
from pertoken.agent.readings import Unavailable

FLAGS = "fpu sse cqm_llc cqm_mbm_total cqm_mbm_local"


def counter(sys: Path, domain: int, text: str) -> Path:
    file = sys / f"fs/resctrl/mon_data/mon_L3_0{domain}/mbm_total_bytes"
    file.parent.mkdir(parents=True)
    file.write_text(f"{text}\n")
    return file


def status(reading: int | Unavailable) -> str:
    assert isinstance(reading, Unavailable)
    return reading.status


def test_traffic_is_the_sum_over_all_memory_domains(tmp_path: Path) -> None:
    counter(tmp_path, 0, "9000000000")
    counter(tmp_path, 1, "1")
    assert read_traffic(tmp_path) == 9_000_000_001


def test_an_absent_an_unmounted_and_an_unready_traffic_counter_are_distinguished(tmp_path: Path) -> None:
    assert counts_traffic(FLAGS) and not counts_traffic("fpu sse")
    assert status(read_traffic(tmp_path)) == "missing"
    counter(tmp_path, 0, "Unavailable")
    assert status(read_traffic(tmp_path)) == "failing"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_counter_that_may_not_be_read_is_denied(tmp_path: Path) -> None:
    counter(tmp_path, 0, "1").chmod(0)
    assert status(read_traffic(tmp_path)) == "denied"


def test_the_host_has_memory_traffic_or_the_cpu_gives_the_reason(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"model name\t: EPYC\nflags\t\t: {FLAGS}\n")
    host, cpu = CpuProbe(tmp_path).read()
    assert host.memory_traffic_bytes is None and "memory_traffic_bytes" in {
        missing.metric for missing in cpu.unavailable
    }
    counter(tmp_path / "sys", 0, "4096")
    host, cpu = CpuProbe(tmp_path).read()
    assert host.memory_traffic_bytes == 4096 and "memory_traffic_bytes" not in {
        missing.metric for missing in cpu.unavailable
    }
