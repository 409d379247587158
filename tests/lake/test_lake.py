"""A lake holds every hour of its databases once, and answers as their bills do, to the nano-dollar."""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pertoken.costs.bill import bill
from pertoken.costs.hours import model_hours
from pertoken.costs.ledger import KindDollars, TokenCounts, kind_prices
from pertoken.costs.lines import USES
from pertoken.errors import BadInput, StoreError
from pertoken.lake import publish, questions
from pertoken.lake.manifest import LakeFiles, Manifest, ManifestFault, cell_name, day_of, parse, start_of
from pertoken.lake.publish import DRAFT_US, DayOutcome, forget, prune
from pertoken.lake.questions import VIEWS, LakeSession, engine
from pertoken.lake.reading import (
    COSTS,
    MAX_NANO_USD,
    OWNERS,
    Range,
    all_days,
    inventory,
    published_days,
    schema,
    verified,
)
from pertoken.store.connect.open import Store
from pertoken.text.lake import with_kind_prices
from pertoken.units import MTOK, NANO_USD
from tests.costs.test_any_history import START, History, histories, recorded, stored
from tests.examples import examples
from tests.lake.lakes import CLOCK, DAY, END, HOUR, asked, day_files, files_of, host, paid, published
from tests.scenario import LOW_BATCH_70B
from tests.values import new_store, set_price

TODAY = day_of(END)
OWNED_BY = ("namespace", "workload", "job", "label:team", "slice")


