"""No question that a screen asks reads all of what grows: each finds its rows by their owner and their time."""

import re
from collections.abc import Callable
from contextlib import closing

import pytest
from sqlalchemy import BigInteger, column, event, func, select, values

from pertoken.advisor.present import present
from pertoken.catalog.market import load_market
from pertoken.costs.hours import hourly
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.store.connect import sqlite
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store, open_store, writing
from pertoken.store.query.read import first_and_last
from pertoken.store.query.rollups import MAX_SUM, whole
from pertoken.store.schema.telemetry import agent_sample
from pertoken.store.write.rollup import ROLLUPS
from tests.scenario import LOW_BATCH_70B, seed

END = 1_790_000_400
GROWING = {agent_sample.name, *(rollup.samples.name for rollup in ROLLUPS)} | {
    table.name for rollup in ROLLUPS for table in rollup.tables.values()
}


def history(store: Store) -> None:
    with store.read() as connection:
        first_and_last(connection)


ASKED: dict[str, Callable[[Store], object]] = {
    "the fleet over an hour": lambda store: fleet_report(store, 3600, END).whole(),
    "the fleet over a week": lambda store: fleet_report(store, 7 * 86_400, END).whole(),
    "dollars by model and hour": lambda store: hourly(store, 24, END),
    "what rules are given": lambda store: present(store, load_market(), 86_400, END),
    "since when there is anything": history,
}


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> StoreLocation:
    return seed(tmp_path_factory.mktemp("plans"), LOW_BATCH_70B, gpus=2, usd_per_hour=2.5, minutes=70, end_ts=END)


@pytest.mark.parametrize("asked", ASKED)
def test_nothing_that_grows_is_read_whole(where: StoreLocation, asked: str) -> None:
    store = open_store(where)
    asks: list[str] = []  # as SQLite gets them, whoever sends them
    event.listen(store.telemetry, "connect", lambda connection, _: connection.set_trace_callback(asks.append))
    ASKED[asked](store)
    plans: list[str] = []
    with closing(sqlite.connect(where.file("telemetry"), "telemetry", "ro")) as connection:
        for statement in asks:
            if statement.startswith("SELECT"):
                steps = connection.execute(f"EXPLAIN QUERY PLAN {statement}")
                plans += [f"{detail}  <- {' '.join(statement.split())}" for *_, detail in steps]
    read = [
        (*match.groups(), plan) for plan in plans if (match := re.match(r"(SCAN|SEARCH) (?:telemetry\.)?(\w+)", plan))
    ]
    grows = [(how, plan) for how, table, plan in read if table.removesuffix("_1") in GROWING]
    assert grows, "nothing that grows was asked for: the test looks at the wrong statements"
    assert not [plan for how, plan in grows if how == "SCAN"]
    # By its time, or the newest of an owner: never all of an owner's rows.
    assert not [plan for _, plan in grows if "ts>" not in plan and "ts<" not in plan and "max(" not in plan.lower()]


def test_a_sum_beyond_64_bits_is_the_largest_sum_and_ends_no_statement(server: StoreLocation) -> None:
    numbers = values(column("n", BigInteger), name="numbers").data([(2**62,)] * 3)
    few = values(column("n", BigInteger), name="few").data([(2,), (None,), (3,)])
    with writing(server, "telemetry").connect() as connection:
        assert connection.execute(select(whole(func.sum(numbers.c.n)))).scalar_one() == MAX_SUM
        assert connection.execute(select(whole(func.sum(few.c.n)))).scalar_one() == 5
