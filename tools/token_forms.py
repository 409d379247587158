"""Forms in which the tokens that an engine served pass from one room of `pertoken/` to another.

Everything runs twice in one process, the second time with more generated tokens and all else the same. An agent's tick
reads the page of a stand-in engine and stores it; then the advisor, or the bill, reads the database of `tests.scenario`
and its result becomes the text of a screen. A profile hook looks at what a function of one package takes from and
returns to a function of another; calls by decorators and other libraries are those of the function behind them.

A form is a type of `pertoken/` with fields (dataclass or named tuple) of which one had a value in the second run that
it never had in the first, or a table with such a column. Nobody lists them: under another name it is still a form.

- The values of a field are its numbers, texts and bytes, also within plain containers and arrays. What another instance
  within it holds is of that one: a `Tick` with samples is no form.
- Plain values on their own, such as a dict of sums or JSON in a pipe, are no form; forms within one package are none.
- Rules run in processes of their own, and are seen by what they send.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TypeVar
from unittest.mock import patch

import numpy as np

ROOT = Path(__file__).parents[1]
PACKAGE = f"{ROOT / 'pertoken'}/"
DECORATORS = (f"{PACKAGE}by_identity.py",)
TIMES = ("seconds", "pricing_seconds")
"""Fields that differ between equal runs."""
NOW_TS = 1_790_000_040
GENERATED_TOK_S = (40.0, 41.0)
"""Of the scenario in the two runs."""
CHECKSUMS = ("batch", "seal")
"""Tables that hold checksums of other tables."""
MAX_LENGTH = 500
"""Values of a container that are looked at."""
T = TypeVar("T")
Values = dict[str, set[tuple[str, str]]]
"""(field, value) that were seen of each form, by its name."""


class Watch:
    """The values that types of `pertoken/` had in one run."""

    def __init__(self) -> None:
        self.seen: Values = defaultdict(set)
        self._known: dict[int, object] = {}
        """Instances that were looked at, by identity; kept, so that none of them is reused."""

    @contextmanager
    def on(self) -> Iterator[None]:
        """Look at what functions of `pertoken/` that run in this thread take from and return to other packages."""
        sys.setprofile(self._hook)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _hook(self, frame: FrameType, event: str, argument: object) -> None:
        if event not in ("call", "return") or not _in_package(frame):
            return
        caller = frame.f_back
        while caller is not None and not _in_package(caller):
            caller = caller.f_back
        if caller is not None and _room(frame) == _room(caller):
            return
        if event == "return":
            self.note(argument)
        elif frame.f_code.co_flags & 1 and frame.f_code.co_argcount:
            for value in frame.f_locals.values():
                self.note(value)

    def note(self, value: object) -> None:
        """Take the values of an instance, and of those in its containers."""
        if type(value) in (tuple, list, dict):
            for part in _parts(value):
                self.note(part)
            return
        names = fields_of(type(value))  # type: ignore[arg-type]  # a type is hashable
        if not names or self._known.get(id(value)) is value:
            return
        self._known[id(value)] = value
        for name in names:
            try:
                field: object = object.__getattribute__(value, name)
            except AttributeError:  # not set yet: within its own `__init__`
                del self._known[id(value)]
                return
            if type(field) in (tuple, list, dict):
                self.note(field)
            if name not in TIMES and (own := own_values(field)) is not None:
                self.seen[form_name(type(value))].add((name, own))


def _in_package(frame: FrameType) -> bool:
    """Return whether a frame runs a function of `pertoken/` that is no decorator."""
    return frame.f_code.co_filename.startswith(PACKAGE) and frame.f_code.co_filename not in DECORATORS


def _room(frame: FrameType) -> str:
    """Return the folder with the function that a frame runs."""
    return frame.f_code.co_filename.rpartition("/")[0]


def _parts(value: object) -> list[object]:
    container = value.values() if isinstance(value, dict) else value
    assert isinstance(container, Iterable)
    return list(container)[:MAX_LENGTH]


@cache
def fields_of(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a type of `pertoken/`; none of any other type."""
    if not kind.__module__.startswith("pertoken."):
        return ()
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return tuple(getattr(kind, "_fields", ()))


def form_name(kind: type) -> str:
    """Return the name of a type with its module."""
    return f"{kind.__module__.removeprefix('pertoken.')}.{kind.__qualname__}"


def own_values(value: object) -> str | None:
    """Return the numbers and texts of a field as text; None for an instance, which is a form itself."""
    if isinstance(value, int | float | str | bytes):
        return repr(value)
    if isinstance(value, np.ndarray):
        return f"{value.shape} {value.tobytes().hex()}"
    if type(value) in (tuple, list, dict):
        keys = list(value) if isinstance(value, dict) else []
        return f"({', '.join(own for part in (*keys, *_parts(value)) if (own := own_values(part)) is not None)})"
    return None


def changed(first: Values, second: Values) -> list[str]:
    """Return the forms with a value in the second run that none of them had in the first."""
    return sorted(name for name, values in second.items() if values - first.get(name, set()))


