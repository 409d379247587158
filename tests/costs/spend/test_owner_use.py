from dataclasses import replace
from pathlib import Path

from pertoken.costs.bill import bill
from pertoken.costs.spend import owner_use
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.units import NANO_USD
from tests.scenario import LOW_BATCH_70B, seed

END = 1_790_000_400 // 3600 * 3600


def test_the_use_of_owners_is_that_of_their_epochs_and_unknown_without_a_price(tmp_path: Path) -> None:
    where: Path | StoreLocation = tmp_path / "db"
    for host, team, usd in (("a", "search", 6.0), ("b", "ads", None), ("c", None, 6.0)):
        knobs = {**LOW_BATCH_70B.knobs, **({"label:team": team} if team else {})}
        where = seed(
            where, replace(LOW_BATCH_70B, knobs=knobs), gpus=2, usd_per_hour=usd, minutes=30, end_ts=END, host=host
        )
    assert isinstance(where, StoreLocation)
    with bill(open_store(where), END - 1800, END) as priced:
        uses = owner_use(priced, "label:team")
        money = priced.money
    assert set(uses) == {"search", "ads", "no owner"}
    known = [use.nano_usd for use in uses.values() if use.nano_usd is not None]
    assert sum(known) == sum(money.by_epoch.values()) and uses["search"].nano_usd == 6 * NANO_USD
    assert all(use.tokens == 1800 * 200 for use in uses.values() if use.nano_usd is not None)
