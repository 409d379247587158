"""The small check of outputs within a trial."""

from dataclasses import replace

import pytest

from pertoken.proof.trials.endpoint import PROMPTS, PromptOutput
from pertoken.proof.trials.look import check_outputs
from pertoken.proof.trials.trial import Arm, Design, Status, Trial

CANARY, CONTROL = (Arm(n, n, f"tiny on gpu-{n}", f"http://127.0.0.1:800{n}") for n in (1, 2))
TRIAL = Trial(1, Design.REPLICAS, 0, CANARY, CONTROL, (), 120, 0)
ALONE = replace(TRIAL, design=Design.SWITCHBACK, control=None)
USUAL = tuple(PromptOutput(f"{number} is the answer, as everybody knows.", 12) for number in range(len(PROMPTS)))
BROKEN = tuple(PromptOutput("!" * 40, 40) for _ in PROMPTS)


class Engines:
    """Engines that answer as they are set to."""

    def __init__(self, canary: tuple[PromptOutput, ...] = USUAL) -> None:
        self.canary, self.asked = canary, 0

    def __call__(self, arm: Arm) -> tuple[PromptOutput, ...]:
        self.asked += 1
        return self.canary if arm == CANARY else USUAL


def test_replicas_are_asked_once_both_run_and_equal_outputs_let_the_trial_go_on() -> None:
    engines = Engines()
    assert check_outputs(TRIAL, changed=False, ask=engines) == TRIAL and engines.asked == 0
    after = check_outputs(TRIAL, changed=True, ask=engines)
    assert (after.status, engines.asked) == (Status.RUNNING, 3)
    assert str(after.outputs).startswith("100% of answers begin alike")
    assert check_outputs(after, changed=True, ask=engines) == after and engines.asked == 3


@pytest.mark.parametrize("trial", [TRIAL, ALONE], ids=["two replicas", "one replica"])
def test_broken_outputs_end_the_trial_of_both_designs(trial: Trial) -> None:
    engines = Engines()
    trial = check_outputs(trial, changed=False, ask=engines)
    engines.canary = BROKEN
    after = check_outputs(trial, changed=True, ask=engines)
    assert after.status is Status.QUALITY_FAILED
    assert str(after.outputs).startswith("outputs are degenerate: ")


def test_one_replica_that_was_not_asked_before_the_change_is_not_compared() -> None:
    after = check_outputs(ALONE, changed=True, ask=Engines(BROKEN))
    assert (after.status, after.outputs) == (Status.RUNNING, "not compared: nothing was asked before the change")
