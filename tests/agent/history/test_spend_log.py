"""A spend log beside recorded engines: tenants share the bill of hours before their gateway was read."""

from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.agent.gateways import SpendLog
from pertoken.agent.history.run import import_spend_log
from pertoken.costs.spend import UNATTRIBUTED, Spend, spend
from pertoken.errors import BadInput
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import create, open_store
from pertoken.units import NANO_USD
from tests.scenario import LOW_BATCH_70B, seed
from tests.tenants import count, metric

END = 1_790_000_400 // 3600 * 3600 + 3600
MODEL, URL = LOW_BATCH_70B.model, "http://gw:4000"
OF = {"model": MODEL, "key": "alpha"}
HALF = {metric("prompt", **OF): 1800 * 160, metric("generated", **OF): 1800 * 40}
"""Half of the tokens of one hour of the scenario."""


@pytest.fixture
def where(tmp_path: Path) -> StoreLocation:
    return seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=END)


def bill(where: StoreLocation) -> dict[str, float]:
    total: Spend = spend(open_store(where), "tenant", 3, END, {})
    return {line.name: round(line.nano_usd / NANO_USD, 6) for line in total.lines}


def test_a_log_splits_the_dollars_of_the_hour_it_is_of(where: StoreLocation) -> None:
    stored = import_spend_log(SpendLog({END - 1800: HALF}, 1), URL, open_store(where), where)
    assert (stored.first_ts, stored.last_ts, stored.left_out_minutes) == (END - 1800, END - 1740, 0)
    assert stored.tokens == 1800 * 200
    assert bill(where) == {"alpha": 6.88, UNATTRIBUTED: 6.88}


def test_the_same_log_imported_again_changes_nothing_and_a_longer_one_adds_the_newer_rows(where: StoreLocation) -> None:
    quarter = {name: tokens // 2 for name, tokens in HALF.items()}
    log = SpendLog({END - 1800: quarter}, 1)
    for _ in range(2):
        stored = import_spend_log(log, URL, open_store(where), where)
    assert (stored.first_ts, stored.left_out_minutes) == (None, 1)
    longer = replace(log, tokens={**log.tokens, END - 600: quarter})
    assert import_spend_log(longer, URL, open_store(where), where).left_out_minutes == 1
    assert bill(where) == {"alpha": 6.88, UNATTRIBUTED: 6.88}


def test_a_gateway_read_by_page_and_by_log_is_counted_once(where: StoreLocation) -> None:
    count(where, END - 1800, {metric("prompt", **OF): 7})
    import_spend_log(SpendLog({END - 1800: HALF}, 1), URL, open_store(where), where)
    assert bill(where) == {"alpha": 6.88, UNATTRIBUTED: 6.88}


def test_without_recorded_engines_there_is_nothing_to_join_with(tmp_path: Path) -> None:
    empty = locate(str(tmp_path))
    create(empty)
    with pytest.raises(BadInput, match="no host was recorded"):
        import_spend_log(SpendLog({END: HALF}, 1), URL, open_store(empty), empty)
