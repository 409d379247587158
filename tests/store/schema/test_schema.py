"""Tables and the rows that fill them."""

from dataclasses import fields, is_dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import BigInteger, Column, MetaData, Table, create_engine, select

from pertoken.provenance import Provenance
from pertoken.store.schema import rows
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.shared import stable_id
from pertoken.store.schema.telemetry import HOUR, MINUTE, busy_ms, busy_provenance, integer, telemetry_table

parts = st.lists(st.one_of(st.text(), st.integers()), min_size=1, max_size=4).map(tuple)


def test_an_id_is_the_same_in_every_release() -> None:
    assert stable_id("host", "machine-1") == 287887408069595339


@given(parts, parts)
def test_ids_differ_where_their_parts_do(one: tuple[str | int, ...], other: tuple[str | int, ...]) -> None:
    same = tuple(map(str, one)) == tuple(map(str, other))
    assert (stable_id(*one) == stable_id(*other)) is same
    assert stable_id(*one) != 0


def test_a_separator_within_a_part_makes_another_id() -> None:
    keys = [("a\x1f", "b"), ("a", "\x1fb"), ("a\x1f\x1fb",), ("a\x1e", "b"), ("a", "\x1eb"), ("a\x1e\x1d", "b")]
    assert len({stable_id(*key) for key in keys}) == len(keys)


@pytest.mark.parametrize(
    ("row", "of"),
    [
        (rows.HostRow, t.host),
        (rows.DeviceRow, t.device),
        (rows.EngineRow, t.engine),
        (rows.DeploymentRow, t.deployment),
        (rows.HostSample, t.host_sample),
        (rows.DeploymentSample, t.deployment_sample),
        (rows.CounterState, t.counter_state),
    ],
)
def test_each_value_of_a_row_has_its_column(row: type, of: object) -> None:
    assert is_dataclass(row)
    columns = set(of.c.keys())  # type: ignore[attr-defined]
    assert {field.name for field in fields(row)} <= columns


def test_every_kind_of_sample_is_stored_in_a_table_with_its_owner_and_time() -> None:
    kinds = [getattr(rows, name) for name in dir(rows) if name.endswith(("Sample", "Share"))]
    assert set(kinds) == set(t.STORED_SAMPLES)
    for stored in t.STORED_SAMPLES.values():
        assert "ts" in stored.table.c


def test_roll_ups_have_a_table_for_the_minute_and_the_hour() -> None:
    assert set(t.device_rollup) == set(t.deployment_rollup) == {MINUTE, HOUR}
    assert t.device_rollup[MINUTE].name == "device_1m"


def test_sqlite_keeps_a_table_in_the_order_of_its_key_and_a_key_is_required() -> None:
    made = telemetry_table("test_schema_only", integer("owner_id", key=True), integer("value"))
    t.metadata.remove(made)
    assert made.schema == "telemetry"
    assert not made.dialect_options["sqlite"]["with_rowid"]
    assert (made.c.owner_id.nullable, made.c.value.nullable) == (False, True)


def test_an_engine_that_worked_without_a_time_of_its_own_was_busy_for_all_of_its_observed_time_at_most() -> None:
    kinds = [Column(name, BigInteger) for name in ("busy_ms", "observed_ms", "busy_provenance")]
    given_rows = [(5, 10, int(Provenance.COUNTER)), (None, 10, int(Provenance.BOUND)), (None, 10, None), (5, 10, None)]
    table = Table("rows", MetaData(), *kinds)
    with create_engine("sqlite://").connect() as connection:
        table.create(connection)
        connection.execute(table.insert(), [dict(zip(table.c.keys(), row, strict=True)) for row in given_rows])
        result = connection.execute(select(busy_ms(table.c), busy_provenance(table.c))).all()
    bound = int(Provenance.BOUND)
    assert [tuple(row) for row in result] == [(5, 0), (10, bound), (None, None), (5, bound)]
