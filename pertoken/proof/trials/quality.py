"""The quality check of a person: a command that is run as given, without a shell, and whose exit status counts."""

import os
import subprocess
from collections.abc import Sequence

from pertoken.errors import BadInput
from pertoken.proof.trials.trial import Trial


def check_quality(command: Sequence[str], trial: Trial) -> int:
    """Run a command until it ends and return its exit status; 0 is passed. Raises BadInput if it cannot be started.

    It finds the engines in `PERTOKEN_CANARY_URL` and, of two replicas, `PERTOKEN_CONTROL_URL`.
    """
    urls = {"PERTOKEN_CANARY_URL": trial.canary.url}
    if trial.control is not None:
        urls["PERTOKEN_CONTROL_URL"] = trial.control.url
    try:
        done = subprocess.run(list(command), env={**os.environ, **urls}, stdin=subprocess.DEVNULL, check=False)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadInput(f"advisor.quality_check: {command[0]}: {reason}; give a command that can be run") from None
    return done.returncode
