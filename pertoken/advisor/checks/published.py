"""Published facts of the catalog about a proposal: those that refuse it, and those that a person should read."""

from collections.abc import Iterator

from pertoken.catalog.market import Market
from pertoken.catalog.model_facts import quantized_note
from pertoken.proof.recommendation import Refusal
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet, deployments_unlike


def refusal(before: Fleet, after: Fleet, market: Market, *, accepted: bool = False) -> Refusal | None:
    """Return why published facts refuse a proposal of any rule; None if they do not.

    What runs already is not questioned: a combination of engine, format and accelerator counts where it changes.
    `accepted`: a person configured the rule, and so chose its models.
    """
    for deployment in deployments_unlike(after, before):
        present = _present(before, deployment)
        if present is None or _combination(present) != _combination(deployment):
            reason = market.not_run(*_combination(deployment))
            if reason is not None:
                return Refusal("format-not-run", reason)
        for other, beside in () if accepted else _other_models(before, deployment):
            unsuitable = market.unsuitable(other.model, deployment.model, beside=beside)
            if unsuitable is not None and not _passed(before, deployment):
                return Refusal(*unsuitable)
    return None


def notes(before: Fleet, after: Fleet, market: Market) -> tuple[str, ...]:
    """Return the published evaluation and licence of other models, and the evaluation of weights in fewer bits."""
    lines: dict[str, None] = {}
    for deployment in deployments_unlike(after, before):
        for other, _ in _other_models(before, deployment):
            lines |= dict.fromkeys(market.published(other.model, deployment.model))
        present = _present(before, deployment)
        if present is not None and deployment.weight_dtype not in (None, present.weight_dtype):
            known = market.model(deployment.model.name) or deployment.model
            lines[quantized_note(known.name, str(deployment.weight_dtype))] = None
        if present is not None:
            lines |= dict.fromkeys(_engine_notes(present, deployment, market))
    return tuple(lines)


def _engine_notes(present: Deployment, deployment: Deployment, market: Market) -> Iterator[str]:
    """Yield what release notes state since the present version, and the published gain of drafts by an MTP head."""
    if present.engine == deployment.engine and present.engine_version != deployment.engine_version:
        later = market.newer_releases(deployment.engine, deployment.engine_version)
        between = market.newer_releases(present.engine, present.engine_version)
        yield from (release.text for release in between if release.faster and release not in later)
    mtp = market.multi_token_prediction(deployment.engine, deployment.model)
    if mtp is not None and present.speculative_method != deployment.speculative_method == mtp.method:
        yield f"published gain of multi-token prediction: {mtp.text}"


def _present(before: Fleet, deployment: Deployment) -> Deployment | None:
    known = deployment.deployment_id in before.listed_by
    return before.deployment(deployment.deployment_id) if known else None


def _other_models(before: Fleet, deployment: Deployment) -> Iterator[tuple[Deployment, bool]]:
    """Yield the present deployment whose requests another model would take, and whether that stays beside it."""
    present = _present(before, deployment)
    if present is not None:
        if present.model.name != deployment.model.name:
            yield present, False
        return
    for name, _ in deployment.serves:
        served = before.service(name).deployments
        if served and deployment.model.name not in {other.model.name for other in served}:
            yield served[0], True


def _passed(before: Fleet, deployment: Deployment) -> bool:
    return all(before.service(name).passed("model", deployment.model.name) for name, _ in deployment.serves)


def _combination(deployment: Deployment) -> tuple[str, str | None, str | None]:
    return deployment.engine, deployment.weight_dtype, deployment.accelerator
