"""The agent's side of shipping: keeps a shipper child going, asks it for rounds and takes its reports."""

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypedDict

import pertoken
from pertoken.errors import StoreError
from pertoken.store.connect.location import DatabaseServer
from pertoken.store.schema.rows import Event
from pertoken.store.write.writer import Writer

log = logging.getLogger("pertoken.agent")

RETRY_S = (1.0, 120.0)
"""First and longest bound of the wait after a failed round."""
START_S = 5.0
"""Within this time of its start an agent ships first: hosts that start together do not come together."""
MAX_SILENT_S = 300.0
"""A child that reports nothing for so long in a round hangs in a call that no timeout ends, and is replaced."""
POLL_S = 0.5
"""Longest time in which a round notices that it is to end."""
MAX_SETTLED = 5_000
"""Marks deleted in one transaction: a few milliseconds beside a tick."""
LEAVE_S = 2.0
"""How long a child may take to end once its input did."""


class _Report(TypedDict, total=False):
    """One line of the child's output (`child.Report`)."""

    acked: int
    batch: int
    kind: str
    message: str
    failed: str
    done: bool


class _ShipperProcess:
    """A shipper process, with the reports that nobody took yet."""

    def __init__(self, folder: Path, server: DatabaseServer) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pertoken.agent.shipper.child", str(folder.resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd=Path(pertoken.__file__).parents[1],
            process_group=0,  # Ctrl-C is for the agent.
        )
        self.reports: SimpleQueue[_Report | None] = SimpleQueue()
        """None once it ended."""
        threading.Thread(target=self._listen, name="shipping", daemon=True).start()
        # Through a pipe: arguments and environment of a process can be read by others.
        self.write(json.dumps({"server": server.to_json()}))

    def write(self, line: str) -> None:
        """Send a line; one that ended is noticed by the end of its reports."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{line}\n".encode())
        except (BrokenPipeError, ValueError):
            log.debug("the shipper ended before it was asked")

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                try:
                    self.reports.put(json.loads(line))
                except ValueError:
                    continue
        self.reports.put(None)

    def end(self, patience_s: float) -> int:
        """Close its input, wait so long, else kill it: it holds no driver and may be killed in any call."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            return self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Shipping:
    """Ships one folder to one server. Rounds have a thread of their own; all else returns at once."""

    def __init__(self, folder: Path, server: DatabaseServer, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._server, self._clock = folder, server, clock
        self._lock = threading.Lock()
        self._child: _ShipperProcess | None = None
        self._closed = False
        self._acked = self._settled = self._batch = 0
        self._failures = 0
        """Failed rounds in a row."""
        self._events: list[Event] = []

    def round(self, stop: threading.Event) -> None:
        """Have the child ship all rows that are there, and wait for it, until `stop` is set or this is closed.

        Raises StoreError if the round failed; the first failure in a row, and the success after, become events.
        """
        try:
            child = self._asked()
            if child is not None:
                self._follow(child, stop)
        except StoreError as error:
            self._failures += 1
            if self._failures == 1:
                self._note("ship_failed", f"nothing is shipped: {error}")
            raise
        if self._failures and child is not None and not stop.is_set():
            self._note("ship_again", f"shipping works again after {self._failures} failures", logging.INFO)
            self._failures = 0

    def _asked(self) -> _ShipperProcess | None:
        """Ask the child for a round, starting one if there is none; None once this is closed."""
        with self._lock:
            if self._closed:
                return None
            status = None
            if self._child is not None and self._child.process.poll() is not None:
                status, self._child = self._child.end(0), None
            if self._child is None:
                self._child = _ShipperProcess(self._folder, self._server)
            child = self._child
            child.write("round")
        if status is not None:
            self._note("ship_failed", f"the shipper had ended (status {status}) and was started again")
        return child

    def _follow(self, child: _ShipperProcess, stop: threading.Event) -> None:
        """Take the reports of the child until its round is over."""
        heard_s = self._clock()
        while not stop.is_set():
            try:
                report = child.reports.get(timeout=POLL_S)
            except Empty:
                if self._clock() - heard_s > MAX_SILENT_S:
                    self._replace(child)
                    raise StoreError(f"the shipper hung for {MAX_SILENT_S:.0f} s and was ended") from None
                continue
            heard_s = self._clock()
            if report is None:
                status = self._replace(child)
                if self._closed:
                    return
                raise StoreError(f"the shipper ended in a round (status {status})")
            self._acked, self._batch = report.get("acked", self._acked), report.get("batch", self._batch)
            if "kind" in report:
                self._note(report["kind"], report["message"])
            if "failed" in report:
                raise StoreError(report["failed"])
            if "done" in report:
                return

    def _replace(self, child: _ShipperProcess) -> int:
        """End a child that is of no use; the next round starts another. Returns its status."""
        with self._lock:
            if self._child is child:
                self._child = None
        return child.end(0)

    def events(self) -> tuple[Event, ...]:
        """Return the events since the last call."""
        with self._lock:
            events, self._events = tuple(self._events), []
        return events

    def settle(self, writer: Writer) -> None:
        """Delete some of the marks that the server holds. For the writer's thread."""
        acked, batch = self._acked, self._batch
        if acked > self._settled and writer.shipped(acked, batch=batch, at_most=MAX_SETTLED) == 0:
            self._settled = acked

    def bound(self, writer: Writer, most: int) -> None:
        """Keep at most `most` marks, and report the loss of others. For the writer's thread."""
        raw, rolled = writer.bound_spool(most)
        if raw:
            self._note("ship_gave_up", f"the spool is full ({most} marks): the oldest ticks will not be shipped")
        if rolled:
            self._note(
                "ship_spool_full",
                f"the spool is full ({most} marks): the oldest roll-ups are found again by comparing with the server",
            )

    def close(self) -> None:
        """End the shipper; a batch under way is sent again the next time."""
        with self._lock:
            self._closed, child, self._child = True, self._child, None
        if child is not None:
            child.end(LEAVE_S)

    def _note(self, kind: str, message: str, level: int = logging.WARNING) -> None:
        if kind != "ship_failed":  # the scheduler logs why a round failed
            log.log(level, "%s", message)
        with self._lock:
            self._events.append(Event(kind, message))
