"""The output guard on hours made by hand."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from pertoken.proof.receipt import ReceiptChange, from_json, from_text, guarded, is_intact, receipt, to_json, to_text
from pertoken.proof.verification.estimate import EffectVerdict
from pertoken.proof.verification.guard import Guard, guard
from pertoken.proof.verification.question import Outputs, Question, Signal
from pertoken.proof.verification.verify import VerifiedEffect
from pertoken.window.columns import Floats
from pertoken.window.epochs import OutputCounts
from tests.proof.histories import CHANGED, HOUR_S, UNTIL, WEEKS, asked
from tests.window.test_like_for_like import MONDAY, WEEK_H

HOURS = (WEEKS + 1) * WEEK_H
TS = MONDAY + HOUR_S * np.arange(HOURS)
AFTER = TS >= CHANGED


def counts(**after: float) -> OutputCounts:
    """Six weeks of an engine that counts everything, and a week in which some counts are multiples."""
    rng = np.random.default_rng(1)
    requests = np.round(400 * (1 + 0.5 * np.sin(np.arange(HOURS) * 2 * np.pi / 24)) * rng.uniform(0.9, 1.1, HOURS))
    logs = np.log(200) * requests * rng.uniform(0.98, 1.02, HOURS)
    made: dict[str, Floats] = {
        "requests": requests,
        "prompt_tokens": requests * rng.uniform(950, 1050, HOURS),
        "generated_tokens": requests * rng.uniform(190, 210, HOURS),
        "ended_by_stop": 0.9 * requests,
        "ended_by_length": 0.02 * requests,
        "ended_by_abort": 0.01 * requests,
        "failed": 0.001 * requests,
        "drafted": 300 * requests,
        "accepted": 180 * requests * rng.uniform(0.98, 1.02, HOURS),
        "lengths": requests,
        "log_lengths": logs,
        "log_lengths_2": logs**2 / requests + requests,
        "empty": 0.001 * requests,
    }
    return OutputCounts(
        TS, {name: np.where(AFTER, values * after.get(name, 1.0), values) for name, values in made.items()}
    )


def of(counted: OutputCounts, **other: object) -> Guard:
    result = guard(Question(asked(1).deployment, CHANGED, UNTIL, outputs=replace(Outputs(counted), **other)))  # type: ignore[arg-type]
    assert result is not None
    return result


def test_outputs_that_stay_as_they_are_raise_no_alarm() -> None:
    result = of(counts())
    assert {change.signal for change in result.signals} == set(Signal) and not result.alarms
    assert result.name is None and not result.not_compared


@pytest.mark.parametrize(
    ("after", "signal", "name"),
    [
        ({"generated_tokens": 0.5}, Signal.LENGTH, "outputs are terser"),
        ({"generated_tokens": 2.0}, Signal.LENGTH, "outputs are longer"),
        ({"generated_tokens": 0.1}, Signal.LENGTH, "outputs are nearly empty"),
        ({"generated_tokens": 3.0, "ended_by_length": 40.0, "ended_by_stop": 0.1}, Signal.CUT, "outputs run on"),
        ({"empty": 300.0}, Signal.EMPTY, "outputs are nearly empty"),
        ({"ended_by_abort": 20.0}, Signal.ABORTED, "requests fail"),
        ({"failed": 200.0}, Signal.FAILED, "requests fail"),
        ({"accepted": 1.6}, Signal.ACCEPTED, "outputs are of another kind"),
        ({"accepted": 0.3}, Signal.ACCEPTED, "outputs are of another kind"),
        ({"log_lengths_2": 0.967}, Signal.SPREAD, "outputs are of another kind"),
    ],
)
def test_each_change_of_outputs_is_an_alarm_that_is_named(
    after: Mapping[str, float], signal: Signal, name: str
) -> None:
    result = of(counts(**after))
    assert signal in {change.signal for change in result.alarms}
    assert (result.name, result.changed) == (name, True)
    assert result.sentence.startswith(f"{name}: ")


def test_fewer_failures_are_no_alarm() -> None:
    assert not of(counts(failed=0.0, ended_by_abort=0.0, empty=0.0)).alarms


def test_an_engine_that_counts_no_requests_is_judged_by_generated_tokens_per_prompt_token() -> None:
    known = counts(generated_tokens=0.5).counts
    tokens = OutputCounts(TS, {name: known[name] for name in ("prompt_tokens", "generated_tokens")})
    result = of(tokens)
    assert [(change.signal, change.alarm) for change in result.signals] == [(Signal.LENGTH, True)]
    assert result.signals[0].after == pytest.approx(0.1, rel=0.02)
    assert {signal for signal, _ in result.not_compared} == set(Signal) - {Signal.LENGTH}


def test_prompts_of_another_length_are_not_compared() -> None:
    result = of(counts(prompt_tokens=1.8, generated_tokens=1.8))
    assert not result.alarms
    assert "at like prompts" in dict(result.not_compared)[Signal.LENGTH]


def test_a_signal_that_the_change_is_meant_to_alter_is_not_compared() -> None:
    result = of(counts(accepted=0.3), meant=frozenset({Signal.ACCEPTED}))
    assert not result.alarms and dict(result.not_compared)[Signal.ACCEPTED] == "the change is meant to alter it"


def test_a_history_that_wandered_as_far_before_raises_no_alarm() -> None:
    steady = counts(generated_tokens=0.7)
    earlier = (TS >= CHANGED - 2 * WEEK_H * HOUR_S) & (TS < CHANGED - WEEK_H * HOUR_S)
    wandering = {**steady.counts, "generated_tokens": steady.counts["generated_tokens"] * np.where(earlier, 0.7, 1.0)}
    assert Signal.LENGTH in {change.signal for change in of(steady).alarms}
    assert not of(OutputCounts(TS, wandering)).alarms


def test_a_short_history_is_not_compared_and_the_reason_names_the_hours_it_needs() -> None:
    late = TS >= CHANGED - 10 * 24 * HOUR_S
    short = OutputCounts(TS[late], {name: values[late] for name, values in counts(failed=500.0).counts.items()})
    result = of(short)
    assert not result.signals
    assert dict(result.not_compared)[Signal.FAILED] == "240 hours before the change have it, 336 are needed"


def test_a_saving_with_changed_outputs_is_a_verdict_that_banks_nothing() -> None:
    question = asked(1, -0.2, outputs=Outputs(counts(generated_tokens=0.5)))
    made = receipt(question, ReceiptChange("fp8", "chat", "bf16"), UNTIL, None)
    assert (made.finding.verdict, made.finding.code) == (EffectVerdict.OUTPUT_CHANGED, "output-changed")
    assert made.finding.saving_90 is not None and made.measured_in_window is None
    again = from_text(to_text(made))
    assert again == made and is_intact(to_text(made))
    restored = from_json(to_json(question))
    assert isinstance(restored, Question)
    assert receipt(restored, made.change, UNTIL, None) == made


def test_a_checked_quality_lets_the_saving_stand_and_a_loss_stays_a_loss() -> None:
    changed = of(counts(generated_tokens=0.5))
    realized, regressed = (
        VerifiedEffect(EffectVerdict.REALIZED),
        VerifiedEffect(EffectVerdict.REGRESSED, reason="dearer"),
    )
    assert guarded(realized, replace(changed, checked=True)).verdict is EffectVerdict.REALIZED
    assert guarded(regressed, changed).verdict is EffectVerdict.REGRESSED
    assert "outputs are terser" in str(guarded(regressed, changed).reason)
    assert guarded(realized, None) == realized
