"""Rule `leave-host`, which is no plugin: all services of a shared host leave it together.

An instance is paid for until its last service has left, so that a service that moves away alone lowers no bill. Each
service takes the change of the other rules that saves most of those with which it leaves its devices.
"""

import json
from collections.abc import Iterable

from pertoken.advisor.checks.candidate import candidate
from pertoken.advisor.present import Present
from pertoken.advisor.pricing import Departure, Pricing, best_by_service, services_on
from pertoken.advisor.worker.wire import encoded
from pertoken.proof.recommendation import LEAVE_HOST, Recommendation, State, identity
from pertoken.rule import RISKS, Proposal, propose
from pertoken.state.fleet import Host
from pertoken.state.knobs import InvalidEdit


def leave_hosts(departures: Iterable[Departure], gathered: Present) -> list[Recommendation]:
    """Return open advice for each host whose services save money if all of them leave it together."""
    best, before = best_by_service(departures), gathered.fleet
    services_by_host = {host: names for host in before.hosts if len(names := services_on(before, host)) > 1}
    rows, combined = [], set[frozenset[str]]()
    for host, names in services_by_host.items():
        if names in combined or not names <= best.keys():
            continue
        combined.add(names)
        rows += _rows([best[name] for name in sorted(names)], host, gathered)
    return rows


def _rows(parts: Iterable[Departure], host: Host, gathered: Present) -> list[Recommendation]:
    """Return the open recommendation to leave a host; none if it saves nothing or is refused."""
    pricing = Pricing(gathered, gathered.context)
    try:
        sent = encoded(_together(parts, host, gathered), gathered.fleet)
    except InvalidEdit:  # two services move one deployment to different places
        return []
    proposed = pricing.proposed(LEAVE_HOST, None, [sent])
    pricing.prepare([proposed])
    (priced,) = pricing.priced([proposed])
    if isinstance(priced, Exception):
        raise priced
    pricing.prepare_shown([priced])
    return [
        Recommendation(
            recommendation_id=identity(LEAVE_HOST, target.kind, target.key),
            rule_id=LEAVE_HOST,
            state=State.OPEN,
            title=outcome.variants[0].title,
            target=target.label,
            target_kind=target.kind,
            target_key=target.key,
            variants=tuple(outcome.variants),
            window_s=gathered.window_s,
            created_ts=gathered.context.now_ts,
            updated_ts=gathered.context.now_ts,
        )
        for target, outcome in pricing.outcomes(priced).items()
        if outcome.variants and not outcome.variants[0].pays_more
    ]


def _together(parts: Iterable[Departure], host: Host, gathered: Present) -> Proposal:
    """Return the proposal of all parts, which releases the host. Raises InvalidEdit if they contradict each other."""
    after, market, proposals = gathered.fleet, gathered.context.market, []
    for part in parts:
        possible = candidate(gathered.fleet, json.loads(part.proposal), None, market)
        assert possible is not None
        after = after.edit(possible.after.service(part.service))
        proposals.append(possible.proposal)
    return propose(
        after.release(host),
        risk=max((proposal.risk or "availability" for proposal in proposals), key=RISKS.index),
        effort="high",
        requires=dict.fromkeys(rule_id for proposal in proposals for rule_id in proposal.requires),
        excludes=dict.fromkeys(rule_id for proposal in proposals for rule_id in proposal.excludes),
        against=dict.fromkeys(sentence for proposal in proposals for sentence in proposal.against),
    )
