"""Proposals of rules: as JSON between processes, and validated as candidates.

A worker writes what a rule yields with `encoded`, without validation. The receiver reads it with `refusal_of` and
`proposal_of`, which accept only values of exactly the declared types; `candidate` also validates the change.

    {"skip": ["committed", "its devices are owned", ["service", "chat"]]}
    {"deployment": 7, "set": {"tp": 1, "weight_dtype": "fp8"}, "risk": "quality"}
"""

from dataclasses import dataclass

from pertoken.catalog.market import Market
from pertoken.rule import Proposal, Skip, propose, skip, subject_key
from pertoken.state.deployment import Deployment, InvalidEdit
from pertoken.state.diff import Diff, diff
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service
from pertoken.state.validation import as_edited, validate
from pertoken.state.wire import Json, field_types, json_value, read_value, sent_state, state_of, type_name

_PROPERTIES = ("risk", "effort", "requires", "excludes", "against")
"""Fields of a proposal beside its state."""


def encoded(yielded: object, present: Fleet) -> Json:
    """Return a yielded value as JSON values: a refusal, or the difference of a proposal from `present`.

    Raises TypeError for any other value, InvalidEdit for a service or deployment that `present` does not have.
    """
    if type(yielded) is Skip:
        about = None if yielded.about is None else list(subject_key(yielded.about))
        return {"skip": [json_value(yielded.code), json_value(yielded.reason), about]}
    proposal = yielded if type(yielded) is Proposal else Proposal(yielded)  # type: ignore[arg-type]  # checked below
    state = proposal.state
    if type(state) not in (Deployment, Service, Fleet):
        raise TypeError(
            f"it yielded a {type_name(state)}; a rule yields a Deployment, a Service, a Fleet or skip(code, reason)"
        )
    values = ((name, getattr(proposal, name)) for name in _PROPERTIES)
    properties = {name: json_value(value) for name, value in values if value not in (None, ())}
    return sent_state(state, present) | properties


@dataclass(frozen=True, slots=True)
class SentRefusal:
    """A refusal, with the kind and id of its subject."""

    code: str
    reason: str
    about: tuple[str, int | str] | None


def refusal_of(sent: object) -> SentRefusal | None:
    """Return a received refusal; None for a proposal.

    Raises InvalidEdit for values of another type, ValueError for an invalid code or reason.
    """
    if type(sent) is not dict or "skip" not in sent:
        return None
    code, reason, about = read_value(tuple[str, str, tuple[str, int | str] | None], sent["skip"], "skip")
    checked = skip(code, reason)
    return SentRefusal(checked.code, checked.reason, about)


def proposal_of(sent: object, present: Fleet) -> Proposal:
    """Return a proposal from received values, each validated. Raises InvalidEdit that names the invalid field."""
    if type(sent) is not dict or type(sent.get("set")) is not dict:
        raise InvalidEdit("the received value is not a proposal")
    types = field_types(Proposal)
    properties = {name: read_value(types[name], sent[name], name) for name in _PROPERTIES if name in sent}
    return propose(state_of(sent, present), **properties)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A valid proposal."""

    proposal: Proposal
    after: Fleet
    diff: Diff
    """Not empty."""


def candidate(
    present: Fleet, sent: object, subject: Deployment | Service | None, market: Market, *, configured: bool = False
) -> Candidate | None:
    """Return the candidate in a worker's message; None if it equals the present fleet. Raises as `validated`."""
    return validated(present, proposal_of(sent, present), subject, market, configured=configured)


def validated(
    present: Fleet,
    proposal: Proposal,
    subject: Deployment | Service | None,
    market: Market,
    *,
    configured: bool = False,
) -> Candidate | None:
    """Return a proposal as a candidate; None if it equals the present fleet.

    `subject` is the deployment or service that the rule was run for; None for a rule over the fleet. Demand figures
    count as confirmed only from a rule that a person `configured`. Raises InvalidEdit for a fleet that no edit
    produces, ValueError for an invalid risk, effort or rule id.
    """
    state = proposal.state
    if isinstance(state, Deployment) and subject is not None:
        ids = {
            deployment.deployment_id
            for deployment in (subject.deployments if isinstance(subject, Service) else (subject,))
        }
        if state.deployment_id not in ids:
            raise InvalidEdit(f"{state.name} is another deployment than it was asked about: use now.but(...)")
    if isinstance(state, Service) and isinstance(subject, Service) and state.name != subject.name:
        raise InvalidEdit(f"{state.name} is another service than it was asked about ({subject.name})")
    proposed = as_edited(present, state, confirmed=configured)
    difference = diff(present, proposed)
    if not difference or difference.keeps_replicas(present):
        return None
    validate(present, proposed, difference, {name: market.model(name) for name in difference.models})
    return Candidate(proposal, proposed, difference)
