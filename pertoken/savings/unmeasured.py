"""From which share on a change pays, where that share is measured only after the change is made."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pertoken.evidence import NotMeasured
from pertoken.forecast.host import Calibration
from pertoken.forecast.served import Abstained, Load, accepted_len
from pertoken.forecast.serving import running_tok_s
from pertoken.savings.context import Context
from pertoken.savings.speed import calibrated
from pertoken.state.deployment import Deployment

BISECTIONS = 10
"""Halvings of the share: to a tenth of a percent."""
TOGETHER = 5
"""Of these that are computed side by side."""
SHOWN_SHARE = 0.5
"""Share at which the gain is shown: an example, not an expectation."""
OFFLOAD_KEEPS = 0.92
"""Of the tokens/s, with KV offload and nothing found: the middle of published pairs without reuse (0.86 to 0.97)."""
_SPECULATION = {"num_speculative_tokens", "speculative_method", "draft_model"}


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A share that decides what a change is worth, and what people call it."""

    field: str
    """Of the load."""
    of: str
    drafted: int = 0
    on_top: bool = False
    """Whether it is a share of what the field as measured leaves."""
    kept: float = 1.0
    """Tokens/s that remain of the changed deployment's by what the change itself takes."""

    def shown(self, share: float) -> str:
        """Return a share in words, for drafts with the tokens that a step then yields."""
        steps = f", {accepted_len(share, self.drafted):.2f} tokens per step" if self.drafted else ""
        return f"{share:.0%} of {self.of}{steps}"


def break_even(old: Deployment, new: Deployment, context: Context) -> str | None:
    """Return from which share on a change pays, as the model has it; None where it depends on no such share, or the
    deployment cannot be forecast."""
    share = _unmeasured(old, new)
    if share is None:
        return None
    try:
        load = context.forecasts.load(context.evidence(old.deployment_id))
        calibration = calibrated(old, load, context).for_change(new)

        measured = float(getattr(load.load, share.field) or 0.0) if share.on_top else 0.0

        def asked(of: Sequence[tuple[Deployment, float]]) -> list[tuple[Deployment, Load, Calibration]]:
            fields: list[dict[str, Any]] = [{share.field: measured + (1 - measured) * value} for _, value in of]
            return [
                (deployment, replace(load.load, **known), calibration)
                for (deployment, _), known in zip(of, fields, strict=True)
            ]

        def speeds(*of: tuple[Deployment, float]) -> list[float | None]:
            """Return the tokens/s of deployments, each at a value of the share."""
            rates = running_tok_s(asked(of), context.market)
            return [_kept(rate, share.kept if one is new else 1.0) for (one, _), rate in zip(of, rates, strict=True)]

        now, none, half, whole = speeds((old, 0.0), (new, 0.0), (new, SHOWN_SHARE), (new, 1.0))
        if now is None or none is None or half is None or whole is None:
            return None
        gain = f"{half / now:.2f} times the tokens/s at {share.shown(SHOWN_SHARE)}"
        if none >= now * (1 - 1e-9):
            return f"pays from any share of {share.of} on: {gain}"
        if whole <= now:
            return f"does not pay here, not even at {share.shown(1.0)}"
        low, high = 0.0, 1.0
        for _ in range(BISECTIONS // TOGETHER):
            inner = [low + (high - low) * place / 2**TOGETHER for place in range(1, 2**TOGETHER)]
            at = dict(zip(inner, speeds(*((new, value) for value in inner)), strict=True))
            for _ in range(TOGETHER):
                middle = (low + high) / 2
                low, high = (low, middle) if (at[middle] or 0.0) > now else (middle, high)
    except (NotMeasured, Abstained, ValueError):
        return None
    return f"pays above {share.shown(high)}: {gain}"


def _kept(tok_s: float | Abstained | None, share: float) -> float | None:
    """Return the share of tokens/s that is kept. Raises Abstained."""
    if isinstance(tok_s, Abstained):
        raise tok_s
    return None if tok_s is None else share * tok_s


def _unmeasured(old: Deployment, new: Deployment) -> Unmeasured | None:
    changes = set(old.knob_changes(new))
    if changes and changes <= _SPECULATION and new.num_speculative_tokens and not old.num_speculative_tokens:
        return Unmeasured("acceptance", "drafted tokens accepted", new.num_speculative_tokens)
    if changes == {"enable_prefix_caching"} and new.enable_prefix_caching:
        return Unmeasured("cached_share", "prompt tokens found in the cache")
    if changes == {"kv_offload_bytes"} and new.kv_offload_bytes and not old.kv_offload_bytes:
        of = "prompt tokens that the device computes again found in host memory"
        return Unmeasured("cached_share", of, on_top=True, kept=OFFLOAD_KEEPS)
    return None
