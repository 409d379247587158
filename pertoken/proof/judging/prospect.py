"""Provability of a recommendation before it is accepted: the smallest provable saving, and the days to proof."""

from dataclasses import dataclass
from typing import Any

from pertoken.proof.changes import names
from pertoken.proof.judging.verifier import siblings_of
from pertoken.proof.lifecycle import PUT_OFF
from pertoken.proof.recommendation import Recommendation, State
from pertoken.proof.verdicts import promise_of
from pertoken.proof.verification.adapter import acts_through, prospect
from pertoken.proof.verification.detectable import Detectable, detectable
from pertoken.proof.verification.windows import MAX_BASELINE_DAYS, Refused
from pertoken.store.connect.open import Store
from pertoken.window.reading import Window

DAY_S = 86_400
LOOKS_DAYS = (7, 28)
"""Days after a change at which it is judged."""
MAX_DEPLOYMENTS = 4
"""Maximum number of deployments of a recommendation that are examined."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """Smallest saving of a change made now that the history of one deployment could prove."""

    name: str
    """Deployment and host as people call them."""
    detectable: Detectable
    promised: float | None
    """Likely saving as a fraction of the device-seconds per token; None where none is promised."""

    def values(self) -> dict[str, Any]:
        """Return it as JSON values."""
        smallest = {f"smallest_after_{days}_days": self.detectable.after(days) for days in LOOKS_DAYS}
        return {
            "deployment": self.name,
            **smallest,
            "promised": self.promised,
            "days_to_proof": self.detectable.days_to_proof,
            "code": self.detectable.code,
            "reason": self.detectable.reason,
        }


def prospects(store: Store, row: Recommendation, now_ts: int) -> tuple[Prospect, ...]:
    """Return what could be proven of an open recommendation at each deployment it changes. Raises StoreError."""
    variant = row.chosen
    if variant is None or row.state not in (State.OPEN, *PUT_OFF):
        return ()
    targets = dict.fromkeys(int(edit.target) for edit in variant.edits if edit.kind == "deployment")
    ids = [*targets] or [deployment_id for deployment_id in (row.deployment_id,) if deployment_id is not None]
    promise, through = promise_of(variant), acts_through(names(variant.edits))
    rows = []
    with store.read() as connection:
        window = Window(connection, now_ts - MAX_BASELINE_DAYS * DAY_S, now_ts)
        newest = window.inventory.newest
        for deployment_id in [deployment_id for deployment_id in ids if deployment_id in newest][:MAX_DEPLOYMENTS]:
            others = siblings_of(window, deployment_id)
            asked = prospect(window, deployment_id, siblings=others, promise=promise, through=through)
            one = Detectable(code=asked.code, reason=asked.reason) if isinstance(asked, Refused) else detectable(asked)
            name = f"{newest[deployment_id].served_model} on {newest[deployment_id].host_name}"
            rows.append(Prospect(name, one, None if promise is None else promise.likely))
    return tuple(rows)
