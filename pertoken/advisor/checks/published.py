"""Refuse proposals of any rule that published facts of the catalog speak against."""

from pertoken.catalog.market import Market
from pertoken.proof.recommendation import Refusal
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet, deployments_unlike


def refusal(before: Fleet, after: Fleet, market: Market) -> Refusal | None:
    """Return why published facts refuse a proposal; None if they do not.

    What runs already is not questioned: a combination of engine, format and accelerator counts where it changes.
    """
    for deployment in deployments_unlike(after, before):
        known = deployment.deployment_id in before.listed_by
        present = before.deployment(deployment.deployment_id) if known else None
        if present is None or _combination(present) != _combination(deployment):
            reason = market.not_run(*_combination(deployment))
            if reason is not None:
                return Refusal("format-not-run", reason)
    return None


def _combination(deployment: Deployment) -> tuple[str, str | None, str | None]:
    return deployment.engine, deployment.weight_dtype, deployment.accelerator
