"""Planted problems of a demo, as `pertoken demo --truth` writes them."""

import json
from typing import Any

from pertoken.catalog.market import Market
from pertoken.demo.fleet import DrawnFleet
from pertoken.demo.worth import worth


def truth(fleet: DrawnFleet, market: Market) -> dict[str, Any]:
    """Return the problems of a fleet, the rules that would find each, and the true saving of fixing it."""
    problems = []
    for problem in fleet.problems:
        hosts = [fleet.host(name) for name in problem.hosts]
        true_worth = worth(problem, hosts, fleet.of_service(problem.service), market)
        problems.append(
            {
                "target": problem.target,
                "kind": problem.scene.kind,
                "rules": list(problem.scene.rules),
                "saves_usd_per_month": round(true_worth.usd, 2),
                "share_of_spend": round(true_worth.share, 4),
                "bankable": true_worth.bankable,
            }
        )
    return {"problems": problems, "healthy": list(fleet.healthy)}


def truth_text(fleet: DrawnFleet, market: Market) -> str:
    """Return `truth` as JSON."""
    return json.dumps(truth(fleet, market), indent=2) + "\n"
