"""Quality checks of a trial: the command of a person, and the small check of outputs.

A command is run as given, without a shell, and its exit status counts.
"""

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace

from pertoken.errors import BadInput
from pertoken.proof.trials.answers import PromptOutput, compared
from pertoken.proof.trials.trial import Arm, Status, Trial

Ask = Callable[[Arm], tuple[PromptOutput, ...]]
"""Returns the answers of an engine to the fixed prompts."""


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


def check_outputs(trial: Trial, *, changed: bool, ask: Ask) -> Trial:
    """Return a trial with the answers of both replicas compared, once `changed`: the canary runs with the change.

    Of a single replica the answers before the change are kept for it. Changed outputs end the trial.
    """
    if trial.outputs is not None:
        return trial
    if trial.control is None and not changed:
        asked = trial.answers or (ask(trial.canary), ask(trial.canary))
        return replace(trial, answers=asked)
    if not changed:
        return trial
    before = trial.answers if trial.control is None else (ask(trial.control), ask(trial.control))
    if before is None:
        return replace(trial, outputs="not compared: nothing was asked before the change")
    check = compared(*before, ask(trial.canary))
    status = trial.status if check.name is None else Status.QUALITY_FAILED
    return replace(trial, outputs=check.sentence, status=status)
