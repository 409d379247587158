"""Smaller models that could serve some requests of a service, for the rules that split requests between models."""

from pertoken.rule import Evidence, Market, Model, Service, Skip, skip


def smaller_models(
    seen: Evidence, service: Service, market: Market, *, max_size: float, min_busy: float
) -> list[Model] | Skip:
    """Return models of the same family with at most `max_size` times the active parameters, or a refusal.

    A service below `min_busy`, or one that several models already serve, is refused.
    """
    busy = seen.busy.mean
    if busy < min_busy:
        return skip(
            "hardly-busy",
            f"it is busy {busy:.1%} of the time, below {min_busy:.0%}: too few requests to split between two models",
        )
    models = dict.fromkeys(deployment.model.name for deployment in service.deployments)
    if len(models) > 1:
        return skip("already-routed", f"its replicas already serve {len(models)} models: {', '.join(models)}")
    model = service.deployments[0].model
    active = model.params_active or 0
    smaller = [m for m in market.smaller_models(model) if (m.params_active or active) <= max_size * active]
    refusals = [market.unsuitable(model, other, beside=True) for other in smaller]
    suitable = [other for other, refused in zip(smaller, refusals, strict=True) if refused is None]
    if smaller and not suitable:
        return skip(*next(filter(None, refusals)))
    return suitable or skip(
        "no-smaller-model",
        f"the catalog has no model of {max_size:.0%} of its active parameters or less in the family of {model.name}",
    )
