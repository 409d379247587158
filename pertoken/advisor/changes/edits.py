"""A difference as JSON values, stored with a variant and later compared with the running fleet."""

from pertoken.proof.recommendation import Edit
from pertoken.state.diff import Diff, plain


def edits(difference: Diff) -> tuple[Edit, ...]:
    """Return the changes of a difference as JSON values. A removed deployment and a released host stop running.

    Changes of demand are left out: they are not configuration.
    """
    fields = (
        Edit(change.kind, change.target, change.field, plain(change.before), plain(change.after))
        for change in difference.changes
        if not change.field.startswith("demand.")
    )
    removed = (
        Edit("deployment", deployment.deployment_id, "running", True, False) for deployment in difference.removed
    )
    released = (Edit("host", host.host_id, "running", True, False) for host in difference.released)
    added = (Edit("deployment", deployment.deployment_id, "running", False, True) for deployment in difference.added)
    return (*fields, *removed, *released, *added)
