"""The servers of this host between two looks, with servers and a clock by script."""

import pytest

from pertoken.agent.processes import Address, HostProcesses, Process
from pertoken.agent.scrape import Limits
from pertoken.agent.watch import ASK_AGAIN_S, Watch

PORTS = (7001, 7002)


def test_a_port_that_lets_us_wait_holds_up_one_look_and_not_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    limits, now, asked = Limits(timeout_s=3), [0.0], []
    listening = tuple(Address("127.0.0.1", port) for port in PORTS)
    one = Process(20, 1, ("python", "app.py"), 5000, listening)
    maps = {20: frozenset({"/x/libllama.so"})}
    monkeypatch.setattr("pertoken.agent.watch.host_processes", lambda: HostProcesses({20: one}, (), maps.get))

    def answers(url: str, limits: Limits) -> None:
        asked.append(url)
        now[0] += limits.timeout_s if url.endswith("7001") else 0.01

    monkeypatch.setattr("pertoken.agent.watch.answers", answers)
    watch = Watch((), True, limits, lambda: now[0])
    silent, quick = (f"http://127.0.0.1:{port}" for port in PORTS)
    for _ in range(3):
        watch.look()
    assert asked == [silent, quick, quick, quick]
    now[0] += ASK_AGAIN_S
    watch.look()
    watch.close()
    assert asked[4:] == [silent, quick]
