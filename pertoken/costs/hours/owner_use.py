"""Dollars and tokens of owners over a window of any length, for gates, alerts and metrics."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pertoken.costs.bill import Bill
from pertoken.costs.hours.spend import naming
from pertoken.costs.served import Served, together


@dataclass(frozen=True, slots=True)
class OwnerUse:
    """Dollars and tokens of an owner's deployments; None: not known."""

    nano_usd: int | None
    idle_nano_usd: int | None
    served: Served
    """Of deployments with known dollars and tokens."""

    @property
    def tokens(self) -> int | None:
        """Prompt and generated tokens."""
        prompt, generated = self.served.prompt_tokens, self.served.generated_tokens
        return None if prompt is None or generated is None else prompt + generated


def owner_use(priced: Bill, basis: str) -> Mapping[str, OwnerUse]:
    """Return the use of each owner by a basis of `settings.owners`; of deployments without one, too."""
    inventory, name_of = priced.inventory, naming(priced.inventory, basis)
    epochs: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in inventory.epochs:
        deployment_id = inventory.heads.get(row.epoch_id, row.deployment_id)
        epochs[name_of(row)][deployment_id].append(row.epoch_id)
    return {name: _use(priced, list(by_deployment.values())) for name, by_deployment in epochs.items()}


def _use(priced: Bill, epochs_of: Sequence[Sequence[int]]) -> OwnerUse:
    """Return the use of the epochs of several deployments."""
    money = priced.money
    every = [epoch_id for epoch_ids in epochs_of for epoch_id in epoch_ids]
    held = [epoch_id for epoch_id in every if epoch_id in money.by_epoch]
    known = bool(held) and money.unpriced_epochs.isdisjoint(every)
    return OwnerUse(
        sum(money.by_epoch[epoch_id] for epoch_id in held) if known else None,
        sum(money.idle_by_epoch.get(epoch_id, 0) for epoch_id in held) if known else None,
        together(_served(priced, epoch_ids) for epoch_ids in epochs_of),
    )


def _served(priced: Bill, epoch_ids: Sequence[int]) -> Served:
    money = priced.money
    paid = [money.by_epoch[epoch_id] for epoch_id in epoch_ids if epoch_id in money.by_epoch]
    totals = priced.totals.of_epochs([epoch_id for epoch_id in epoch_ids if epoch_id not in priced.inventory.heads])
    return Served(
        sum(paid) if paid and money.unpriced_epochs.isdisjoint(epoch_ids) else None,
        totals.get("prompt_tokens"),
        totals.get("generated_tokens"),
        totals.get("requests_finished"),
    )
