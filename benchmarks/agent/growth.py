"""Whether ticks make the agent grow: `python -m benchmarks.agent.growth FOLDER URL TICKS`.

`benchmarks.agent --growth` runs it.

The agent's own ticks (sampler, scrape, assembly, commit) and its jobs between them (roll-ups and others) follow each
other without its scheduler, on a wall clock that goes on by their interval from each to the next. They are a tenth of
a second apart at least, since GPM has nothing to tell before. Prints `{"pss_mib": {"300": m, ...}}`: PSS of the agent
and its sampler after so many ticks.
"""

import json
import sys
import threading
import time
from dataclasses import replace
from math import ceil
from pathlib import Path
from types import SimpleNamespace

from benchmarks.agent.usage import use
from pertoken.agent import recorder
from pertoken.agent.daemon import migrate
from pertoken.agent.sampler.drivers import Drivers
from pertoken.config import load
from pertoken.store.connect.location import locate

LOOK_TICKS = 300
"""Ticks between two looks at its memory; the first look is the baseline, with all loaded that ticks need."""
APART_S = 0.11


class Clock:
    """Time as the agent is told it: `now_s` seconds after it was made."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._wall_s, self._monotonic_s = float(int(time.time())), time.monotonic()

    def time(self) -> float:
        return self._wall_s + self.now_s

    def monotonic(self) -> float:
        return self._monotonic_s + self.now_s


def main() -> None:
    folder, url, ticks = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    settings = load(None, db=str(folder), agent_interval="1s", agent_engines=[url])
    where, clock = locate(str(folder)), Clock()
    told_by = SimpleNamespace(time=clock.time, monotonic=clock.monotonic, process_time=time.process_time)
    vars(recorder)["time"] = told_by
    migrate(where)
    agent = recorder.Recorder(where, settings, Drivers(settings.agent_probes))
    agent.begin()
    jobs = [replace(job, every_s=ceil(job.every_s)) for job in agent.jobs(threading.Event()) if not job.beside]
    pss_mib: dict[int, float] = {}
    for n in range(1, ticks + 1):
        due_s = time.monotonic() + APART_S
        clock.now_s = float(n)
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
