"""What a million tokens cost, model by model and hour by hour, in a few milliseconds: summed where it is stored."""

from collections import defaultdict
from dataclasses import dataclass

from pertoken.costs.ledger import divide
from pertoken.costs.prices import PriceBook, Priced
from pertoken.costs.ranks import FOLLOWING
from pertoken.store import read, sums
from pertoken.store.open import Store
from pertoken.store.rollup import HOUR
from pertoken.store.segments import stretches
from pertoken.store.telemetry import OTHER
from pertoken.units import HOUR_MS, MTOK

_HOUR_NS = HOUR_MS * 1_000_000


@dataclass(slots=True)
class ModelHour:
    """One model in one hour. Tokens are prompt (cached included) and generated; None: not all of it is known."""

    nano_usd: int | None = 0
    tokens: int | None = 0

    @property
    def nano_usd_per_mtok(self) -> int | None:
        """Nano-USD for a million tokens; None if not known, or none was served."""
        if self.nano_usd is None or not self.tokens:
            return None
        return divide(self.nano_usd * MTOK, self.tokens)


def model_hours(store: Store, start: int, end: int, prices: PriceBook) -> dict[tuple[str, int], ModelHour]:
    """By served model and start of the hour, over [start, end): what its deployments held and served.

    Device time is multiplied by its price and rounded once for a model's hour, so that it may differ from the bill,
    which is split to the nano-dollar device by device, by less than one nano-dollar for each device and bucket.
    Raises StoreError.
    """
    held: defaultdict[tuple[str, int], int] = defaultdict(int)
    unpriced: set[tuple[str, int]] = set()
    found: defaultdict[tuple[str, int], ModelHour] = defaultdict(ModelHour)
    with store.read() as connection:
        epochs = read.models(connection)
        model_of = {row.epoch_id: row.served_model for row in epochs}
        # Ranks that follow hold devices, and their head counts their tokens.
        counting = [row.epoch_id for row in epochs if not row.base_url.startswith(FOLLOWING)]
        devices = {row.device_id: Priced(row.kind, row.name, row.uuid) for row in read.payers(connection)}
        for segment in (each for stretch in stretches(start, end, prices.changes()) for each in stretch):
            by_price: defaultdict[int | None, list[int]] = defaultdict(list)
            for device_id, device in devices.items():
                price = prices.at(device, segment.start)
                by_price[None if price is None else price.nano_usd_per_device_hour].append(device_id)
            for nano_usd_per_hour, device_ids in by_price.items():
                for epoch_id, ts, held_ns in sums.held_by_bucket(connection, segment, device_ids):
                    if epoch_id == OTHER or epoch_id not in model_of:
                        continue
                    key = model_of[epoch_id], ts // HOUR * HOUR
                    if nano_usd_per_hour is None:
                        unpriced.add(key)
                    else:
                        held[key] += held_ns * nano_usd_per_hour
            for epoch_id, ts, prompt, generated in sums.tokens_by_bucket(connection, segment, counting):
                hour = found[model_of[epoch_id], ts // HOUR * HOUR]
                known = hour.tokens is not None and prompt is not None and generated is not None
                hour.tokens = hour.tokens + prompt + generated if known else None
    for key, product in held.items():
        found[key].nano_usd = divide(product, _HOUR_NS)
    for key in unpriced:
        found[key].nano_usd = None
    return dict(found)
