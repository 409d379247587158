"""Run any job in a restricted process with limits, such as checking the rules of a file."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pertoken.advisor.worker.child import do_job
from pertoken.advisor.worker.limits import Limits
from pertoken.advisor.worker.messages import MAX_TRACE
from pertoken.advisor.worker.process import TooMuch, lines, started
from pertoken.advisor.worker.texts import storable


@dataclass(frozen=True, slots=True)
class JobRun:
    """Result of a job."""

    returned: Any = None
    """Decoded JSON; untrusted, because the job may have run code of a plugin."""
    failed: str | None = None
    """Why it has no result: its traceback, or how its process ended."""
    output: str = ""
    """Printed output; only the end if it is long."""


def run_job(job: Callable[[], Any], limits: Limits) -> JobRun:
    """Run a job that returns JSON values, for at most `limits.call_s`. Nothing that the job does raises here."""
    reason, output = "ended its process", ""
    try:
        with started([partial(do_job, job)], limits) as pipe:
            for line in lines(pipe, limits, 1, lambda _: None):
                match json.loads(line):
                    case {"done": returned, "output": str(output)}:
                        return JobRun(returned, output=storable(output))
                    case {"failed": str(failed), "output": str(output)}:
                        return JobRun(failed=storable(failed[-MAX_TRACE:]), output=storable(output))
                    case {"left": str(reason), "output": str(output)}:
                        break
    except TooMuch as error:
        reason = str(error)
    except OSError as error:
        reason = f"had no worker ({error})"
    except (ValueError, RecursionError):
        reason = "returned an invalid message"
    return JobRun(failed=f"it {storable(reason)}", output=storable(output))
