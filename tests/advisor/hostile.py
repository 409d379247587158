"""A fleet, its neighbours and what a hostile rule can do to values, for the tests of the guard."""

import json
from dataclasses import asdict, replace

from pertoken.plugins.fleet.release_idle import release_idle
from pertoken.plugins.market.use_spot import use_spot
from pertoken.proof.recommendation import Recommendation
from tests.advisor.gathered import advised, gathered
from tests.savings.fleets import context, evidence, fleet_of, host, low_batch, replicas

HOSTILE = "hostile"
CHAT = replicas(3)
IDLE = host(9)
FLEET = fleet_of(CHAT.services, (*CHAT.hosts, IDLE))
SILENT = context(FLEET, evidence(running=2, busy=0.6), devices={})
"""So little was measured that a forecast abstains at once."""
HELD = {device.device_id: evidence(held=float(device.host_id != 9), observed_h=24) for device in FLEET.devices}
THERE = gathered(FLEET, replace(SILENT, devices=HELD))
SPEND = round(len(FLEET.devices) * 6.88e9 * 730)


def rows(recommendations: tuple[Recommendation, ...], rule_id: str = HOSTILE) -> tuple[Recommendation, ...]:
    return tuple(row for row in recommendations if row.rule_id == rule_id)


def rows_of_hostile(recommendations: tuple[Recommendation, ...]) -> tuple[Recommendation, ...]:
    """The rows of all hostile rules: `hostile`, `hostile-1` and so on."""
    return tuple(row for row in recommendations if row.rule_id.startswith(HOSTILE))


def others(recommendations: tuple[Recommendation, ...]) -> str:
    """The advice of all rules but the hostile ones, as it would be stored."""
    return json.dumps([asdict(row) for row in recommendations if not row.rule_id.startswith(HOSTILE)], sort_keys=True)


NEIGHBOURS = (release_idle, use_spot)
ALONE = others(advised(THERE, *NEIGHBOURS))
PRICED = gathered(FLEET, context(FLEET, low_batch(), devices=HELD))
"""The same fleet, with enough measured for a forecast."""
NOW, SERVICE = FLEET.services[0].deployments[0], FLEET.services[0]


def force(value: object, **changes: object) -> None:
    """Change a frozen value all the same."""
    for name, changed in changes.items():
        object.__setattr__(value, name, changed)
