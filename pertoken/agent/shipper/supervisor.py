"""The agent's side of shipping: keeps a shipper child going, and hears what it tells. Never waits for it."""

import json
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import pertoken
from pertoken.agent.backoff import Backoff, Clock
from pertoken.store.connect.server import Server
from pertoken.store.schema.rows import Event
from pertoken.store.write.writer import Writer

log = logging.getLogger("pertoken.agent")

SILENT_S = 300.0
"""After so long without a line the shipper hangs in a call that no timeout ends, and is replaced."""
SETTLED_AT_ONCE = 5_000
"""Marks let go of in one transaction: a few milliseconds beside a tick."""
LEAVE_S = 2.0


class Shipping:
    """Ships one folder to one server. `poll` and `settle` return at once."""

    def __init__(self, folder: Path, server: Server, every_s: float, clock: Clock = time.monotonic) -> None:
        self._folder, self._server, self._every_s, self._clock = folder, server, every_s, clock
        self._process: subprocess.Popen[bytes] | None = None
        self._backoff = Backoff(clock)
        self._lock = threading.Lock()
        self._heard_s = clock()
        self._acked = self._settled = 0
        self._events: list[Event] = []
        self._fault: str | None = None

    @property
    def pid(self) -> int | None:
        """The child's process id, None while there is none."""
        return self._process.pid if self._process else None

    def poll(self) -> None:
        """Start the shipper, or replace one that ended or hangs."""
        if self._process is not None and self._process.poll() is None:
            if self._clock() - self._heard_s <= SILENT_S:
                return
            # It holds no driver: it may be killed in any call.
            self._process.kill()
            self._process.wait()
            self._note("ship_failed", f"the shipper hung for {SILENT_S:.0f} s and was replaced")
        elif self._process is not None:
            status = self._process.returncode
            self._note("ship_failed", f"the shipper had ended (status {status}) and was started again")
        if self._process is not None:
            self._forget(self._process)
            self._backoff.failed()
        if self._backoff.due:
            self._start()

    def events(self) -> tuple[Event, ...]:
        """What happened since this was asked last."""
        with self._lock:
            found, self._events = tuple(self._events), []
        return found

    @property
    def fault(self) -> str | None:
        """Why nothing is shipped now; None if the server acknowledged something since the last failure."""
        with self._lock:
            return self._fault

    def settle(self, writer: Writer) -> None:
        """Let go of some of the marks that the server holds. For the writer's thread."""
        with self._lock:
            acked = self._acked
        if acked > self._settled and writer.shipped(acked, at_most=SETTLED_AT_ONCE) == 0:
            self._settled = acked

    def bound(self, writer: Writer, most: int) -> None:
        """Keep the marks at most so many, and tell what that cost. For the writer's thread."""
        raw, rolled = writer.bound_spool(most)
        if raw:
            self._note("ship_gave_up", f"the spool is full ({most} marks): the oldest ticks will not be shipped")
        if rolled:
            self._note(
                "ship_spool_full",
                f"the spool is full ({most} marks): the oldest roll-ups are found again by comparing with the server",
            )

    def close(self) -> None:
        """End the shipper; what it was sending is sent again the next time."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._forget(self._process)

    def _start(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "pertoken.agent.shipper", str(self._folder.resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd=Path(pertoken.__file__).parents[1],
            process_group=0,  # Ctrl-C is for the agent.
        )
        assert process.stdin is not None
        # Through a pipe: arguments and environment of a process can be read by others.
        options = {"server": self._server.to_json(), "every_s": self._every_s}
        try:
            process.stdin.write(json.dumps(options).encode() + b"\n")
        except BrokenPipeError:
            log.warning("the shipper ended at once")
        self._process, self._heard_s = process, self._clock()
        threading.Thread(target=self._hear, args=(process,), name="shipping", daemon=True).start()

    def _hear(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            self._listen(lines)

    def _listen(self, lines: IO[bytes]) -> None:
        for line in lines:
            self._heard_s = self._clock()
            try:
                told = json.loads(line)
            except ValueError:
                continue
            with self._lock:
                self._acked = told.get("acked", self._acked)
                if "acked" in told:
                    self._fault = None
            if "kind" in told:
                self._note(told["kind"], told["message"])

    def _note(self, kind: str, message: str) -> None:
        if kind != "ship_failed":  # whoever asks for `fault` logs that
            log.log(logging.INFO if kind == "ship_again" else logging.WARNING, "%s", message)
        with self._lock:
            self._fault = message if kind == "ship_failed" else self._fault
            self._events.append(Event(kind, message))

    def _forget(self, process: "subprocess.Popen[bytes]") -> None:
        # Its output is closed by the thread that reads it, at its end.
        if process.stdin is not None:
            process.stdin.close()
        self._process = None
