"""Comparison of live servers, on blocks made by hand."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from pertoken.errors import BadInput
from pertoken.proof.trials.endpoint import (
    PROMPTS,
    BlockCost,
    CheckOutcome,
    CheckResult,
    Measurement,
    PromptOutput,
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


@pytest.mark.parametrize(
    ("cost", "outcome"), [(0.7, CheckOutcome.CHEAPER), (1.4, CheckOutcome.DEARER), (1.0, CheckOutcome.NO_WINNER)]
)
def test_a_clear_difference_has_a_winner_of_the_right_sign(cost: float, outcome: CheckOutcome) -> None:
    result = check(measured(1, cost), measured(2, first=1))
    assert result.outcome is outcome and result.effect is not None
    assert result.effect[0] < cost - 1 < result.effect[2]


def test_equal_servers_have_no_winner_even_if_each_start_has_its_own_speed() -> None:
    rng = np.random.default_rng(5)
    outcomes = [
        check(measured(2 * n, float(np.exp(rng.normal(0, 0.03)))), measured(2 * n + 1, first=1)).outcome
        for n in range(100)
    ]
    assert outcomes.count(CheckOutcome.NO_WINNER) >= 98


def test_a_drift_of_the_machine_is_no_difference() -> None:
    result = check(measured(1, drift=0.5), measured(2, drift=0.5, first=1))
    assert result.outcome is CheckOutcome.NO_WINNER


def test_one_disturbed_wave_of_a_block_changes_nothing() -> None:
    before = measured(2, first=1)
    block = before.blocks[3]
    disturbed = replace(block, wave_s=(*block.wave_s[:4], 30.0))
    blocks = (*before.blocks[:3], disturbed, *before.blocks[4:])
    assert check(measured(1), replace(before, blocks=blocks)).outcome is CheckOutcome.NO_WINNER


@pytest.mark.parametrize("slowed_first", [True, False])
def test_a_server_that_other_work_slows_in_most_waves_of_all_blocks_is_no_loser(slowed_first: bool) -> None:
    quiet, other = measured(1), measured(2, 1.4, first=1)
    blocks = (replace(block, wave_s=(1.0, *block.wave_s[1:])) for block in other.blocks)
    slowed = replace(other, blocks=tuple(blocks))
    result = check(slowed, quiet) if slowed_first else check(quiet, slowed)
    assert result.outcome is CheckOutcome.NOT_CALIBRATED and "fastest waves" in result.reason
    assert check(other, quiet).outcome is CheckOutcome.DEARER


def test_noisy_blocks_are_not_calibrated() -> None:
    noisy = measured(1, sd=0.5)
    assert check(noisy, None).outcome is CheckOutcome.NOT_CALIBRATED
    assert check(noisy, measured(2, sd=0.5)).outcome is CheckOutcome.NOT_CALIBRATED
    alone = check(measured(1), None)
    assert alone.outcome is CheckOutcome.CALIBRATED and alone.effect is None
    assert alone.noise is not None and 0 < alone.noise < 0.05


def test_too_few_blocks_show_no_noise_and_decide_nothing() -> None:
    short = replace(measured(1), blocks=measured(1).blocks[:2])
    assert noise_of(short) is None
    assert check(short, measured(2)).outcome is CheckOutcome.NOT_CALIBRATED


def test_changed_outputs_win_over_a_lower_cost() -> None:
    broken = replace(measured(1, 0.5), answers=tuple(PromptOutput("!" * 40, 40) for _ in PROMPTS))
    result = check(broken, measured(2, first=1))
    assert (result.outcome, result.reason[:22]) == (CheckOutcome.OUTPUT_CHANGED, "outputs are degenerate")


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


A100 = {
    "B": (16.5386, 16.7492, 16.5214, 16.5066, 16.5043, 16.669, 16.5323, 16.5273, 16.5556),
    "C": (5.5065, 4.9219, 5.3688, 5.0776, 5.2172, 4.9503, 5.1966, 5.2315, 5.347),
}
"""Seconds of blocks of 67 requests to vLLM 0.16 on one A100, of three starts each with `max_num_seqs` 1 and 8, from
`validation/golden-live-20260817` of KushagraKanaujia/throttle, MIT licence, Copyright (c) 2026 Kushagra Kanaujia."""


def on_a100(variant: str, numbers: range) -> Measurement:
    seconds = [A100[variant][number] for number in numbers]
    blocks = tuple(BlockCost((wave_s,), (100.0 * n,), 3003, 0, 8576) for n, wave_s in enumerate(seconds))
    return replace(measured(1), name=variant, blocks=blocks)


def test_starts_of_a_real_gpu_server_have_no_winner_and_eight_sequences_are_cheaper_than_one() -> None:
    starts = range(3), range(3, 6), range(6, 9)
    for variant in A100:
        for before, after in ((0, 1), (1, 2), (0, 2)):
            result = check(on_a100(variant, starts[after]), on_a100(variant, starts[before]))
            assert result.outcome is CheckOutcome.NOT_CALIBRATED
        assert check(on_a100(variant, range(9)), on_a100(variant, range(9))).outcome is CheckOutcome.NO_WINNER
    several = check(on_a100("C", range(9)), on_a100("B", range(9)))
    assert several.outcome is CheckOutcome.CHEAPER and several.effect is not None
    assert several.effect[1] == pytest.approx(-0.686, abs=0.01)


@pytest.mark.parametrize(
    ("later", "earlier"),
    [
        ((8.86, 7.80, 9.93), (8.77, 8.19, 9.35)),
        ((11.26, 10.31, 12.21), (8.86, 7.80, 9.93)),
        ((10.02, 7.41, 12.62), (11.26, 10.31, 12.21)),
    ],
)
def test_an_unchanged_laptop_that_measures_27_percent_more_or_11_less_is_not_calibrated(
    later: tuple[float, float, float], earlier: tuple[float, float, float]
) -> None:
    """Means and 95 % intervals that Throttle publishes of one untouched server; blocks are made from them."""

    def published(mean: float, low: float, high: float) -> Measurement:
        scatter = (high - low) / 2 / 2.776 * math.sqrt(5)
        places = np.array([-1.2, 0.9, -0.3, 0.2, -0.7, 1.1])
        seconds = mean + scatter * (places - places.mean()) / places.std(ddof=1)
        blocks = tuple(BlockCost((float(wave_s),), (100.0 * n,), 100, 0, 900) for n, wave_s in enumerate(seconds))
        return replace(measured(1), blocks=blocks)

    assert check(published(*later), published(*earlier)).outcome is CheckOutcome.NOT_CALIBRATED
    assert check(published(*later), published(*earlier), between_starts=0.0).outcome is CheckOutcome.NOT_CALIBRATED
