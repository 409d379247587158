"""What was planted in a demo, as `pertoken demo --truth` writes it."""

import json
from typing import Any

from pertoken.catalog.market import Market
from pertoken.demo.fleet import DrawnFleet
from pertoken.demo.worth import worth


def truth(fleet: DrawnFleet, market: Market) -> dict[str, Any]:
    """Return the problems of a fleet, the rules that count as having found each, and what mending truly saves."""
    problems = []
    for each in fleet.problems:
        hosts = [fleet.host(name) for name in each.hosts]
        found = worth(each, hosts, fleet.of_service(each.service), market)
        problems.append(
            {
                "target": each.target,
                "kind": each.scene.kind,
                "rules": list(each.scene.rules),
                "saves_usd_per_month": round(found.usd, 2),
                "share_of_spend": round(found.share, 4),
                "bankable": found.bankable,
            }
        )
    return {"problems": problems, "healthy": list(fleet.healthy)}


def truth_text(fleet: DrawnFleet, market: Market) -> str:
    """Return `truth` as JSON."""
    return json.dumps(truth(fleet, market), indent=2) + "\n"
