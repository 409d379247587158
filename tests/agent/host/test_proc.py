"""That the kernel's files are read as psutil reads them."""

import psutil
import pytest

from pertoken.agent.host import proc


def test_memory_cpu_network_and_own_figures_match_psutil() -> None:
    memory = psutil.virtual_memory()
    memory_bytes, available_bytes = proc.memory_bytes()
    assert memory_bytes == memory.total and available_bytes == pytest.approx(memory.available, rel=0.2)
    times, (idle, total) = psutil.cpu_times(), proc.cpu_ticks()
    ticks_per_s = total / (sum(times) - times.guest - times.guest_nice)
    assert ticks_per_s == pytest.approx(100, rel=0.01)  # as Linux has reported to every program for decades
    assert idle / ticks_per_s == pytest.approx(times.idle + times.iowait, rel=0.01)
    nics = [nic for name, nic in psutil.net_io_counters(pernic=True, nowrap=False).items() if name != "lo"]
    expected = sum(nic.bytes_recv for nic in nics), sum(nic.bytes_sent for nic in nics)
    assert proc.network_bytes() == pytest.approx(expected, rel=0.1, abs=1_000_000)
    assert proc.own_rss_bytes() == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)


def test_available_memory_is_estimated_on_a_kernel_that_does_not_report_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "_start", lambda path, most: b"MemTotal:  100 kB\nMemFree:  50 kB\nBuffers: 1 kB\n")
    assert proc.memory_bytes()[0] == psutil.virtual_memory().total
