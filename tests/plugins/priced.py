"""Money, offers and latency verdicts of each built-in rule in each typical situation, kept in `priced.txt`.

    use-spot × nights: $2,983–3,103–3,223 | on_demand → spot on 1 of 2 replicas: 1 × p5.4xlarge spot at aws | ✓ kept
    move-accelerator × moe: costs-more, infeasible

Only cells with a proposal are listed, refused ones with their codes. `$` is the net change of a month's bill as low,
likely and high; `+$` is capacity where the bill stays. The title of a change names the instances that it orders. Write
the file again with

    python -m tests.plugins.priced
"""

from pathlib import Path
from typing import Any

from pertoken.advisor.present import Present
from pertoken.catalog.market import load_market
from pertoken.proof.recommendation import Recommendation, State
from pertoken.rule import Rule
from pertoken.savings.context import Context
from pertoken.testing import Regime, regimes, run
from pertoken.text.words import marked_verdict, usd_triple
from tests.advisor.gathered import gathered
from tests.advisor.plan.fleets import advice
from tests.savings.fleets import AWS_H100
from tests.testing.test_conformity import BUILT_IN

FILE = Path(__file__).with_name("priced.txt")


def present(regime: Regime) -> Present:
    """Return the input of an advice run on a situation, each device at the price of an H100 on demand."""
    fleet = regime.fleet
    known = Context(
        market=load_market(),
        now_ts=1_790_000_000,
        deployments={
            replica.deployment_id: regime.of("deployment", replica.deployment_id) for replica in fleet.deployments
        },
        services={service.name: regime.of("service", service.name) for service in fleet.services},
        devices={device.device_id: regime.of("device", device.device_id) for device in fleet.devices},
        nano_usd_per_hour={device.device_id: AWS_H100 for device in fleet.devices},
    )
    return gathered(fleet, known)


def rows(name: str, rule: Rule) -> tuple[Recommendation, ...]:
    """Return what an advice run makes of the proposals of a rule in a situation."""
    by_target: dict[int, tuple[Any, list[Any]]] = {}
    for proposed in run(rule, name).proposals:
        by_target.setdefault(id(proposed.target), (proposed.target, []))[1].append(proposed.state)
    asked = [(rule.rule_id, target, states) for target, states in by_target.values()]
    return advice(present(regimes()[name]), asked) if asked else ()


def cell(row: Recommendation) -> str:
    """Return the money, the change with its offer, and the verdict of a row; of a refused one its codes."""
    if row.state is not State.OPEN or row.best is None:
        return ", ".join(sorted({refusal.code for refusal in row.refusals})) or "silent"
    best = row.best
    if best.saving is None:
        money = "if confirmed" if best.if_confirmed is not None else "unpriced"
    elif any(best.saving.net):
        money = usd_triple(best.saving.net)
    else:
        money = f"+{usd_triple(best.saving.capacity)}"
    return f"{money} | {best.title} | {marked_verdict(best.slo)}"


def cells() -> list[str]:
    """Return every cell that has a proposal, as lines."""
    return [
        f"{rule.rule_id} × {name}: {text}"
        for rule in BUILT_IN
        for name in regimes()
        for text in dict.fromkeys(map(cell, rows(name, rule)))
    ]


if __name__ == "__main__":
    FILE.write_text("\n".join(cells()) + "\n")
