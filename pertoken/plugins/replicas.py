"""Comparison of the replicas of a service, for rules that change all of them alike."""

from operator import attrgetter

from pertoken.rule import Service

_SHAPE = ("model", "engine", "accelerator", "weight_dtype", "tp", "pp", "dp", "role")


def alike(service: Service, *knobs: str) -> bool:
    """Return whether replicas have the same model, engine, accelerator, weights, ranks and role, and equal `knobs`."""
    return len(set(map(attrgetter(*_SHAPE, *knobs), service.deployments))) <= 1
