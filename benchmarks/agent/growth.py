"""Memory growth of the agent over many ticks: `python -m benchmarks.agent.growth FOLDER URL TICKS`.

`benchmarks.agent --growth` runs it.

The agent's own ticks (sampler, scrape, assembly, commit) and its jobs between them (roll-ups and others) follow each
other without its scheduler, on clocks that go on by their interval from each to the next. They are a tenth of a second
apart at least, since GPM measures nothing in less. Prints `{"pss_mib": {"300": m, ...}}`: PSS of the agent
and its sampler after that number of ticks.
"""

import json
import sys
import threading
import time
from dataclasses import replace
from math import ceil
from pathlib import Path

from benchmarks.agent.usage import use
from pertoken.agent.clocks import Clocks
from pertoken.agent.daemon import migrate
from pertoken.agent.recorder import Recorder
from pertoken.agent.sampler.client import Drivers
from pertoken.config import load
from pertoken.store.connect.location import locate

LOOK_TICKS = 300
"""Ticks between two looks at its memory; the first look is the baseline, with all loaded that ticks need."""
APART_S = 0.11


class SteppedTime:
    """The clocks of a host on which `now_s` seconds have passed since it was made."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._real = Clocks()
        self._start_ms, self._since_boot_ms = self._real.wall_ms() // 1000 * 1000, self._real.since_boot_ms()

    def clocks(self) -> Clocks:
        """Return them as the agent reads them: the wall clock and the time since boot go on together."""
        return Clocks(
            wall_ms=lambda: self._start_ms + round(1000 * self.now_s),
            since_boot_ms=lambda: self._since_boot_ms + round(1000 * self.now_s),
        )


def main() -> None:
    folder, url, ticks = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    settings = load(None, db=str(folder), agent_interval="1s", agent_engines=[url])
    where, stepped = locate(str(folder)), SteppedTime()
    migrate(where)
    agent = Recorder(where, settings, Drivers(settings.agent_probes), clocks=stepped.clocks())
    agent.begin()
    jobs = [replace(job, every_s=ceil(job.every_s)) for job in agent.jobs(threading.Event()) if not job.beside]
    pss_mib: dict[int, float] = {}
    for n in range(1, ticks + 1):
        due_s = time.monotonic() + APART_S
        stepped.now_s = float(n)
        agent.tick()
        for job in jobs:
            if not n % job.every_s:
                job.work()
        if n % LOOK_TICKS == 0 or n == ticks:
            pss_mib[n] = use().pss_mib
        time.sleep(max(0.0, due_s - time.monotonic()))
    agent.end(damaged=False)
    print(json.dumps({"pss_mib": pss_mib}), flush=True)


if __name__ == "__main__":
    main()
