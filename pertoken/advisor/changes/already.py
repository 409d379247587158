"""Present values that a proposal without a difference set again: `tp 2`, `batch limit 256`."""

from collections.abc import Iterator
from typing import Any

from pertoken.advisor.changes.title import LABELS, with_unit
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.knobs import knobs


def present_values(sent: Any, before: Fleet) -> tuple[str, ...]:
    """Return the present value of every knob and number of replicas that a proposal set, one phrase each.

    `sent` is a valid proposal of a worker. Names come from it, values from the present fleet.
    """
    return tuple(_replicas(sent, before)) + tuple(_knobs(sent, before))


def _replicas(sent: Any, before: Fleet) -> Iterator[str]:
    if "service" in sent and "replicas" in sent["set"]:
        n = len(before.service(sent["service"]).deployments)
        yield f"{n} replica{'s' if n > 1 else ''}"


def _knobs(sent: Any, before: Fleet) -> Iterator[str]:
    named = sent.get("edited")
    edited = [name for name in named if type(name) is str] if type(named) is list else []
    for name in knobs():
        if name in edited:
            values = dict.fromkeys(getattr(deployment, name) for deployment in _deployments(sent, before))
            shown = " or ".join(with_unit(name, value) for value in values if value is not None)
            if shown:
                yield f"{LABELS.get(name, f'{knobs()[name].label} ')}{shown}"


def _deployments(sent: Any, before: Fleet) -> tuple[Deployment, ...]:
    if "deployment" in sent:
        return (before.deployment(sent["deployment"]),)
    return before.service(sent["service"]).deployments if "service" in sent else before.deployments
