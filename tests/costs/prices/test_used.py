from dataclasses import replace
from pathlib import Path

from pertoken.catalog.market import load_market
from pertoken.catalog.offers import newest
from pertoken.costs.prices.stored import offers_used_at, used_offers
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.store.write.writer import Writer
from tests.values import host_row, new_store, tick

END = 1_790_000_040


def test_the_offers_used_are_those_of_the_providers_that_hosts_run_at(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    with Writer(where) as writer:
        writer.commit(replace(tick(END), host=replace(host_row(), cloud="lambda")))
    store = open_store(where)
    assert {offer.provider for offer in used_offers(store, None, END + 60)} == {"lambda"}
    assert {offer.provider for offer in used_offers(store, "aws", END + 60)} == {"aws"}, "the setting names it"


def test_without_a_detected_provider_all_offers_are_used(tmp_path: Path) -> None:
    everything = newest(load_market().all_offers)
    assert offers_used_at(locate(str(tmp_path / "none")), None, END) == everything
    where = new_store(tmp_path / "unknown")
    with Writer(where) as writer:
        writer.commit(replace(tick(END), host=replace(host_row(), cloud=None)))
    assert offers_used_at(where, None, END + 60) == everything
