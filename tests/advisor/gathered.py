"""Inputs of an advice run, built by hand: a fleet with its evidence, without a database."""

from collections.abc import Callable
from typing import Any

from pertoken.advisor.changes.commands import Addresses, DeviceAddress
from pertoken.advisor.present import Present
from pertoken.advisor.run import advice_of
from pertoken.advisor.worker.child import Loaded, PluginSource, RuleLimits
from pertoken.proof.recommendation import Recommendation
from pertoken.rule import Rule, rule
from pertoken.savings.context import Context
from pertoken.state.fleet import Fleet
from tests.savings.fleets import context, evidence
from tests.test_rule import DOC


def gathered(fleet: Fleet, known: Context | None = None, *, held: bool = True) -> Present:
    """Return the input of an advice run on a fleet, each device in use the whole time or never, at $6.88 an hour."""
    devices = {device.device_id: evidence(held=float(held), observed_h=24, power_w=300) for device in fleet.devices}
    known = known or context(fleet, devices=devices)
    homes = {deployment.deployment_id: host.name for host in fleet.hosts for deployment in fleet.deployments_on(host)}
    return Present(
        fleet=fleet,
        context=known,
        hosts={host.host_id: evidence(held=float(held), observed_h=24) for host in fleet.hosts},
        names={device.device_id: device.name for device in fleet.devices}
        | {deployment.deployment_id: deployment.name for deployment in fleet.deployments}
        | {host.host_id: host.name for host in fleet.hosts},
        addresses=Addresses(
            homes, {device.device_id: DeviceAddress(f"GPU-{device.device_id}", "nvidia") for device in fleet.devices}
        ),
        window_s=86_400,
    )


def own(function: Callable[..., Any], rule_id: str = "own-rule", window: str | None = None) -> Rule:
    """Return a rule of this function."""
    function.__doc__ = DOC
    return rule(rule_id, window=window)(function)


def rule_source(own_rule: Rule) -> PluginSource:
    """Return a plugin that holds one rule, which is in memory already."""
    group = "hostile" if own_rule.rule_id.startswith("hostile") else "here"
    return PluginSource(own_rule.rule_id, "here", group, lambda: (Loaded(own_rule.rule_id, (own_rule,)),))


def advised(state: Present, *rules: Rule, timeout_s: float = 10) -> tuple[Recommendation, ...]:
    """Advice of these rules alone; hostile ones have a worker of their own."""
    return advice_of(map(rule_source, rules), state, RuleLimits.of_call(timeout_s))[0]
