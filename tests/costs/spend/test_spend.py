"""The bill by tenant, team, model, host and device: lines that sum to it to the nano-dollar."""

from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.costs.report.fleet_report import fleet_report
from pertoken.costs.spend import BY, NO_OWNER, OTHER, UNALLOCATED, UNATTRIBUTED, Spend, spend, team_of
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store, open_store
from pertoken.units import NANO_USD
from pertoken.window.tenants import Tenant
from tests.scenario import LOW_BATCH_70B, Serving, seed
from tests.tenants import count, metric

END = 1_790_000_400 // 3600 * 3600 + 3600
MODEL = LOW_BATCH_70B.model
TOKENS = 3600 * 200
"""Of one hour of the scenario."""
HOURLY = 2 * 6.88
"""Dollars of the two devices that the model holds; the host has four."""


def tokens(share: float, **labels: str) -> dict[str, int]:
    counts = {"prompt": 160, "generated": 40}
    return {metric(word, **labels): round(3600 * per_s * share) for word, per_s in counts.items()}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    where = seed(tmp_path_factory.mktemp("spend"), LOW_BATCH_70B, gpus=4, usd_per_hour=6.88, minutes=120, end_ts=END)
    first = {**tokens(0.5, model=MODEL, team="alpha", key="alpha-prod"), **tokens(0.25, model=MODEL, key="k2")}
    second = {**tokens(0.25, model="x/Llama-3.3-70B-Instruct", team="alpha", key="alpha-dev")}
    count(where, END - 5400, {**first, **tokens(1, model="gpt-9", team="alpha")})
    count(where, END - 1800, second)
    return open_store(where)


def of(store: Store, by: str, **teams: str) -> Spend:
    return spend(store, by, 3, END, teams)


def dollars(report: Spend) -> dict[str, float]:
    return {line.name: line.nano_usd / NANO_USD for line in report.lines}


@pytest.mark.parametrize("by", BY)
def test_lines_sum_to_the_bill_of_the_same_time(store: Store, by: str) -> None:
    report = of(store, by)
    bill = fleet_report(store, 2 * 3600, END).bill
    assert bill is not None
    assert report.nano_usd == bill.paid
    assert sum(line.nano_usd for line in report.lines) == bill.paid
    assert min(line.nano_usd for line in report.lines) >= 0


def test_tenants_pay_by_their_tokens_of_each_hour_and_the_rest_is_unattributed(store: Store) -> None:
    assert dollars(of(store, "tenant")) == pytest.approx(
        {
            "alpha / alpha-prod": 0.5 * HOURLY,
            "k2": 0.25 * HOURLY,
            "alpha / alpha-dev": 0.25 * HOURLY,
            UNATTRIBUTED: HOURLY,
            UNALLOCATED: 4 * 6.88,
        }
    )
    lines = {line.name: line for line in of(store, "tenant").lines}
    assert lines["alpha / alpha-prod"].tokens == TOKENS // 2
    assert lines[UNATTRIBUTED].tokens == TOKENS


def test_teams_are_those_of_the_gateway_or_as_set_for_a_key(store: Store) -> None:
    assert dollars(of(store, "team", k2="search"))["search"] == pytest.approx(0.25 * HOURLY)
    assert dollars(of(store, "team"))["alpha"] == pytest.approx(0.75 * HOURLY)
    assert team_of(Tenant("alpha", "k", "space", "u"), {"space": "b", "k": "a"}) == "a"
    assert team_of(Tenant("alpha", "k", "space", "u"), {"alpha": "c"}) == "c"
    assert team_of(Tenant(None, "k"), {}) is None


def test_models_hosts_and_devices_have_lines_of_their_own(store: Store) -> None:
    assert dollars(of(store, "model")) == pytest.approx({MODEL: 2 * HOURLY, UNALLOCATED: 4 * 6.88})
    assert len(of(store, "gpu").lines) == 4
    assert OTHER not in dollars(of(store, "model"))


def test_shares_by_tokens_alone_are_marked_as_unweighted_with_the_reason(store: Store) -> None:
    report = of(store, "tenant")
    marked = {line.name for line in report.lines if line.unweighted}
    assert marked == {"alpha / alpha-prod", "k2", "alpha / alpha-dev"}
    assert report.notes[0].startswith(f"{MODEL}: shares are unweighted")


