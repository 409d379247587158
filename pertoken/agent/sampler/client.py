"""The agent's side of the sampler: asks the child, notices when it hangs, replaces it when it died."""

import json
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pertoken
from pertoken.agent.backoff import Backoff, Clock
from pertoken.agent.readings import DriversReading, Unavailable
from pertoken.agent.sampler.wire import decode
from pertoken.errors import PertokenError
from pertoken.settings.values import PROBES


class SamplerError(PertokenError):
    """There is no reading this time; asking again next time is right."""


class SamplerStalled(SamplerError):
    """The sampler did not answer in time: a driver call hangs."""


class SamplerDied(SamplerError):
    """The sampler ends whenever it is asked."""


class _Ended(Exception):
    pass


_QUESTIONS = {asked: json.dumps({"processes": asked}).encode() + b"\n" for asked in (False, True)}
"""What the child is asked, by whether it lists processes, too."""


class _Child:
    """One process. `owed`: it was asked and has not answered yet; `ahead`: it was, by `Sampler.ask`."""

    def __init__(self, environment: Mapping[str, str] | None, probes: Iterable[str]) -> None:
        self.owed = self.ahead = False
        self._rest = b""
        # `-m` looks in the working directory first: that must be where this package is, not just anywhere.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pertoken.agent.sampler.child", ",".join(probes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd=Path(pertoken.__file__).parents[1],
            env=environment,
            process_group=0,  # Ctrl-C is for the agent.
        )
        self._poll = select.poll()
        self._poll.register(self.process.stdout, select.POLLIN)  # type: ignore[arg-type]  # a pipe, as asked for

    def ask(self, processes: bool) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(_QUESTIONS[processes])
        except BrokenPipeError:
            raise _Ended from None
        self.owed = True

    def answer(self, clock: Clock, until_s: float) -> bytes | None:
        """Return its next line, or None if there is none by then. Raises _Ended."""
        assert self.process.stdout is not None
        while b"\n" not in self._rest:
            if not self._poll.poll(max(0.0, until_s - clock()) * 1000):
                return None
            part = self.process.stdout.read(2**16)
            if not part:
                raise _Ended
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        self.owed = False
        return line

    def leave(self, wait_s: float) -> str:
        """Return end of file for it, then how it ended. One that hangs in a driver is never killed: it is left to
        end."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            status = self.process.wait(wait_s)
        except subprocess.TimeoutExpired:
            threading.Thread(target=self.process.wait, name="sampler-left", daemon=True).start()
            return "still in a driver call"
        return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


class Sampler:
    """A sampler child, started when first asked. For one thread.

    `environment` is the child's (None: ours), `clock` monotonic seconds, `probes` names of `config.PROBES`.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        clock: Clock = time.monotonic,
        probes: Iterable[str] = PROBES,
    ) -> None:
        self._environment = environment
        self._probes = tuple(probes)
        self._clock = clock
        self._child: _Child | None = None
        self._backoff = Backoff(clock)

    @property
    def pid(self) -> int | None:
        """The child's process id, None while there is none."""
        return self._child.process.pid if self._child else None

    def start(self) -> None:
        """Start the child ahead of the first reading, so that it loads while its parent does."""
        if self._child is None and self._backoff.due:
            self._child = _Child(self._environment, self._probes)

    def ask(self, processes: bool) -> None:
        """Have the child read now what the next `read` returns; one that still owes an answer is left to that."""
        self.start()
        if self._child is not None and not self._child.owed:
            with suppress(_Ended):  # `read` replaces it
                self._child.ask(processes)
                self._child.ahead = True

    def read(self, processes: bool, deadline_s: float, late_s: float | None = None) -> DriversReading:
        """Return what all probes read now. A child that had ended is replaced, which `sampler` in `unavailable`
        reports.

        Raises SamplerStalled if there is no answer within `deadline_s`: the child is left in its call, and its late
        answer, of an instant long gone, is discarded. A child that still owes that answer is given `late_s` for it
        (None: the same deadline) before it is asked again. Raises SamplerDied if a new child ends too; after that
        none is started for a while.
        """
        unavailable: tuple[Unavailable, ...] = ()
        for _ in ("as it is", "replaced"):
            if self._child is None:
                self.start()
            if self._child is None:
                break
            try:
                reading = decode(self._ask(self._child, processes, deadline_s, late_s))
            except (_Ended, ValueError) as error:
                ending = self._child.leave(wait_s=1.0)
                self._child = None
                why = f"the sampler had ended ({ending}{f'; {error}' if str(error) else ''}) and was started again"
                unavailable = (Unavailable("sampler", "failing", why, "see the lines before this in the agent's log"),)
            else:
                self._backoff = Backoff(self._clock)
                return replace(reading, unavailable=reading.unavailable + unavailable) if unavailable else reading
        else:
            self._backoff.failed()
        raise SamplerDied(
            "the sampler ends whenever it is asked: see why with "
            "`echo '{\"processes\": false}' | python -m pertoken.agent.sampler.child`"
        )

    def close(self, wait_s: float = 2.0) -> None:
        """End the child; one that does not end within `wait_s` is left to end on its own."""
        if self._child is not None:
            self._child.leave(wait_s)
            self._child = None

    def _ask(self, child: _Child, processes: bool, deadline_s: float, late_s: float | None) -> bytes:
        late_s = deadline_s if late_s is None else late_s
        ahead, child.ahead = child.ahead, False
        if ahead or not child.owed or child.answer(self._clock, self._clock() + late_s) is not None:
            if not ahead:
                child.ask(processes)
            line = child.answer(self._clock, self._clock() + deadline_s)
            if line is not None:
                return line
        raise SamplerStalled(
            f"the sampler (pid {child.process.pid}) did not answer within {deadline_s:g} s: a driver call hangs. "
            f"Nothing is read until it returns; look for driver errors in `dmesg`"
        )
