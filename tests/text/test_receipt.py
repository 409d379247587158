"""Receipts as Markdown."""

from dataclasses import replace

from pertoken.proof.receipt import ServiceLevel
from pertoken.proof.verification.estimate import EffectVerdict, HeldOut, Interval, Placebo
from pertoken.proof.verification.question import Covariate, EventKind, OtherChange
from pertoken.proof.verification.verify import UsedWindow, VerifiedEffect
from pertoken.text.receipt import to_markdown
from tests.proof.histories import CHANGED, UNTIL
from tests.proof.receipt.test_receipt import made

FINDING = VerifiedEffect(
    EffectVerdict.REALIZED,
    saving_90=Interval(0.07, 0.10, 0.13),
    saving_80=Interval(0.08, 0.10, 0.12),
    earlier_s_per_mtok=411.0,
    expected_s_per_mtok=400.0,
    later_s_per_mtok=360.0,
    matched_mtok=500.0,
    before=UsedWindow(CHANGED - 42 * 86_400, CHANGED, 988, 1008),
    after=UsedWindow(CHANGED + 6 * 3600, UNTIL, 158, 162),
    held_out=HeldOut(0.012, 0.09),
    placebo=Placebo(22, 2, 1.31),
    siblings=2,
    sibling_weight=0.47,
    explained=((Covariate.LOAD, -0.021), (Covariate.MIX, 0.0004)),
    events=(OtherChange(CHANGED, EventKind.LOAD, "load +8% in the same hours of the week"),),
    not_matched=(Covariate.CACHE,),
)


def test_the_receipt_of_a_realised_saving() -> None:
    whole = replace(made(objectives=ServiceLevel(1.0, 0.05)), finding=FINDING, inputs_sha256="1f", sha256="2e")
    assert whole.measured_per_mtok is not None and whole.measured_in_window is not None
    whole = replace(whole, version="0.1.0")
    assert to_markdown(whole).splitlines()[:9] == [
        "# REALIZED: chunked prefill on",
        "",
        "The promised saving is proven.",
        "",
        "- target: chat",
        "- changed: 2026-11-02 00:00Z; before: vllm 0.32.0 --no-enable-chunked-prefill",
        "- proposed by the rule chunked-prefill (long prompts)",
        "",
        "## Saving",
    ]
    text = to_markdown(whole)
    for line in (
        "| promised, device time per token | 5.0% | 10.0% | 15.0% |",
        "| measured, device time per token, 90 % interval | 7.0% | 10.0% | 13.0% |",
        "| estimated at acceptance, per month | $50.00 | $100 | $150 |",
        "- price: $3.60 per device-hour (configured), as of the change",
        "- the load changed the cost of a token by -2.1%: no part of the saving",
        "- hours are made alike in hour of the week, load, share of generated tokens, number of tokens per request, "
        "spread of the prompt length, spread of the output length, time since the engine started",
        "| TTFT, p95 | 0.5 s | 0.6 s | 1 s |",
        "The objectives are kept.",
        "- after: 2026-11-02 06:00Z to 2026-11-09 00:00Z, 158 of 162 hours used",
        "- not made alike in: share of cached prompt tokens",
        "- less what 2 unchanged siblings show, weighted by 0.47",
        "- held-out week: bias +1.2%, hourly error 9%: passed",
        "- placebo: 2 of 22 dates without a change would have shown one",
        "- the interval is 1.31 times as wide for it",
        "- 2026-11-02 00:00Z, load: load +8% in the same hours of the week",
        "receipt SHA-256 2e",
    ):
        assert line in text.splitlines(), line
    assert "share of generated tokens changed" not in text


def test_an_inconclusive_receipt_names_its_reason_first() -> None:
    finding = VerifiedEffect(
        EffectVerdict.INCONCLUSIVE, "few-hours", "12 measured hours after the change, 48 are needed"
    )
    whole = replace(made(), finding=finding, measured_per_mtok=None, measured_in_window=None, price=None)
    lines = to_markdown(whole).splitlines()
    assert lines[2] == "Nothing is proven. 12 measured hours after the change, 48 are needed."
    assert "- the price of a device-hour is not known: no dollars" in lines
    assert "Whether the objectives are kept is not known." in lines


def test_a_receipt_states_that_its_saving_was_not_promised() -> None:
    whole = replace(made(), promised=None, finding=FINDING)
    assert to_markdown(whole).splitlines()[2] == "A saving is proven; nobody had promised one."
