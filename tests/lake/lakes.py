"""Lakes for tests: databases that are published, and answers from them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any

from pertoken.catalog.market import load_market
from pertoken.config import Settings
from pertoken.lake import questions
from pertoken.lake.manifest import LakeFiles
from pertoken.lake.publish import LakeSource, PublishedDay, publish
from pertoken.lake.questions import LakeSession
from pertoken.lake.reading import Range
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import Store, open_store
from tests.costs.test_any_history import START, History, recorded, stored
from tests.scenario import LOW_BATCH_70B, Serving, seed
from tests.values import new_store

HOUR, DAY = 3600, 86_400
END = 1_790_006_400 // DAY * DAY + 2 * HOUR
"""Two hours into a day."""
CLOCK = count(1_790_000_000_000_000)


def host(
    folder: Path,
    hours: int = 5,
    gpus: int = 4,
    usd_per_hour: float | None = 2.0,
    end_ts: int = END,
    load: Serving = LOW_BATCH_70B,
    knobs: Mapping[str, object] | None = None,
) -> Store:
    """Return a host of GPUs of which a model holds two, over some hours that end two hours into a day.

    `knobs`: of its epoch, beside those of the load.
    """
    if folder.exists():  # the host of a lake that was published already
        return open_store(locate(str(folder)))
    folder.mkdir(parents=True)
    load = replace(load, knobs={**load.knobs, **(knobs or {})})
    where = seed(folder, load, gpus=gpus, usd_per_hour=usd_per_hour, minutes=60 * hours, end_ts=end_ts)
    return open_store(where)


def random_lake(folder: Path, cells: Sequence[History]) -> tuple[Path, int]:
    """Publish databases of random histories as cells of one lake; return it and the end of their last closed hour."""
    last = START
    for number, history in enumerate(cells):
        database = new_store(folder / f"db{number}").file("telemetry").parent
        ticks = [tick for tick, _ in recorded(history)]
        end = ticks[-1].ts // HOUR * HOUR
        published(stored(database, ticks, (), history), folder / "lake", f"cell{number}", now_ts=end + 300)
        last = max(last, end)
    return folder / "lake", last


def published(
    store: Store, lake: Path | str | LakeFiles, cell: str = "one", now_ts: int = END + 600, **more: Any
) -> list[PublishedDay]:
    """Publish a database; return its days."""
    files = lake if isinstance(lake, LakeFiles) else LakeFiles(str(lake))
    return list(publish(LakeSource(store, load_market(), Settings(), cell), files, now_ts, lambda: next(CLOCK), **more))


def asked(url: Path | str, question: Any, start: int = 0, end: int = END, engine: str = "duckdb") -> list[Any]:
    """Return the answer to one question over all hours of a range."""
    with LakeSession(str(url), Range(start or END - 30 * DAY, end), engine) as session:
        return session.rows(question)


def paid(url: Path | str, engine: str = "duckdb", **bounds: int) -> int:
    """Return all nano-dollars of a lake."""
    rows = asked(url, lambda tables: questions.dollars(tables, ["cell"]), engine=engine, **bounds)
    return sum(row["nano_usd"] or 0 for row in rows)


def files_of(lake: Path) -> dict[str, bytes]:
    """Return every file of a lake that is a folder."""
    return {str(file.relative_to(lake)): file.read_bytes() for file in sorted(lake.rglob("*")) if file.is_file()}


def day_files(lake: Path, table: str) -> Iterator[Path]:
    """Yield the files of one table."""
    yield from sorted(lake.rglob(f"{table}-*.parquet"))


def day(text: str) -> date:
    """Return a day."""
    return date.fromisoformat(text)