# -- the runs: in a process of their own, so that caches and imports are fresh -----------------------------------------
def page(generated: int) -> bytes:
    """Return the metrics page of the stand-in engine."""
    counts = {"prompt_tokens_total": 9000, "generation_tokens_total": generated, "num_requests_running": 2}
    return "".join(f'vllm:{name}{{model_name="m"}} {count}\n' for name, count in counts.items()).encode()


def read_pages(folder: Path, generated: int, url: str, pages: dict[str, bytes]) -> None:
    """Read the page of an engine in two ticks of an agent, and store them."""
    from pertoken.agent.engines.reader import EngineReader
    from pertoken.agent.host.processes import HostProcesses
    from pertoken.agent.readings import Endpoint
    from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
    from pertoken.agent.scrape import RequestLimits
    from pertoken.store.write.writer import Writer
    from tests.agent.values import moment, probe, tick_state
    from tests.values import new_store

    endpoint = Endpoint("vllm", url, "setting", int(url.rpartition(":")[2]))
    reader = EngineReader(endpoint, RequestLimits(), processes=lambda: HostProcesses({}))
    state = tick_state()
    with Writer(new_store(folder)) as writer:
        for number, tokens in enumerate((500, generated)):
            pages["/metrics"] = page(tokens)
            cost = AgentCost(10, 50_000_000, 20, 0) if number else None
            tick, state = assemble(state, Readings(probe(), reader.read()), moment(number), cost)
            writer.commit(tick)
        writer.roll_up()


def in_this_process(works: Iterable[Callable[[object], T]], progress: object) -> list[T]:
    """Return the results of works, done where the hook is."""
    return [work(progress) for work in works]


def advise(folder: Path) -> None:
    """Run the rules, store their advice, read it again and show the details of each."""
    from pertoken.advisor import run as advisor
    from pertoken.advisor.rules.discovery import find_rules, source_of
    from pertoken.catalog.market import load_market
    from pertoken.config import Settings
    from pertoken.proof.stored import standing
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import open_store
    from pertoken.store.repository import AdviceRepository
    from pertoken.text.summary import sheet_text

    settings, market = Settings(), load_market()
    store = open_store(locate(str(folder)))
    sources = [source_of(plugin, settings) for plugin in find_rules(settings)]
    with patch.object(advisor, "in_forks", in_this_process):
        advice = advisor.advise(store, sources, market, settings, 7 * 86_400, NOW_TS, shards=1)
    repository = AdviceRepository(locate(str(folder)))
    advisor.keep_advice(store, repository, advice, market, settings, "somebody")
    for row in standing(store):
        sheet_text(row, NOW_TS)


def bill(folder: Path) -> None:
    """Compute the bill of the fleet and show it."""
    from pertoken.costs.report.fleet_report import fleet_report
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import open_store
    from pertoken.text.summary import fleet_summary

    fleet_summary(fleet_report(open_store(locate(str(folder))), 3600, NOW_TS))


WAYS: dict[str, Callable[[Path], None]] = {"advice": advise, "bill": bill}


def seeded(folder: Path, generated_tok_s: float) -> Path:
    """Return the database of the scenario."""
    from tests.scenario import LOW_BATCH_70B, seed

    folder.mkdir(parents=True)
    serving = dataclasses.replace(LOW_BATCH_70B, generated_tok_s=generated_tok_s)
    seed(folder, serving, gpus=2, usd_per_hour=1.0, minutes=60, end_ts=NOW_TS)
    return folder


def rows_of(folder: Path) -> Values:
    """Return the values in the tables of a database, checksums left out."""
    seen: Values = defaultdict(set)
    for file in folder.glob("*.db"):
        with closing(sqlite3.connect(file)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for table in (name for (name,) in tables if name not in CHECKSUMS):
                rows = connection.execute(f"SELECT * FROM {table}")
                names = [column[0] for column in rows.description]
                seen[f"table {table}"].update((name, repr(row[n])) for row in rows for n, name in enumerate(names))
    return seen


def trace(way: str, folder: Path) -> list[str]:
    """Run a way twice, and return its forms."""
    from tests.agent.servers import answering, pages

    replies = {"/version": b'{"version": "0.32.0"}', "/v1/models": b'{"data": [{"id": "m"}]}'}
    runs: list[Values] = []
    with answering(lambda connection, path: pages(replies)(connection, path)) as url:
        for generated_tok_s in GENERATED_TOK_S:
            database, watch = seeded(folder / "read", generated_tok_s), Watch()
            with watch.on():
                read_pages(folder / "written", round(600 + generated_tok_s), url, replies)
                WAYS[way](database)
            runs.append({**watch.seen, **rows_of(database)})
            for written in folder.iterdir():
                shutil.rmtree(written)
    return changed(*runs)


@cache
def forms(way: str) -> tuple[str, ...]:
    """Return the forms of a way, `advice` or `bill`."""
    command, environment = [sys.executable, "-m", "tools.token_forms", way], {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT, env=environment)
    return tuple(json.loads(done.stdout))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(trace(sys.argv[1], Path(scratch)), indent=1))