def test_shares_weigh_each_kind_of_token_by_the_device_time_that_it_took(tmp_path: Path) -> None:
    serving = replace(LOW_BATCH_70B, prefill=0.25, cached=0.5)
    where = seed(tmp_path, serving, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=END)
    prompt, generated = 3600 * 160, 3600 * 40
    own = {"model": MODEL, "team": "agents"}
    counts = {"prompt": prompt * 3 // 4, "cached": prompt // 2, "generated": generated // 4, "reasoning": 9}
    count(where, END - 1800, {metric(word, **own): number for word, number in counts.items()})
    other = {"prompt": prompt // 4, "generated": generated * 3 // 4, "audio": 3, "prompt_audio": 4}
    pictures = metric("images", model=MODEL, team="chat").replace("_tokens", "")
    count(where, END - 1600, {pictures: 6, pictures.replace("images", "video_ms"): 2_500})
    count(where, END - 1700, {metric(word, model=MODEL, team="chat"): number for word, number in other.items()})
    report = spend(open_store(where), "team", 2, END, {})
    # Each team computed half of the prompts; a quarter of the time was prefill.
    assert dollars(report) == pytest.approx(
        {"agents": (0.25 / 2 + 0.75 / 4) * HOURLY, "chat": (0.25 / 2 + 0.75 * 3 / 4) * HOURLY, UNATTRIBUTED: 0}
    )
    lines = {line.name: line for line in report.lines}
    assert not any(line.unweighted for line in report.lines)
    assert (lines["agents"].cached_tokens, lines["agents"].reasoning_tokens) == (prompt // 2, 9)
    assert (lines["chat"].cached_tokens, lines["chat"].audio_tokens) == (0, 7)
    assert [(lines[name].images, lines[name].video_ms) for name in ("agents", "chat")] == [(0, 0), (6, 2_500)]


def test_models_that_no_engine_here_serves_are_named(store: Store) -> None:
    *_, note = of(store, "tenant").notes
    assert note.startswith("gpt-9: gateways counted 720k tokens, and no engine here serves it.")


def test_a_gateway_is_no_deployment_on_any_screen(store: Store) -> None:
    report = fleet_report(store, 2 * 3600, END)
    assert [deployment.model for deployment in report.deployments] == [MODEL]


def test_without_a_gateway_all_is_unattributed_and_that_is_explained(tmp_path: Path) -> None:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=END)
    report = spend(open_store(where), "team", 2, END, {})
    assert dollars(report) == pytest.approx({UNATTRIBUTED: HOURLY})
    assert "[[gateways]]" in report.notes[0]


def test_without_a_price_there_are_tokens_and_no_dollars(tmp_path: Path) -> None:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=60, end_ts=END)
    count(where, END - 1800, tokens(0.5, model=MODEL, team="alpha"))
    report = spend(open_store(where), "team", 2, END, {})
    assert report.nano_usd is None
    assert {line.name: line.tokens for line in report.lines} == {"alpha": TOKENS // 2, UNATTRIBUTED: TOKENS // 2}


def test_a_gateway_that_is_read_under_two_names_is_counted_once_and_named(tmp_path: Path) -> None:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=4, usd_per_hour=6.88, minutes=120, end_ts=END)
    for url in ("http://gw:4000", "http://gw.internal:4000"):
        for ts in (END - 5400, END - 1800):
            count(where, ts, tokens(0.5, model=MODEL, key="a"), url=url, life=-5)
    report = of(open_store(where), "tenant")
    assert dollars(report) == pytest.approx({"a": HOURLY, UNATTRIBUTED: HOURLY, UNALLOCATED: 2 * HOURLY})
    *_, note = report.notes
    assert note.startswith("http://gw.internal:4000 and http://gw:4000 are one gateway")


def in_pod(workload: str | None) -> Serving:
    owner = {} if workload is None else {"workload": workload, "label:team": workload[-1], "job": "7"}
    return replace(LOW_BATCH_70B, knobs={**LOW_BATCH_70B.knobs, **owner})


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> Store:
    where: Path | StoreLocation = tmp_path_factory.mktemp("owned")
    pods = {"a": "Deployment prod/llama", "b": "Deployment dev/llama", "c": "? prod/?", "d": None}
    for host, workload in pods.items():
        where = seed(where, in_pod(workload), gpus=3, usd_per_hour=6.88, minutes=60, end_ts=END, host=host)
    assert isinstance(where, StoreLocation)
    return open_store(where)


@pytest.mark.parametrize(
    ("by", "lines"),
    [
        ("namespace", {"prod": 2, "dev": 1, NO_OWNER: 1}),
        ("workload", {"prod/llama": 1, "dev/llama": 1, NO_OWNER: 2}),
        ("label:team", {"a": 2, "?": 1, NO_OWNER: 1}),
        ("job", {"7": 3, NO_OWNER: 1}),
    ],
)
def test_owners_pay_for_their_deployments_and_what_has_none_is_a_line(
    owned: Store, by: str, lines: dict[str, int]
) -> None:
    report = of(owned, by)
    hours = {name: HOURLY * n for name, n in lines.items()}
    assert dollars(report) == pytest.approx({**hours, UNALLOCATED: 4 * 6.88})
    assert sum(line.nano_usd for line in report.lines) == report.nano_usd
    assert {line.name: line.tokens for line in report.lines[:-1]} == {name: TOKENS * n for name, n in lines.items()}
    assert [line.name for line in report.lines[-2:]] == [NO_OWNER, UNALLOCATED]
    assert not report.notes


def test_a_bill_of_which_no_deployment_has_an_owner_explains_it(store: Store) -> None:
    report = of(store, "namespace")
    assert dollars(report) == pytest.approx({NO_OWNER: 2 * HOURLY, UNALLOCATED: 4 * 6.88})
    assert report.notes == ["No deployment of this time has a namespace that the agent could read (docs/gateways.md)."]
