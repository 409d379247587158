"""Whether ticks make the agent grow: `python -m benchmarks.growth FOLDER URL TICKS`, for `benchmarks.agent --growth`.

The agent's own ticks (sampler, scrape, assembly, commit, roll-ups) follow each other without its scheduler, on a wall
clock that goes on by their interval from each to the next. They are a tenth of a second apart at least, since GPM has
nothing to tell before. Prints `{"warm_mib": m, "end_mib": m, "ticks": n}`: PSS of the agent and its sampler.
"""

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from benchmarks.usage import use
from pertoken.agent import daemon
from pertoken.agent.drivers import Drivers
from pertoken.config import Settings, load
from pertoken.store.place import place

WARM_TICKS = 300
"""After these everything that is kept between ticks is there: roll-ups of hours were made, caches are full."""
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

    def settings() -> Settings:
        return load(None, db=str(folder), agent_interval="1s", agent_engines=[url])

    where, clock = place(str(folder)), Clock()
    told_by = SimpleNamespace(time=clock.time, monotonic=clock.monotonic, process_time=time.process_time)
    vars(daemon)["time"] = told_by
    daemon._migrate(where)
    agent = daemon.Agent(where, settings, settings(), Drivers(settings().agent_probes))
    agent._watch.look()
    agent._begin()
    warm_mib = None
    for n in range(1, ticks + 1):
        due_s = time.monotonic() + APART_S
        clock.now_s = float(n)
        agent._tick()
        if n == min(WARM_TICKS, ticks):
            warm_mib = use().pss_mib
        time.sleep(max(0.0, due_s - time.monotonic()))
    told = {"warm_mib": warm_mib, "end_mib": use().pss_mib, "ticks": ticks}
    agent._watch.close()
    agent._drivers.close()
    agent._writer.close()
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
