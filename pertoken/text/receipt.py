"""A receipt for people, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple

from pertoken.proof.receipt import NanoUsd, Receipt, ReleaseFigures, ServiceLevel
from pertoken.proof.verification.estimate import EffectVerdict
from pertoken.proof.verification.guard import SPECS, Guard
from pertoken.proof.verification.windows import CALIPERS
from pertoken.units import format_usd, format_utc

_MEANINGS = {
    EffectVerdict.REALIZED: "The promised saving is proven.",
    EffectVerdict.PARTIAL: "A saving is proven, and it is less than promised.",
    EffectVerdict.NO_EFFECT: "There is no saving and no loss that matters.",
    EffectVerdict.REGRESSED: "A token costs more device time than before: go back.",
    EffectVerdict.OUTPUT_CHANGED: (
        "Outputs are not what they were, so nothing counts as saved: check their quality with a trial, or go back."
    ),
    EffectVerdict.INCONCLUSIVE: "Nothing is proven.",
    EffectVerdict.DECAYED: "The saving that was proven does not stand any more.",
}
_RELEASE_MEANINGS = {
    EffectVerdict.REALIZED: "The devices are released, and the service goes on as before.",
    EffectVerdict.PARTIAL: "Fewer devices are released than promised; the service goes on as before.",
    EffectVerdict.NO_EFFECT: "Nothing is saved.",
    EffectVerdict.REGRESSED: "The service got worse: go back.",
}
_COVARIATES = {covariate: label for covariate, (_, _, label) in CALIPERS.items()}
MIN_SHOWN = 0.005
"""Least part of the cost of a token at which the effect of load, mix or cache level is shown."""


def to_markdown(receipt: Receipt) -> str:
    """Return a receipt as Markdown: verdict first, then the numbers, then how they were found."""
    sections = (
        _head(receipt),
        _saving(receipt),
        _service(receipt),
        *(() if receipt.finding.guard is None else (_guard(receipt.finding.guard),)),
        _method(receipt),
        _foot(receipt),
    )
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _head(receipt: Receipt) -> Iterator[str]:
    change, finding = receipt.change, receipt.finding
    yield f"# {finding.verdict}: {change.title}"
    yield ""
    meaning = _MEANINGS[finding.verdict]
    if finding.verdict is EffectVerdict.REALIZED and receipt.promised is None:
        meaning = "A saving is proven; nobody had promised one."
    if receipt.release is not None:
        meaning = _RELEASE_MEANINGS.get(finding.verdict, meaning)
    yield f"{meaning} {_sentence(finding.reason)}".strip()
    yield ""
    yield f"- target: {change.target}"
    yield f"- changed: {format_utc(receipt.changed_at)}; before: {change.before}"
    if change.rule is not None:
        yield f"- proposed by the rule {change.rule}" + (f" ({change.regime})" if change.regime is not None else "")
    yield from (f"- stated beside it: {line}" for line in change.moving)


def _saving(receipt: Receipt) -> Iterator[str]:
    finding, promised = receipt.finding, receipt.promised
    yield "## Saving"
    yield ""
    if receipt.release is not None:
        yield from _release(receipt, receipt.release)
        return
    yield "| | low | likely | high |"
    yield "|---|---:|---:|---:|"
    if promised is not None:
        yield _row("promised, device time per token", promised.low, promised.likely, promised.high)
    if finding.saving_90 is not None:
        saving = finding.saving_90
        yield _row("measured, device time per token, 90 % interval", saving.low, saving.likely, saving.high)
    if receipt.change.estimated_per_month is not None:
        yield _usd("estimated at acceptance, per month", receipt.change.estimated_per_month)
    if receipt.measured_per_mtok is not None and receipt.measured_in_window is not None:
        yield _usd("measured, per Mtok", receipt.measured_per_mtok)
        yield _usd("measured, in the matched hours", receipt.measured_in_window)
    yield ""
    if receipt.price is not None:
        price = format_usd(receipt.price.nano_usd_per_device_hour)
        yield f"- price: {price} per device-hour ({receipt.price.source}), as of the change"
    else:
        yield "- the price of a device-hour is not known: no dollars"
    if None not in (finding.earlier_s_per_mtok, finding.expected_s_per_mtok, finding.later_s_per_mtok):
        yield (
            f"- device-seconds per Mtok: {finding.earlier_s_per_mtok:.1f} before, {finding.expected_s_per_mtok:.1f} "
            f"expected after without the change, {finding.later_s_per_mtok:.1f} measured after"
        )
    for covariate, share in finding.explained:
        if abs(share) >= MIN_SHOWN:
            yield f"- the {_COVARIATES[covariate]} changed the cost of a token by {share:+.1%}: no part of the saving"


def _release(receipt: Receipt, release: ReleaseFigures) -> Iterator[str]:
    yield f"- devices released: {release.released_devices} of {release.promised_devices} promised"
    if receipt.change.estimated_per_month is not None:
        usd = receipt.change.estimated_per_month
        yield f"- estimated at acceptance, per month: {format_usd(usd.likely)}"
    if release.measured_per_month is not None:
        yield f"- measured, per month: {format_usd(release.measured_per_month.likely)}, exact by the released devices"
    if release.served is not None:
        low, likely, high = (f"{value:.1%}" for value in astuple(release.served))
        yield f"- tokens served, of those expected: {likely} ({low} to {high}, 90 % interval)"


def _service(receipt: Receipt) -> Iterator[str]:
    levels = (receipt.service_before, receipt.service_after, receipt.objectives)
    yield "## Service and energy"
    yield ""
    yield "| | before | after | objective |"
    yield "|---|---:|---:|---:|"
    for label, name, unit in (
        ("TTFT, p95", "ttft_p95_s", "s"),
        ("TPOT, p95", "tpot_p95_s", "s"),
        ("energy per token", "j_per_token", "J"),
    ):
        yield f"| {label} | " + " | ".join(_measured(level, name, unit) for level in levels) + " |"
    yield ""
    kept = {True: "The objectives are kept.", False: "An objective is missed: go back.", None: ""}
    yield kept[receipt.objectives_kept] or "Whether the objectives are kept is not known."


def _guard(guard: Guard) -> Iterator[str]:
    yield "## Outputs"
    yield ""
    if guard.signals:
        yield "| | expected | measured after | |"
        yield "|---|---:|---:|---|"
    for change in guard.signals:
        yield f"| {change.label} | {' | '.join(change.figures)} | {'changed' if change.alarm else ''} |"
    for signal, reason in guard.not_compared:
        yield f"- {SPECS[signal].label}: not compared, {reason}"


def _method(receipt: Receipt) -> Iterator[str]:
    finding = receipt.finding
    yield "## How it was found"
    yield ""
    for label, used_window in (("before", finding.before), ("after", finding.after)):
        if used_window is not None:
            times = f"{format_utc(used_window.start)} to {format_utc(used_window.end)}"
            yield f"- {label}: {times}, {used_window.hours} of {used_window.expected} hours used"
    if finding.before is not None:
        matched = [label for covariate, label in _COVARIATES.items() if covariate not in finding.not_matched]
        yield f"- hours are made alike in hour of the week, {', '.join(matched)}"
    if finding.not_matched:
        yield f"- not made alike in: {', '.join(_COVARIATES[covariate] for covariate in finding.not_matched)}"
    if finding.siblings:
        yield f"- less what {finding.siblings} unchanged siblings show, weighted by {finding.sibling_weight:.2f}"
    if finding.siblings_moved:
        yield "- the siblings changed at the same time: the interval spans the saving with and without them"
    if finding.siblings_dropped:
        yield f"- left out: {finding.siblings_dropped} siblings whose cost changed otherwise than that of the others"
    if (tested := finding.held_out) is not None:
        result = "passed" if tested.passed else "failed"
        yield f"- held-out week: bias {tested.nmbe:+.1%}, hourly error {tested.cv_rmse:.0%}: {result}"
    if (tried := finding.placebo) is not None:
        yield f"- placebo: {tried.false} of {tried.dates} dates without a change would have shown one"
        if tried.factor > 1:
            yield f"- the interval is {tried.factor:.2f} times as wide for it"
    if receipt.trial is not None:
        saved, design = receipt.trial.saving_90, receipt.trial.design.lower()
        figures = f"{saved.likely:.1%} ({saved.low:.1%} to {saved.high:.1%})"
        yield f"- a trial before the change ({design}, {receipt.trial.minutes} minutes) saved {figures}"
    for event in finding.events:
        yield f"- {format_utc(event.ts)}, {event.kind}: {event.text}"


def _foot(receipt: Receipt) -> Iterator[str]:
    yield f"pertoken {receipt.version}, method of verification {receipt.method}, {format_utc(receipt.made_at)}  "
    yield f"inputs SHA-256 {receipt.inputs_sha256}  "
    yield f"receipt SHA-256 {receipt.sha256}"


def _sentence(text: str | None) -> str:
    return "" if text is None else f"{text[0].upper()}{text[1:]}."


def _row(label: str, low: float, likely: float, high: float) -> str:
    return f"| {label} | {low:.1%} | {likely:.1%} | {high:.1%} |"


def _usd(label: str, usd: NanoUsd) -> str:
    return f"| {label} | {format_usd(usd.low)} | {format_usd(usd.likely)} | {format_usd(usd.high)} |"


def _measured(level: ServiceLevel, name: str, unit: str) -> str:
    value = getattr(level, name)
    return "–" if value is None else f"{value:.3g} {unit}"
