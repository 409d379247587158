"""A difference as plain values, which are stored with a variant and compared with what runs later."""

from pertoken.proof.recommendation import Edit
from pertoken.state.diff import Diff, plain


def edits(difference: Diff) -> tuple[Edit, ...]:
    """Return what a difference changes as JSON values. A removed deployment and a released host stop running.

    Changes of demand are left out: they are no configuration.
    """
    fields = (
        Edit(each.kind, each.target, each.field, plain(each.before), plain(each.after))
        for each in difference.changes
        if not each.field.startswith("demand.")
    )
    removed = (Edit("deployment", each.deployment_id, "running", True, False) for each in difference.removed)
    released = (Edit("host", each.host_id, "running", True, False) for each in difference.released)
    added = (Edit("deployment", each.deployment_id, "running", False, True) for each in difference.added)
    return (*fields, *removed, *released, *added)
