"""A process killed, or the power cut: every tick that was acknowledged is there afterwards, and all adds up."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import select

from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import open_store
from pertoken.store.integrity.verify import verify
from pertoken.store.schema import telemetry as t
from pertoken.store.write.writer import Writer
from tests.store.filled import START, fill
from tests.values import new_store

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("shim") / "power_cut.so"
    source = Path(__file__).with_name("power_cut.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True, capture_output=True)
    return library


def acknowledged_until_killed(folder: Path, first: int, ticks: int, **environment: str) -> int:
    """Let a process commit until it printed `n` ticks, kill it, and return the last one it printed."""
    command = [sys.executable, "-m", "tests.store.committing", str(folder), str(first)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, **environment}, bufsize=1
    )
    assert process.stdout is not None
    last = first - 1
    try:
        for line in process.stdout:
            last = int(line)
            if last - first + 1 >= ticks:
                break
    finally:
        process.kill()
        rest, _ = process.communicate()
    acknowledged = [int(line) for line in rest.splitlines() if line]
    return acknowledged[-1] if acknowledged else last


def stored(where: StoreLocation) -> list[int]:
    with open_store(where).read() as connection:
        rows = connection.execute(select(t.host_sample.c.ts).order_by(t.host_sample.c.ts)).scalars()
        return [(ts - START) // 10 for ts in rows]


def whole(where: StoreLocation, last: int) -> None:
    """Nothing acknowledged is missing, nothing is torn, and recording goes on."""
    with Writer(where) as writer:
        assert writer.lost is None
    rows = stored(where)
    assert rows == list(range(1, len(rows) + 1))
    assert len(rows) >= last
    assert [fault for fault in verify(where) if fault is not None] == []
    with Writer(where) as writer:
        fill(writer, range(len(rows) + 1, len(rows) + 3))
    assert [fault for fault in verify(where) if fault is not None] == []


def test_a_killed_writer_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    where, chance, first = new_store(tmp_path / "db"), random.Random(5), 1
    for _ in range(2):
        last = acknowledged_until_killed(tmp_path / "db", first, chance.randrange(20, 60))
        whole(where, last)
        first = len(stored(where)) + 1


def test_a_power_cut_loses_nothing_that_was_acknowledged(shim: Path, tmp_path: Path) -> None:
    chance, folder, kept = random.Random(11), tmp_path / "db", tmp_path / "kept"
    new_store(folder)
    shutil.copytree(folder, kept)
    first = 1
    for _ in range(2):
        environment = {"LD_PRELOAD": str(shim), "POWER_CUT_FROM": str(folder), "POWER_CUT_TO": str(kept)}
        last = acknowledged_until_killed(folder, first, chance.randrange(20, 60), **environment)
        # The index of the log lives in memory alone, and a copy under way is not on the disk.
        for name in [*kept.glob("*-shm"), *kept.glob("*.part")]:
            name.unlink()
        whole(locate(str(kept)), last)
        first = len(stored(locate(str(kept)))) + 1
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)


def test_the_shim_sees_what_a_weaker_setting_would_lose(shim: Path, tmp_path: Path) -> None:
    """Without waiting for the disk the same cut does lose ticks: the test above can fail."""
    folder, kept = tmp_path / "db", tmp_path / "kept"
    new_store(folder)
    shutil.copytree(folder, kept)
    script = (
        "import os, sys; from pertoken.store.write import writer as w;"
        "from pertoken.store.connect.location import locate; from tests.store.filled import filled_tick\n"
        "writer = w.Writer(locate(sys.argv[1]))\n"
        "writer._connection.connection.driver_connection.execute('PRAGMA telemetry.synchronous=OFF')\n"
        "for n in range(1, 40): writer.commit(filled_tick(n))\n"
        "os._exit(0)"
    )
    environment = {"LD_PRELOAD": str(shim), "POWER_CUT_FROM": str(folder), "POWER_CUT_TO": str(kept)}
    subprocess.run([sys.executable, "-c", script, str(folder)], check=True, cwd=ROOT, env={**os.environ, **environment})
    assert len(stored(locate(str(folder)))) == 39
    assert len(stored(locate(str(kept)))) < 39
