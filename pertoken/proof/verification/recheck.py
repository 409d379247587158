"""Second checks of a proven saving, 7 and 30 days after it was proven."""

from pertoken.proof.verification.verdict import Verdict
from pertoken.proof.verification.verify import Finding

RECHECK_DAYS = (7, 30)
"""Days after the verdict at which the last weeks are verified again, against the same baseline."""
PROVEN = (Verdict.REALIZED, Verdict.PARTIAL)


def recheck(proven: Finding, later: Finding) -> Verdict:
    """Return DECAYED if a proven saving is gone or clearly smaller, otherwise its first verdict.

    It is gone if the later verdict is NO_EFFECT, REGRESSED or OUTPUT_CHANGED, and clearly smaller if the later 90 %
    interval is below the first one. A later INCONCLUSIVE alone disproves nothing.
    """
    if proven.verdict not in PROVEN or proven.saving_90 is None:
        return proven.verdict
    if later.verdict in (Verdict.NO_EFFECT, Verdict.REGRESSED, Verdict.OUTPUT_CHANGED):
        return Verdict.DECAYED
    judged = later.verdict in PROVEN or later.code == "wide-interval"
    smaller = later.saving_90 is not None and later.saving_90.high < proven.saving_90.low
    return Verdict.DECAYED if judged and smaller else proven.verdict
