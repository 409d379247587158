"""Recording never stops, never takes back what it stored, and ends well."""

import re
import signal
import sqlite3
from collections.abc import Iterator

from tests.adversary.judge.finding import Finding
from tests.adversary.played import Played
from tests.adversary.scene import Exit

_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(?: .*\n)*(\S.*)", re.M)
"""The last line of each traceback: the error."""
MAX_GAP_S = 10.0
"""Between two rows of the host at an interval of 1 s: a driver call may hang for 5 s before it is given up, and the
machine may be busy. Engines may hang for `scene.SCRAPE_TIMEOUT_S`, which is longer."""
MAX_FIRST_ROW_S = 25.0
"""From the start of an agent process to its first row, on a busy machine."""
MAX_RESUME_S = 5.0
"""From the end of a hindrance to the next row."""
MAX_STOP_S = 12.0
"""From SIGTERM to the end: a tick under way may take 5 s."""
MAX_UNOBSERVED = 0.15
"""Part of the time in which the agent ran that may be unobserved: a busy machine makes ticks late."""
MAX_UNOBSERVED_START_S = 4.0
"""Unobserved time around each start, and each hindrance."""


def findings(played: Played, connection: sqlite3.Connection) -> Iterator[Finding]:
    """Yield all that is wrong with the rows of the host, and with how processes ended."""
    yield from _exits(played)
    yield from _gaps(played)
    yield from _unobserved(played, connection)
    kept = max((look.host_rows for look in played.looks), default=0)
    ((stored,),) = connection.execute("SELECT COUNT(*) FROM host_sample").fetchall()
    if stored < kept:
        yield Finding("history", f"{kept} rows of the host were stored, {stored} are left")
    for kind, subject, n in connection.execute(
        "SELECT kind, subject_id, COUNT(*) FROM event GROUP BY kind, subject_id HAVING COUNT(*) > ?",
        (5 + 2 * len(played.world.acts),),
    ):
        yield Finding("events", f"{n} rows of {kind} of {subject}")


def _exits(played: Played) -> Iterator[Finding]:
    for end in played.exits:
        if end.asked == signal.SIGKILL:
            continue
        if end.asked is None and not played.world.acts_on("store"):
            yield Finding("exit", f"the agent ended unasked with {end.code}: {end.log[-1500:]}")
        elif end.asked is not None and end.code != 0 and not _too_early(end):
            yield Finding("exit", f"SIGTERM ended with {end.code}: {end.log[-1500:]}")
        if end.asked == signal.SIGTERM and end.seconds > MAX_STOP_S:
            yield Finding("exit", f"SIGTERM took {end.seconds:.1f} s")
        for error in sorted(set(_TRACEBACK.findall(end.log))):
            yield Finding("log", f"a traceback: {error[:600]}")


def _too_early(end: Exit) -> bool:
    """Return whether a process was ended by SIGTERM before it could have a handler for that: Python was still
    loading."""
    return end.code == -signal.SIGTERM and not end.log


def _gaps(played: Played) -> Iterator[Finding]:
    """From one row to the next, where an agent was there and could write."""
    hindered = [*played.down, *((from_s, until_s + MAX_RESUME_S) for from_s, until_s in played.unwritable)]
    for began_s, until_s in played.down:
        starts = [start_s for start_s in played.starts_s if began_s - 0.2 <= start_s <= until_s]
        took_s = until_s - max(starts, default=began_s)
        if took_s > MAX_FIRST_ROW_S and not any(a < until_s and began_s < b for a, b in played.unwritable):
            yield Finding("first row", f"came {took_s:.1f} s after the agent's start")
    last = None
    for look in played.looks:
        if last is None or look.host_rows > last.host_rows:
            if last is not None:
                gap_s = look.at_s - last.at_s - sum(_overlap(last.at_s, look.at_s, *interval) for interval in hindered)
                if gap_s > MAX_GAP_S:
                    yield Finding("gap", f"{gap_s:.1f} s without a row of the host")
            last = look
    if last is not None and played.ended_s - last.at_s > MAX_GAP_S + MAX_STOP_S:
        yield Finding("gap", f"no row of the host in the last {played.ended_s - last.at_s:.1f} s")


def _overlap(a_s: float, b_s: float, from_s: float, until_s: float) -> float:
    return max(0.0, min(b_s, until_s) - max(a_s, from_s))


def _unobserved(played: Played, connection: sqlite3.Connection) -> Iterator[Finding]:
    """Yield one engine that hangs must not make the time of everybody else unobserved."""
    ((duration_ms, observed_ms),) = connection.execute(
        "SELECT COALESCE(SUM(duration_ms), 0), COALESCE(SUM(observed_ms), 0) FROM host_sample"
    ).fetchall()
    away_s = sum(until_s - from_s + MAX_UNOBSERVED_START_S for from_s, until_s in played.down)
    away_s += sum(until_s - from_s + MAX_RESUME_S for from_s, until_s in played.unwritable)
    hangs = [act for act in played.world.acts if "Hanging" in type(act.what).__name__]
    away_s += sum(MAX_GAP_S for _ in hangs)
    lost_s = (duration_ms - observed_ms) / 1000
    if lost_s > away_s + MAX_UNOBSERVED * (played.ended_s - played.loaded_s):
        yield Finding("observed", f"{lost_s:.1f} s of the host are unobserved, of which {away_s:.1f} s are excused")
