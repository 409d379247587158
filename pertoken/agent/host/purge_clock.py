"""The time by which old rows are deleted: the wall clock, once the monotonic clock has confirmed it.

A wall clock that is wrong for some seconds makes every row look old. Deleting late is harmless, deleting early is not:
after a start and after each step of the wall clock, nothing is deleted until both clocks have advanced together for
`CONFIRM_S`.
"""

import time
from collections.abc import Callable

CONFIRM_S = 3600.0
MAX_STEP_S = 60.0
"""A smaller step since both clocks were compared first is not taken for a wrong clock..."""
MAX_DRIFT = 1e-3
"""...nor is a wall clock that runs faster or slower by this: twice as much as the kernel slews one."""


class PurgeClock:
    """Compares the wall clock with the time since boot, in which a suspended machine counts too."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        since_boot: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._wall, self._since_boot = wall, since_boot
        self._restart()

    def _restart(self) -> None:
        self._began_s, self._wall_began_s = self._since_boot(), self._wall()

    def now_ts(self) -> int | None:
        """Return Unix seconds to judge the age of rows by; None while the wall clock is not confirmed. Call it
        often."""
        elapsed_s, wall_s = self._since_boot() - self._began_s, self._wall()
        if abs(wall_s - self._wall_began_s - elapsed_s) > MAX_STEP_S + MAX_DRIFT * elapsed_s:
            self._restart()
            return None
        return int(wall_s) if elapsed_s >= CONFIRM_S else None
