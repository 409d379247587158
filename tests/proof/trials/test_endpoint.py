"""Comparison of live servers, on blocks made by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest

from pertoken.errors import BadInput
from pertoken.proof.trials.answers import PROMPTS, PromptOutput
from pertoken.proof.trials.endpoint import (
    BlockCost,
    CheckResult,
    Measurement,
    Outcome,
    check,
    from_values,
    noise_of,
    to_markdown,
    to_values,
)

ANSWERS = tuple(PromptOutput(f"{number} is the answer, as everybody knows.", 12) for number in range(len(PROMPTS)))
BLOCKS = 8


def measured(seed: int, cost: float = 1.0, *, sd: float = 0.01, drift: float = 0.0, first: int = 0) -> Measurement:
    """Blocks of five waves; `drift` is the rise of the cost over the run, `first` the position of the first block."""
    rng = np.random.default_rng(seed)
    blocks = []
    for number in range(BLOCKS):
        start = 20.0 * number + 10.0 * ((number + first) % 2)
        level = cost * (1 + drift * start / 160)
        wave_s = tuple((level * np.exp(rng.normal(0, sd, 5))).tolist())
        blocks.append(BlockCost(wave_s, tuple(start + 2.0 * n for n in range(5)), 1280, 0, 160))
    return Measurement("tiny at http://127.0.0.1:1", "waves of 1 request", tuple(blocks), ANSWERS, ANSWERS)


@pytest.mark.parametrize(("cost", "outcome"), [(0.7, Outcome.CHEAPER), (1.4, Outcome.DEARER), (1.0, Outcome.NO_WINNER)])
def test_a_clear_difference_has_a_winner_of_the_right_sign(cost: float, outcome: Outcome) -> None:
    result = check(measured(1, cost), measured(2, first=1))
    assert result.outcome is outcome and result.effect is not None
    assert result.effect[0] < cost - 1 < result.effect[2]


def test_equal_servers_have_no_winner_even_if_each_start_has_its_own_speed() -> None:
    rng = np.random.default_rng(5)
    outcomes = [
        check(measured(2 * n, float(np.exp(rng.normal(0, 0.03)))), measured(2 * n + 1, first=1)).outcome
        for n in range(100)
    ]
    assert outcomes.count(Outcome.NO_WINNER) >= 98


def test_a_drift_of_the_machine_is_no_difference() -> None:
    result = check(measured(1, drift=0.5), measured(2, drift=0.5, first=1))
    assert result.outcome is Outcome.NO_WINNER


def test_one_disturbed_wave_of_a_block_changes_nothing() -> None:
    before = measured(2, first=1)
    block = before.blocks[3]
    disturbed = replace(block, wave_s=(*block.wave_s[:4], 30.0))
    blocks = (*before.blocks[:3], disturbed, *before.blocks[4:])
    assert check(measured(1), replace(before, blocks=blocks)).outcome is Outcome.NO_WINNER


def test_noisy_blocks_are_not_calibrated() -> None:
    noisy = measured(1, sd=0.5)
    assert check(noisy, None).outcome is Outcome.NOT_CALIBRATED
    assert check(noisy, measured(2, sd=0.5)).outcome is Outcome.NOT_CALIBRATED
    alone = check(measured(1), None)
    assert alone.outcome is Outcome.CALIBRATED and alone.effect is None
    assert alone.noise is not None and 0 < alone.noise < 0.05


def test_too_few_blocks_show_no_noise_and_decide_nothing() -> None:
    short = replace(measured(1), blocks=measured(1).blocks[:2])
    assert noise_of(short) is None
    assert check(short, measured(2)).outcome is Outcome.NOT_CALIBRATED


def test_changed_outputs_win_over_a_lower_cost() -> None:
    broken = replace(measured(1, 0.5), answers=tuple(PromptOutput("!" * 40, 40) for _ in PROMPTS))
    result = check(broken, measured(2, first=1))
    assert (result.outcome, result.reason[:22]) == (Outcome.OUTPUT_CHANGED, "outputs are degenerate")


def test_other_work_is_not_compared() -> None:
    with pytest.raises(BadInput, match="the work differs"):
        check(measured(1), replace(measured(2), work="waves of 4 requests"))
    fewer = measured(2)
    with pytest.raises(BadInput, match="measure the baseline again"):
        check(measured(1), replace(fewer, answers=fewer.answers[1:], answers_again=fewer.answers_again[1:]))


def test_a_file_returns_the_same_measurement_and_other_files_are_refused() -> None:
    known = measured(1)
    values = json.loads(json.dumps(to_values(known)))
    assert from_values(values, "a file") == known
    nothing = {**values["blocks"][0], "wave_s": []}
    empty = {**values, "answers": [], "answers_again": []}, {**values, "blocks": [nothing]}
    shorter = {**values, "answers_again": values["answers_again"][1:]}
    for other in (None, {}, {**values, "blocks": 3}, {**values, "answers": [{}]}, [1], *empty, shorter):
        with pytest.raises(BadInput, match="is no measurement"):
            from_values(other, "a file")
    with pytest.raises(BadInput, match="another format"):
        from_values({**values, "format": 2}, "a file")


def test_markdown_names_what_was_compared() -> None:
    before, after = measured(2, first=1), measured(1, 0.7)
    result: CheckResult = check(after, before)
    text = to_markdown(after, before, result)
    assert text.startswith("**cheaper** tiny at http://127.0.0.1:1\n")
    assert "cold prefix cache" in text and "against tiny" in text and "outputs: 100% of answers begin alike" in text
    warm = replace(after, blocks=tuple(replace(block, cached_tokens=640) for block in after.blocks))
    assert "50% of prompt tokens from a prefix cache" in to_markdown(warm, None, check(warm, None))