@pytest.fixture(scope="module")
def five_hours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one host of five hours over midnight, `db`, published in `lake`."""
    folder = tmp_path_factory.mktemp("five-hours")
    published(host(folder / "db"), folder / "lake")
    return folder


@pytest.fixture
def lake(five_hours: Path, tmp_path: Path) -> Path:
    """A copy of that lake for one test, with its database beside it."""
    for name in ("db", "lake"):
        shutil.copytree(five_hours / name, tmp_path / name)
    return tmp_path / "lake"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_store(tmp_path_factory.mktemp("empty")).file("telemetry").parent


def bills(
    store: Store, start: int, end: int
) -> tuple[Counter[str], dict[str, tuple[int, int]], Mapping[str, Counter[str]]]:
    """Return the dollars of each day's bill by use, dollars and tokens by model as the hours screen has them, and
    dollars of each owner by basis."""
    by_use, by_model = Counter[str](), Counter[tuple[str, str]]()
    by_owner: dict[str, Counter[str]] = {basis: Counter() for basis in OWNED_BY}
    for begin in range(start // DAY * DAY, end, DAY):
        with bill(store, begin, min(begin + DAY, end)) as priced:
            total = priced.money.bill()
            by_use.update({use: getattr(total, use) for use in USES} if total else {})
            for basis in OWNED_BY:
                owners = priced.inventory.owners(basis)
                for epoch_id, usd in priced.money.by_epoch.items():
                    by_owner[basis][owners[epoch_id] or ""] += usd
            for model, hours in model_hours(priced).items():
                for hour in hours:
                    if hour is not None and hour.nano_usd is not None and hour.tokens is not None:
                        by_model[model, "usd"] += hour.nano_usd - hour.uncounted_nano_usd
                        by_model[model, "tokens"] += hour.tokens
    models = {model for model, _ in by_model}
    tokens_of = {model: (by_model[model, "usd"], by_model[model, "tokens"]) for model in models}
    return by_use, tokens_of, by_owner


def _held(row: Mapping[str, Any]) -> int:
    """Return what deployments held of a line of the bill."""
    return (row["busy_nano_usd"] or 0) + (row["idle_nano_usd"] or 0)


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=histories)
def test_a_lake_answers_as_the_bills_of_its_database_whatever_happens_at_once(
    history: History, empty: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    shutil.copytree(empty, folder / "db")
    ticks = [tick for tick, _ in recorded(history)]
    store = stored(folder / "db", ticks, (), history)
    end = ticks[-1].ts // HOUR * HOUR
    for cell in ("one", "two"):
        published(store, folder / "lake", cell, now_ts=end + 300)
    if end <= START:
        return
    by_use, by_model, by_owner = bills(store, START // HOUR * HOUR, end)
    rows = asked(folder / "lake", partial(questions.dollars, by=["cell"]), end=end)
    seen = {row["cell"]: {use: row[f"{use}_nano_usd"] for use in USES} for row in rows if row["nano_usd"]}
    expected = {use: by_use[use] for use in USES}
    assert seen == ({cell: expected for cell in ("one", "two")} if sum(by_use.values()) else {})
    kinds = asked(folder / "lake", partial(questions.by_kind, by="cell"), end=end)
    all_kinds = {sum(row[f"{kind}_nano_usd"] for kind in KindDollars.NAMES) for row in kinds}
    assert all_kinds <= {by_use["busy"] + by_use["idle"]}
    for basis, owed in by_owner.items():
        rows = asked(folder / "lake", partial(questions.dollars, by=["cell", basis]), end=end)
        key = basis if basis in questions.GROUPS else "owner"
        paid_by = Counter({(row["cell"], row[key] or ""): _held(row) for row in rows})
        assert +paid_by == +Counter({(cell, owner): usd for cell in ("one", "two") for owner, usd in owed.items()})
    known = asked(folder / "lake", partial(questions.per_mtok, by="model"), end=end)
    found = {row["model"]: (row["nano_usd"], row["prompt_tokens"] + row["generated_tokens"]) for row in known}
    assert found == {model: (2 * usd, 2 * tokens) for model, (usd, tokens) in by_model.items()}


def test_hours_outside_the_range_are_in_no_answer(lake: Path) -> None:
    two_hours = paid(lake, start=END - 2 * HOUR, end=END)
    assert two_hours == 2 * 4 * 2_000_000_000
    by_hour = asked(lake, partial(questions.dollars, by=["day", "hour"]), start=END - 3 * HOUR)
    assert [(row["day"], row["hour"]) for row in sorted(by_hour, key=lambda row: (row["day"], row["hour"]))] == [
        (str(TODAY - timedelta(1)), 23), (str(TODAY), 0), (str(TODAY), 1),
    ]  # fmt: skip


def test_publishing_again_changes_no_byte(tmp_path: Path, lake: Path) -> None:
    before = files_of(lake)
    assert {day.outcome for day in published(host(tmp_path / "db"), lake)} == {DayOutcome.UNCHANGED}
    assert files_of(lake) == before


def test_a_past_price_that_changes_publishes_its_days_again_however_old(tmp_path: Path, lake: Path) -> None:
    store, later = host(tmp_path / "db"), END + 40 * DAY
    first = paid(lake)
    set_price(store.location, "H100", 3_000_000_000)
    changed = [day.day for day in published(store, lake, now_ts=later) if day.outcome is DayOutcome.CHANGED]
    assert {TODAY, TODAY - timedelta(1)} <= set(changed)
    assert paid(lake) * 2 == first * 3


def test_an_hour_under_way_is_published_once_it_is_closed(tmp_path: Path) -> None:
    store, lake = host(tmp_path / "db", hours=2, end_ts=END + 1800), tmp_path / "lake"
    published(store, lake, now_ts=END + 1900)
    assert paid(lake, end=END + HOUR) == 1.5 * 4 * 2_000_000_000
    outcomes = [day.outcome for day in published(store, lake, now_ts=END + HOUR + 300)]
    assert outcomes[-1] is DayOutcome.CHANGED
    assert paid(lake, end=END + HOUR) == 2 * 4 * 2_000_000_000


def test_a_day_is_kept_where_the_database_lost_hours_of_it(tmp_path: Path, lake: Path) -> None:
    fewer, before = host(tmp_path / "restored", hours=3), paid(lake)
    assert DayOutcome.KEPT in {day.outcome for day in published(fewer, lake)}
    assert paid(lake) == before
    published(fewer, lake, fewer=True)
    assert paid(lake) < before


class Broken(LakeFiles):
    """A lake that fails at one write, before it or in the middle of it."""

    def __init__(self, url: str, at: int) -> None:
        super().__init__(url)
        self.at = at

    def write(self, path: str, content: bytes) -> None:
        self.at -= 1
        if self.at == 0:
            raise StoreError("no space left")
        super().write(path, content)


@pytest.mark.parametrize("at", range(1, 16))
def test_a_publisher_that_fails_at_any_write_leaves_the_old_day_or_the_new_one(
    at: int, tmp_path: Path, lake: Path
) -> None:
    store, old = host(tmp_path / "db"), paid(lake)
    set_price(store.location, "H100", 4_000_000_000)
    try:
        published(store, Broken(str(lake), at))
    except StoreError:
        by_day = {
            row["day"]: row["nano_usd"] / row_hours(row["day"]) / 4
            for row in asked(lake, partial(questions.dollars, by=["day"]))
        }
        assert set(by_day.values()) <= {2_000_000_000, 4_000_000_000}
    published(store, lake)
    assert paid(lake) == 2 * old


def row_hours(day: str) -> int:
    return 2 if day == str(TODAY) else 3


def test_of_two_publishers_the_one_that_read_later_counts_whichever_wrote_last(tmp_path: Path, lake: Path) -> None:
    store = host(tmp_path / "db")
    early, late = tmp_path / "early", tmp_path / "late"
    published(store, early)
    set_price(store.location, "H100", 5_000_000_000)
    published(store, late)
    merged = tmp_path / "merged"
    for source in (late, early):  # the early one's files arrive last
        shutil.copytree(source, merged, dirs_exist_ok=True)
    assert paid(merged) == paid(late) != paid(early)


def test_sums_go_beyond_64_bits(lake: Path) -> None:
    file = next(day_files(lake, COSTS))
    table = pq.read_table(file)
    table = pa.concat_tables([table] * (10_000 // table.num_rows))
    dear = pa.array([MAX_NANO_USD] * table.num_rows, pa.int64())
    replace_file(file, table.set_column(table.column_names.index("nano_usd"), schema(COSTS).field("nano_usd"), dear))
    rest = 2 * 4 * 2_000_000_000
    assert paid(lake) == table.num_rows * MAX_NANO_USD + rest > 2**63


def replace_file(file: Path, table: pa.Table) -> None:
    """Put other rows in the place of a file, as the owner of a cell can: with a manifest that names them."""
    content = pa.BufferOutputStream()
    pq.write_table(table, content)
    with_content(file, content.getvalue().to_pybytes(), table.num_rows)


def with_content(file: Path, content: bytes, rows: int) -> None:
    from dataclasses import replace

    from pertoken.lake.manifest import DayFile, digest

    folder, table = file.parent, file.name.partition("-")[0]
    old = current(folder)
    name = f"{table}-{digest(content)[:32]}.parquet"
    file.unlink()
    (folder / name).write_bytes(content)
    kept = [known for known in old.files if known.table != table]
    made = replace(
        old,
        read_us=next(CLOCK),
        files=(*kept, DayFile(table, name, rows, len(content), digest(content))),
    )
    (folder / made.name()).write_bytes(made.content())


def current(folder: Path) -> Any:
    newest = max(folder.glob("manifest-*.json"))
    cell, day = folder.parent.name.removeprefix("cell="), date.fromisoformat(folder.name.removeprefix("day="))
    return parse(newest.read_bytes(), newest.name, cell, day)


HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "other bytes": lambda content: b"PAR1" + bytes(len(content) - 8) + b"PAR1",
    "a changed page": lambda content: content[:40] + bytes([content[40] ^ 255]) + content[41:],
}


@pytest.mark.parametrize("damage", HOSTILE)
@pytest.mark.parametrize("is_named", [False, True], ids=["the manifest states the old bytes", "it states these bytes"])
def test_a_damaged_file_is_its_own_days_fault_and_the_rest_is_answered(
    damage: str, is_named: bool, tmp_path: Path, lake: Path
) -> None:
    published(host(tmp_path / "db"), lake, "two")
    one = next(file for file in day_files(lake, COSTS) if "cell=one" in str(file))
    content = HOSTILE[damage](one.read_bytes())
    if is_named:
        with_content(one, content, pq.read_metadata(one).num_rows)
    else:
        one.write_bytes(content)
    days = verified(all_days(LakeFiles(str(lake))))
    assert [(fault.cell, str(fault.day)) for fault in days.faults] in ([("one", str(TODAY - timedelta(1)))], [])
    with LakeSession(str(lake), Range(END - 5 * HOUR, END), "duckdb") as session:
        rows = {row["cell"]: row["nano_usd"] for row in session.rows(partial(questions.dollars, by=["cell"]))}
        assert rows["two"] == 5 * 4 * 2_000_000_000
        if days.faults:
            verified_all = {(fault.cell, str(fault.day)) for fault in session.coverage.faults}
            assert verified_all <= {("one", str(TODAY - timedelta(1)))}
            assert rows["one"] == (2 if verified_all else 5) * 4 * 2_000_000_000


def other_columns(table: pa.Table) -> pa.Table:
    return table.drop_columns(["use"])


def negative(table: pa.Table) -> pa.Table:
    wrong = pa.array([-1] * table.num_rows, pa.int64())
    return table.set_column(table.column_names.index("nano_usd"), schema(COSTS).field("nano_usd"), wrong)


def of_another_cell(table: pa.Table) -> pa.Table:
    return table.append_column("cell", pa.array(["two"] * table.num_rows))


def beyond_the_day(table: pa.Table) -> pa.Table:
    wrong = pa.array([99] * table.num_rows, pa.int8())
    return table.set_column(0, schema(COSTS).field("hour"), wrong)


def text_for_dollars(table: pa.Table) -> pa.Table:
    wrong = pa.array(["$1"] * table.num_rows)
    return table.set_column(table.column_names.index("nano_usd"), "nano_usd", wrong)


def unknown_use(table: pa.Table) -> pa.Table:
    wrong = pa.array(["\x1b[31mred"] * table.num_rows)
    return table.set_column(table.column_names.index("use"), schema(COSTS).field("use"), wrong)


@pytest.mark.parametrize(
    "forge", [other_columns, negative, of_another_cell, beyond_the_day, text_for_dollars, unknown_use]
)
def test_a_cell_that_publishes_what_no_bill_holds_changes_no_other_cell(forge: Any, tmp_path: Path, lake: Path) -> None:
    published(host(tmp_path / "db"), lake, "two")
    one = next(file for file in day_files(lake, COSTS) if "cell=one" in str(file))
    replace_file(one, forge(pq.read_table(one)))
    with LakeSession(str(lake), Range(END - 5 * HOUR, END), "duckdb") as session:
        rows = {row["cell"]: row["nano_usd"] for row in session.rows(partial(questions.dollars, by=["cell"]))}
        assert rows == {"one": 2 * 4 * 2_000_000_000, "two": 5 * 4 * 2_000_000_000}
        assert [(fault.cell, fault.day) for fault in session.coverage.faults] == [("one", TODAY - timedelta(1))]


@settings(max_examples=examples(200), deadline=None)
@given(content=st.binary(max_size=300), name=st.text(max_size=60))
def test_no_bytes_are_taken_for_a_manifest(content: bytes, name: str) -> None:
    with pytest.raises(ManifestFault):
        parse(content, name, "one", TODAY)


def test_a_manifest_of_another_cell_or_day_or_with_a_path_is_refused(lake: Path) -> None:
    folder = lake / "cell=one" / f"day={TODAY}"
    made, newest = current(folder), max(folder.glob("manifest-*.json"))
    with pytest.raises(ManifestFault, match="another cell or day"):
        parse(newest.read_bytes(), newest.name, "two", TODAY)
    with pytest.raises(ManifestFault, match="another cell or day"):
        parse(newest.read_bytes(), newest.name, "one", TODAY - timedelta(1))
    forged = replace(made, files=(replace(made.files[0], name="../../cell=two/x.parquet"),))
    with pytest.raises(ManifestFault, match="none of a lake"):
        parse(forged.content(), forged.name(), "one", TODAY)
    late = replace(made, version=3)
    with pytest.raises(ManifestFault, match="reads layout 2"):
        parse(late.content(), late.name(), "one", TODAY)


def test_a_missing_file_and_a_damaged_manifest_are_named(tmp_path: Path, lake: Path) -> None:
    published(host(tmp_path / "db"), lake, "two")
    published(host(tmp_path / "db"), lake, "three")
    next(file for file in day_files(lake, COSTS) if "cell=one" in str(file)).unlink()
    manifest = max((lake / "cell=two" / f"day={TODAY}").glob("manifest-*.json"))
    manifest.write_bytes(manifest.read_bytes()[:-10])
    reasons = {fault.cell: fault.reason for cell in inventory(LakeFiles(str(lake))) for fault in cell.faults}
    assert reasons["one"].endswith("is missing") and "damaged" in reasons["two"] and "three" not in reasons


def test_days_at_the_end_of_a_month_are_found_and_other_folders_are_not(tmp_path: Path) -> None:
    for folder in ("day=2026-01-31", "day=2026-01-29", "day=2026-02-30", "day=20260101", "2026-01-01", "day="):
        (tmp_path / "cell=one" / folder).mkdir(parents=True)
    assert published_days(LakeFiles(str(tmp_path)), "one") == [date(2026, 1, 29), date(2026, 1, 31)]


def test_an_inventory_reaches_to_the_last_day_of_a_month(tmp_path: Path) -> None:
    files, day = LakeFiles(str(tmp_path)), date(2026, 1, 31)
    publish.write_day(files, Manifest("one", day, start_of(day) + DAY, 1, "", 0, ()), {}, ())
    assert [cell.n_days for cell in inventory(files)] == [1]


def test_a_name_is_deleted_from_every_day_and_stays_out_and_the_bill_still_adds_up(tmp_path: Path, lake: Path) -> None:
    store, before = host(tmp_path / "db"), paid(lake)
    model = asked(lake, partial(questions.dollars, by=["model"]))[0]["model"]
    assert any(model.encode() in content for content in files_of(lake).values())
    assert len(list(forget(LakeFiles(str(lake)), "model", model, next(CLOCK)))) == 2
    published(store, lake)
    assert not any(model.encode() in content for content in files_of(lake).values())
    assert paid(lake) == before
    names = {row["model"] for row in asked(lake, partial(questions.dollars, by=["model"]))}
    assert publish.HIDDEN in names and model not in names


OWNERS_OF_A_HOST = {"label:team": "search", "label:acme.io/tier": "gold", "job": "batch-470011", "job:user": "lovelace"}


def test_dollars_and_tokens_are_grouped_by_labels_jobs_and_users(tmp_path: Path) -> None:
    published(host(tmp_path / "one", knobs=OWNERS_OF_A_HOST), tmp_path / "lake")
    published(host(tmp_path / "two"), tmp_path / "lake", "two")
    held = 5 * 2 * 2_000_000_000
    for basis, name in OWNERS_OF_A_HOST.items():
        rows = asked(tmp_path / "lake", partial(questions.dollars, by=[basis]))
        assert {row["owner"]: _held(row) for row in rows} == {name: held, None: held}
        tokens = asked(tmp_path / "lake", partial(questions.per_mtok, by=basis))
        (first, second) = ((row["nano_usd"], row["generated_tokens"]) for row in tokens)
        assert first == second and first[1] > 0 and {row["owner"] for row in tokens} == {name, None}
    (row,) = asked(tmp_path / "lake", partial(questions.dollars, by=["slice"]))
    assert row["owner"] is None and row["nano_usd"] == 2 * paid(tmp_path / "lake") / 2


def test_a_forged_second_owner_of_an_epoch_counts_no_line_twice(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    published(host(tmp_path / "one", knobs=OWNERS_OF_A_HOST), lake)
    before = paid(lake)
    for file in list(day_files(lake, OWNERS)):
        rows = pq.read_table(file)
        forged = pa.Table.from_pylist([{**row, "owner": "zed"} for row in rows.to_pylist()], schema=rows.schema)
        replace_file(file, pa.concat_tables([rows, forged]))
    rows = asked(lake, partial(questions.dollars, by=["job:user"]))
    assert sum(row["nano_usd"] for row in rows) == before


@pytest.mark.parametrize("basis", ["label:team", "job:user"])
def test_an_owner_is_deleted_from_every_day_with_the_names_beside_it(basis: str, tmp_path: Path) -> None:
    store, lake = host(tmp_path / "db", knobs=OWNERS_OF_A_HOST), tmp_path / "lake"
    published(store, lake)
    before, name = paid(lake), OWNERS_OF_A_HOST[basis]
    assert any(name.encode() in content for content in files_of(lake).values())
    assert len(list(forget(LakeFiles(str(lake)), basis, name, next(CLOCK)))) == 2
    published(store, lake)
    assert not any(
        text.encode() in content for content in files_of(lake).values() for text in OWNERS_OF_A_HOST.values()
    )
    assert paid(lake) == before
    owners = {row["owner"] for row in asked(lake, partial(questions.dollars, by=[basis]))}
    assert owners == {publish.HIDDEN, None}


def test_the_price_of_each_kind_of_token_is_that_of_the_database(tmp_path: Path) -> None:
    store, lake = host(tmp_path / "db", load=replace(LOW_BATCH_70B, prefill=0.3, cached=0.25)), tmp_path / "lake"
    published(store, lake)
    (row,) = asked(lake, partial(questions.by_kind, by="model"), start=END // DAY * DAY)
    with bill(store, END // DAY * DAY, END) as priced:
        (deployment_id,) = priced.kinds
        totals = priced.totals.of(deployment_id)
        tokens = TokenCounts(*(totals[f"{kind}_tokens"] for kind in TokenCounts._fields))
        prices = kind_prices(priced.kinds[deployment_id], tokens)
    shown = with_kind_prices(row)
    assert [bool(price.value) for price in prices.values()] == [True, False, True]
    for name, price in prices.items():
        assert shown[name.replace("_usd_", "_nano_usd_")] == round((price.value or 0) * NANO_USD)


def test_a_file_that_a_killed_publisher_left_incomplete_is_deleted_a_day_later_and_no_younger_one(
    lake: Path,
) -> None:
    files, now_us = LakeFiles(str(lake)), time.time_ns() // 1000
    drafts = [lake / "cell=one" / name for name in (f"day={TODAY}/.costs-0a.parquet.4711", ".forgotten.json.4711")]
    for draft in drafts:
        draft.write_bytes(b"PAR1")
    before = paid(lake)
    list(prune(files, None, now_us))
    assert all(draft.exists() for draft in drafts), "a publisher may be at work on them"
    list(prune(files, None, now_us + DRAFT_US + 1_000_000))
    assert not any(draft.exists() for draft in drafts)
    assert paid(lake) == before and not verified(all_days(files)).faults


def test_a_publisher_whose_draft_was_deleted_fails_and_leaves_its_day_as_it_was(
    tmp_path: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, before = host(tmp_path / "db"), paid(lake)
    set_price(store.location, "H100", 3_000_000_000)
    rename = Path.replace

    def deleted_before(draft: Path, target: Path) -> Path:
        draft.unlink()
        return rename(draft, target)

    monkeypatch.setattr(Path, "replace", deleted_before)
    with pytest.raises(StoreError, match="cannot be written"):
        published(store, lake)
    monkeypatch.undo()
    assert paid(lake) == before
    published(store, lake)
    assert paid(lake) * 2 == before * 3


def test_days_of_an_older_layout_are_named_and_published_again(tmp_path: Path, lake: Path) -> None:
    before = paid(lake)
    for folder in sorted(lake.glob("cell=one/day=*")):
        old = replace(current(folder), version=1)
        for manifest in folder.glob("manifest-*.json"):
            manifest.unlink()
        (folder / old.name()).write_bytes(old.content())
    with LakeSession(str(lake), Range(END - 5 * HOUR, END), "duckdb") as session:
        assert session.coverage.n_days == 0 and len(session.coverage.faults) == 2
        assert {fault.reason for fault in session.coverage.faults} == {
            "its manifest has layout 1; this pertoken reads layout 2"
        }
    published(host(tmp_path / "db"), lake)
    assert paid(lake) == before


def test_pruning_deletes_replaced_versions_and_days_before_a_date(tmp_path: Path, lake: Path) -> None:
    store = host(tmp_path / "db")
    set_price(store.location, "H100", 3_000_000_000)
    published(store, lake)
    files, newest = LakeFiles(str(lake)), paid(lake)
    assert list(prune(files, None, next(CLOCK))) == []  # another publisher may be at work on these files
    deleted = list(prune(files, None, next(CLOCK) + 2 * DAY * 10**6))
    assert len(deleted) == 2 and all(day.n_files >= 2 for day in deleted)
    assert paid(lake) == newest and not verified(all_days(files)).faults
    list(prune(files, TODAY, next(CLOCK)))
    assert paid(lake) == 2 * 4 * 3_000_000_000


def test_every_view_is_answered(lake: Path) -> None:
    for view in VIEWS.values():
        asked(lake, view.question)


def test_dollars_per_mtok_follow_from_the_sums(lake: Path) -> None:
    from pertoken.text.lake import with_per_mtok

    (row,) = asked(lake, partial(questions.per_mtok, by="service"))
    tokens = row["prompt_tokens"] + row["generated_tokens"]
    assert with_per_mtok(row)["nano_usd_per_mtok"] == round(row["nano_usd"] * MTOK / tokens)


def test_devices_without_a_price_are_counted_not_taken_for_free(tmp_path: Path) -> None:
    published(host(tmp_path / "db", usd_per_hour=None), tmp_path / "lake")
    (row,) = [r for r in asked(tmp_path / "lake", partial(questions.dollars, by=["model"])) if r["model"]]
    assert (row["nano_usd"], row["unpriced_device_hours"]) == (None, 10)
    assert asked(tmp_path / "lake", partial(questions.per_mtok, by="model")) == []


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://lake", "folder, file:///FOLDER or s3://BUCKET"),
        ("s3://key:secret@bucket/x", "holds no credentials"),
        ("s3://bucket/x?endpoint_override=x", "no options"),
        ("s3://B/x", "no name of a bucket"),
        ("file://host/x", "file:///FOLDER"),
    ],
)
def test_a_url_that_is_no_lake_is_refused_without_showing_a_secret(url: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason) as refused:
        LakeFiles(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 65, "-a", "a\n", "é"])
def test_a_cell_is_named_by_letters_and_digits(name: str) -> None:
    with pytest.raises(BadInput):
        cell_name(name)


def test_an_unknown_engine_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="spark://HOST:PORT"):
        engine("spark://host:port:more", LakeFiles(str(tmp_path)))
    with pytest.raises(StoreError, match="holds no lake"):
        LakeSession(str(tmp_path), Range(0, DAY), "duckdb")


def test_days_are_those_of_utc() -> None:
    assert start_of(day_of(END)) == END // DAY * DAY
