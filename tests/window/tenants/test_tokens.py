"""Stored counters of tenants are read back as what they were."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import create, open_store
from pertoken.window.reading import Window
from pertoken.window.tenants import Tenant, TenantTokens, parse_metric
from tests.fleet.servers import NOW, host, local_rows, login, server_rows, shipper
from tests.tenants import count, metric

_NAMES = st.one_of(st.none(), st.text(min_size=1, max_size=20))


@given(model=_NAMES, team=_NAMES, key=_NAMES, user=_NAMES)
def test_a_metric_names_model_and_tenant_whatever_their_names_hold(
    model: str | None, team: str | None, key: str | None, user: str | None
) -> None:
    labels = {"key": key, "model": model, "team": team, "user": user}
    pairs = ",".join(f"{n}={json.dumps(v, ensure_ascii=False)}" for n, v in labels.items() if v is not None)
    assert parse_metric(f"tenant_prompt_tokens{{{pairs}}}") == (
        "tenant_prompt_tokens",
        model,
        Tenant(team, key, None, user),
    )


def test_other_metrics_are_no_tenants() -> None:
    assert parse_metric('requests_finished{reason="stop"}') is None
    assert parse_metric("prefix_hits") is None


def test_a_gateway_that_two_hosts_read_is_counted_once_as_the_host_has_it_that_saw_more(tmp_path: Path) -> None:
    where = locate(str(tmp_path))
    create(where)
    labels = {"model": "m", "key": "a"}
    for name, tokens in (("one", 100), ("two", 90)):
        count(where, NOW - 600, {metric("prompt", **labels): tokens}, host=name, url="http://gw:4000")
        count(where, NOW - 600, {metric("generated", **labels): 7}, host=name, url="http://127.0.0.1:4000")
    with open_store(where).read() as connection:
        (tenant_tokens,) = Window(connection, NOW // 3600 * 3600, NOW).tenant_tokens().rows
    # At loopback each host has a gateway of its own.
    assert (tenant_tokens.prompt_tokens, tenant_tokens.generated_tokens) == (100, 14)


def test_tokens_of_tenants_are_shipped_and_read_at_the_server_as_they_are_here(
    owner_url: str, server: StoreLocation, let_in: str, tmp_path: Path
) -> None:
    where = host(tmp_path, host="ship-tenants", minutes=30)
    labels = {"model": "of-ship-tenants", "team": "a"}
    count(where, NOW - 3600, {metric("prompt", **labels): 7, metric("generated", **labels): 5}, host="ship-tenants")
    count(where, NOW - 600, {metric("prompt", **labels): 70}, host="ship-tenants")
    shipper(where, login(owner_url, let_in)).round()
    assert server_rows(server, where) == local_rows(where)
    hour = NOW // 3600 * 3600
    for place in (where, server):
        with open_store(place).read() as connection:
            tokens = Window(connection, hour - 3600, NOW).tenant_tokens().rows
        assert [row for row in tokens if row.model == "of-ship-tenants"] == [
            TenantTokens(hour - 3600, "of-ship-tenants", Tenant(team="a"), 7, 5),
            TenantTokens(hour, "of-ship-tenants", Tenant(team="a"), 70, 0),
        ], place
