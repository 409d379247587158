"""Trial as text."""

from dataclasses import replace

from pertoken.proof.recommendation import Edit, State
from pertoken.proof.trials.look import Observed
from pertoken.proof.trials.trial import Arm, Design, Status, Trial, TrialResult
from pertoken.proof.verdicts import VerdictResult
from pertoken.text.lifecycle import instructions, result_lines, trial_line, waiting_for
from tests.proof.rows import FP8, NOW, row

ROW = row(State.ACCEPTED, estimate=FP8)
CANARY, CONTROL = (Arm(n, n, f"chat on gpu-{n}", f"http://gpu-{n}:8000") for n in (1, 2))
TRIAL = Trial(
    ROW.recommendation_id,
    Design.REPLICAS,
    NOW,
    CANARY,
    CONTROL,
    (Edit("deployment", 1, "weight_dtype", "bf16", "fp8"),),
    120,
    1800,
)
ALONE = replace(TRIAL, design=Design.SWITCHBACK, control=None, minutes=30, blocks=8)
COMPARISON = TrialResult(VerdictResult.CHEAPER, (-0.25, -0.2, -0.15), 120, 90)


def test_the_next_step_of_a_trial_is_one_line() -> None:
    nothing = Observed(None, NOW, None, 0)
    assert waiting_for(TRIAL, nothing, NOW) == "waiting for the canary, chat on gpu-1, to run with weight_dtype fp8"
    both = Observed(NOW, NOW + 60, None, 30)
    assert waiting_for(TRIAL, both, NOW + 600).startswith("both were restarted; caches are cold until ")
    assert waiting_for(TRIAL, both, NOW + 3600) == "comparing: 30 of 120 minutes"
    block = Observed(None, None, None, 30, block_is_changed=True, block_end_ts=NOW + 60)
    assert waiting_for(ALONE, block, NOW).startswith("0 of 8 blocks are complete; the change is on until ")
    assert waiting_for(ALONE, block, NOW + 60) == "0 of 8 blocks are complete; switch the change off now"


def test_one_replica_is_to_be_switched_on_and_off() -> None:
    lines = instructions(ALONE, ROW)
    assert lines[2].startswith("chat on gpu-1 (http://gpu-1:8000) is the only replica")
    assert lines[3:7] == [
        "To switch the change on:",
        "  restart chat with --quantization fp8",
        "To switch it off:",
        "  restart chat without --quantization",
    ]


def test_a_result_is_shown_with_its_promise_and_the_undo_commands() -> None:
    done = replace(TRIAL, status=Status.DONE, result=COMPARISON, quality_exit=0)
    assert result_lines(done, ROW) == [
        "Trial: cheaper, -20.0% (-25.0% to -15.0%) per token over 120 minutes against chat on gpu-2, corrected by the "
        "difference in 90 minutes before the trial",
        "Promised: -28.6% (-37.5% to -16.7%) per token.",
        "The quality check passed.",
        "",
        "To undo the change:",
        "  restart chat without --quantization",
    ]
    assert trial_line(replace(TRIAL, status=Status.STOPPED)) == "stopped"
    failed = replace(TRIAL, status=Status.QUALITY_FAILED, quality_exit=3)
    assert result_lines(failed, ROW)[0] == "Trial: the quality check failed with exit status 3: undo the change."
